"""Checks the text of a properties file."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from quorate.config.definitions import ConfigError
from quorate.config.diagnosis import corrected, diagnose
from quorate.config.dynamic_configs import is_sensitive
from quorate.config.kafka_config import KafkaConfig
from quorate.config.unknown_keys import unknown_keys
from quorate.config.without_effect import no_effect_of
from quorate.dataclass import dataclass
from quorate.log import properties_text
from quorate.node.unsupported_configs import unsupported_configs
from quorate.tools.doctor.findings import Finding, ReplaceLines, Severity
from quorate.tools.doctor.kafka_refusals import kafka_refusal
from quorate.tools.doctor.rules import rule_findings

DEPRECATED = {
    "broker.id": "node.id",
    "group.coordinator.rebalance.protocols": None,
    "log.cleaner.enable": None,
}
"""Keys that Apache Kafka 4.4 accepts and 5.0 will not, with the key that takes their place."""


@dataclass(slots=True)
class PropertiesReport:
    """The findings of a file, and its configuration with all corrections, None if they do not suffice."""

    path: Path
    findings: list[Finding]
    config: KafkaConfig | None
    kafka: str | None
    """What Apache Kafka says before it ends; None if it starts, or if that is not known."""


def check_properties(path: Path, content: bytes) -> PropertiesReport:
    """Checks the content of the file `path`."""
    text = properties_text.decode(content)
    try:
        entries = list(properties_text.entries(text))
    except properties_text.MalformedEscapeError as e:
        kafka = "java.lang.IllegalArgumentException: Malformed \\uxxxx encoding."
        finding = Finding(
            Severity.ERROR, "malformed-escape", path, str(e), "write \\\\ for a backslash", kafka=kafka
        )
        return PropertiesReport(path, [finding], None, kafka)
    values = {entry.key: entry.value for entry in entries}
    lines = {entry.key: entry.line for entry in entries}
    findings = [
        *_encoding_findings(path, content, entries),
        *_repeated_findings(path, entries),
    ]
    diagnosis = diagnose(values)
    findings += [_error_finding(path, error, lines) for error in diagnosis.errors]
    config = diagnosis.corrected
    if config is not None:
        findings += [_unsupported_finding(path, error, lines) for error in unsupported_configs(config)]
        findings += rule_findings(path, config, lines)
    findings += _key_findings(path, values, lines, config)
    findings.sort(key=lambda finding: (-finding.severity, finding.line))
    # Java does not remove a byte order mark, so the first key is another one for it.
    theirs = dict(values)
    if content.startswith(codecs.BOM_UTF8) and entries and entries[0].line == 1:
        theirs.pop(entries[0].key)
    return PropertiesReport(path, findings, config, kafka_refusal(theirs))


def corrected_lines(findings: Sequence[Finding], values: Mapping[str, str]) -> dict[str, str | None]:
    """The changes of all errors and warnings, later ones of the same key in place of earlier ones. A change
    to the value that a key already has is left out."""
    merged: dict[str, str | None] = {}
    for finding in findings:
        if finding.severity > Severity.NOTE:
            merged |= finding.correction
    return {key: value for key, value in merged.items() if values.get(key) != value}


def _shown(key: str, value: str) -> str:
    return f"{key}={'(not shown)' if is_sensitive(key) else value}"


# --- the file -------------------------------------------------------------------------------------


def _encoding_findings(
    path: Path, content: bytes, entries: Sequence[properties_text.Entry]
) -> Iterator[Finding]:
    if content.startswith(codecs.BOM_UTF8):
        first = properties_text.physical_lines(properties_text.decode(content))[:1]
        yield Finding(
            Severity.WARNING,
            "byte-order-mark",
            path,
            "the file begins with a byte order mark, which an editor on Windows writes",
            "save it without the mark",
            line=1,
            kafka="makes it a part of the first key, which it then does not know"
            if entries and entries[0].line == 1
            else "",
            fix=ReplaceLines(path, {1: first[0].rstrip("\r\n")}) if first else None,
        )
    for entry in entries:
        if properties_text.was_utf8(entry.key + entry.value):
            yield Finding(
                Severity.WARNING,
                "not-ascii",
                path,
                f"{entry.key} has text in UTF-8, but properties files are read as ISO-8859-1, as Java does",
                "write characters outside of ASCII as \\uXXXX",
                entry.key,
                entry.line,
                _without_utf8(entry),
            )


def _without_utf8(entry: properties_text.Entry) -> dict[str, str | None]:
    try:
        return {entry.key: entry.value.encode("latin-1").decode()} if entry.key.isascii() else {}
    except UnicodeError:
        return {}


def _repeated_findings(path: Path, entries: Sequence[properties_text.Entry]) -> Iterator[Finding]:
    by_key: dict[str, list[properties_text.Entry]] = {}
    for entry in entries:
        by_key.setdefault(entry.key, []).append(entry)
    for key, several in by_key.items():
        if len(several) == 1:
            continue
        same = len({entry.value for entry in several}) == 1
        at = ", ".join(str(entry.line) for entry in several)
        yield Finding(
            Severity.NOTE if same else Severity.WARNING,
            "repeated-key",
            path,
            f"{key} is set {len(several)} times, in the lines {at}"
            + ("" if same else f"; the last one counts: {_shown(key, several[-1].value)}"),
            "keep the last line",
            key,
            several[0].line,
            kafka="also takes the last one",
            fix=ReplaceLines(path, {entry.line: None for entry in several[:-1]}),
        )


# --- keys and rules -------------------------------------------------------------------------------


def _error_finding(path: Path, error: ConfigError, lines: Mapping[str, int]) -> Finding:
    return Finding(
        Severity.ERROR,
        "invalid-value" if error.key in lines else "missing-key",
        path,
        f"{_shown(error.key, '' if error.value is None else str(error.value))}: {error.reason}",
        error.remedy,
        error.key,
        lines.get(error.key, 0),
        error.correction,
    )


def _unsupported_finding(path: Path, error: ConfigError, lines: Mapping[str, int]) -> Finding:
    return Finding(
        Severity.ERROR,
        "not-supported",
        path,
        f"{_shown(error.key, str(error.value))}: {error.reason}",
        error.remedy,
        error.key,
        lines.get(error.key, 0),
        kafka="supports it",
    )


def _key_findings(
    path: Path, values: Mapping[str, str], lines: Mapping[str, int], config: KafkaConfig | None
) -> Iterator[Finding]:
    for unknown in unknown_keys(values):
        replacement = unknown.replacement
        correction: dict[str, str | None] = {unknown.name: None}
        if replacement is not None and replacement not in values:
            after = corrected(values, {unknown.name: None, replacement: values[unknown.name]})
            if not any(error.key == replacement for error in diagnose(after).errors):
                correction = {unknown.name: None, replacement: values[unknown.name]}
        yield Finding(
            Severity.WARNING,
            "obsolete-key" if unknown.obsolete else "unknown-key",
            path,
            unknown.warning,
            "" if replacement is None else f"set {replacement} instead",
            unknown.name,
            lines[unknown.name],
            correction,
            "ignores it without a word",
            ReplaceLines(path, {lines[unknown.name]: None}) if unknown.obsolete else None,
        )
    for name, replacement in DEPRECATED.items():
        if name in values:
            alone = replacement is not None and replacement not in values
            yield Finding(
                Severity.WARNING,
                "deprecated-key",
                path,
                f"{name} is deprecated and will not be known to Apache Kafka 5.0",
                f"write {replacement}" if replacement is not None else "remove it",
                name,
                lines[name],
                {name: None, replacement: values[name]} if alone and replacement else {name: None},
                "warns at each start" if name == "broker.id" else "",
                ReplaceLines(path, {lines[name]: f"{replacement}={values[name]}" if alone else None})
                if replacement is not None
                else None,
            )
    for name in config.keys_without_effect() if config is not None else ():
        if name in values:
            yield Finding(
                Severity.WARNING,
                "without-effect",
                path,
                f"{_shown(name, values[name])} has no effect: {no_effect_of(name)}",
                "",
                name,
                lines[name],
                kafka="applies it",
            )
