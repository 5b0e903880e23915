"""The findings of `quorate doctor` as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module
from quorate.tools.doctor.findings import Finding, Severity, exit_status

if TYPE_CHECKING:
    from quorate.config import dynamic_configs
else:
    dynamic_configs = lazy_module("quorate.config.dynamic_configs")

_COLOURS = {Severity.ERROR: "31", Severity.WARNING: "33", Severity.NOTE: "36"}


@dataclass(slots=True)
class Report:
    """Everything that was found for one path. `corrections` are the changed lines of a properties file, and
    `sufficient` says whether a node accepts the file with them."""

    path: Path
    findings: Sequence[Finding]
    kafka: str | None
    checked: Sequence[Path] = ()
    corrections: Mapping[str, str | None] = field(default_factory=dict)
    sufficient: bool = True


def text(report: Report, *, colours: bool) -> str:
    """The report for a terminal or a file."""

    def painted(what: str, severity: Severity) -> str:
        return f"\033[{_COLOURS[severity]}m{what}\033[0m" if colours else what

    lines = [f"{report.path}: {_summary(report.findings)}"]
    lines += [f"checked too: {path}" for path in report.checked]
    if not report.sufficient:
        lines.append("the log directories were not checked: correct the file first")
    for finding in sorted(report.findings, key=lambda finding: -finding.severity):
        place = f"line {finding.line}: " if finding.line else ""
        lines += [
            "",
            f"{painted(finding.severity.name, finding.severity)} {finding.code}: {place}{finding.text}",
        ]
        if finding.remedy:
            lines.append(f"  remedy: {finding.remedy}")
        if finding.kafka:
            lines.append(f"  Apache Kafka: {finding.kafka}")
    if report.corrections:
        lines += ["", f"Corrected lines{'' if report.sufficient else ', which are not all that is missing'}:"]
        lines += [f"  {line}" for line in correction_lines(report.corrections)]
    if report.kafka is not None:
        lines += ["", "Apache Kafka 4.4 would not start. It says:", f"  {report.kafka}"]
    return "\n".join(lines)


def _summary(findings: Sequence[Finding]) -> str:
    counts = [
        f"{count} {severity.name.lower()}{'s' if count > 1 else ''}"
        for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE)
        if (count := sum(finding.severity is severity for finding in findings))
    ]
    return ", ".join(counts) or "nothing is wrong"


def correction_lines(corrections: Mapping[str, str | None]) -> list[str]:
    """The corrected lines of a properties file. A key to be removed is a comment."""
    return [
        f"# remove {key}" if value is None else f"{key}={_shown(key, value)}"
        for key, value in corrections.items()
    ]


def _shown(key: str, value: str) -> str:
    return "(not shown)" if dynamic_configs.is_sensitive(key) else value


def document(report: Report) -> str:
    """The report as one JSON object."""
    return json.dumps(
        {
            "path": str(report.path),
            "checked": [str(path) for path in report.checked],
            "status": exit_status(report.findings),
            "findings": [
                {
                    "severity": finding.severity.name.lower(),
                    "code": finding.code,
                    "path": str(finding.path),
                    "line": finding.line or None,
                    "key": finding.key or None,
                    "text": finding.text,
                    "remedy": finding.remedy or None,
                    "correction": correction_lines(finding.correction),
                    "kafka": finding.kafka or None,
                    "fix": None if finding.fix is None else str(finding.fix),
                }
                for finding in report.findings
            ],
            "correctedLines": correction_lines(report.corrections),
            "corrected": report.sufficient,
            "kafkaRefusal": report.kafka,
        }
    )
