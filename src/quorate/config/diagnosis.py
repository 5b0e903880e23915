"""Finds all errors of a node's configuration, where `KafkaConfig` reports the first.

Each error is corrected, as far as its correction is known, and the configuration is checked again.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from quorate.config.broker_defs import BROKER_CONFIGS
from quorate.config.definitions import ConfigDef, ConfigError, ConfigType, NotAmong
from quorate.config.kafka_config import KafkaConfig

_BOOLEANS = {"yes": "true", "on": "true", "1": "true", "no": "false", "off": "false", "0": "false"}
_QUANTITY = re.compile(r"([+-]?[0-9][0-9_,' ]*)\s*([a-zA-Z]*)")
_BYTES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Diagnosis(NamedTuple):
    """The errors, and the configuration in which they are corrected. It is None if one of them has no
    correction, or could hide others."""

    errors: list[ConfigError]
    corrected: KafkaConfig | None


def diagnose(properties: Mapping[str, str]) -> Diagnosis:
    """Finds the errors of a configuration: those of single keys, then those of the rules between keys."""
    errors: list[ConfigError] = []
    working = dict(properties)
    while len(errors) <= len(properties) + len(BROKER_CONFIGS):
        try:
            return Diagnosis(errors, KafkaConfig(working))
        except ConfigError as error:
            if not error.correction:
                error.correction = _correction_of(error.key, working)
            errors.append(error)
            after = corrected(working, error.correction)
            if after == working:
                break
            working = after
    return Diagnosis(errors, None)


def corrected(properties: Mapping[str, str], correction: Mapping[str, str | None]) -> dict[str, str]:
    """A copy of the properties with a correction."""
    merged = {**properties, **correction}
    return {key: value for key, value in merged.items() if value is not None}


def _correction_of(key: str, properties: Mapping[str, str]) -> dict[str, str | None]:
    """The value that was probably meant, or the removal of a key that has a default. Empty if the value is
    valid by itself, or if a key without a default cannot be guessed."""
    definition = BROKER_CONFIGS.get(key)
    if definition is None:
        return {}
    text = properties.get(key, "")
    try:
        definition.validate(text)
    except ConfigError as error:
        for candidate in _candidates(definition, text.strip(), error.reason):
            if candidate != text and _valid(definition, candidate):
                return {key: candidate}
        if key == "process.roles":
            return {key: _roles(properties)}
        return {key: None} if key in properties and not definition.required else {}
    return {}


def _roles(properties: Mapping[str, str]) -> str:
    """The roles that fit to the listeners."""
    controllers = {
        name.strip().upper() for name in properties.get("controller.listener.names", "").split(",")
    }
    own = {item.partition(":")[0].strip().upper() for item in properties.get("listeners", "").split(",")} - {
        ""
    }
    roles = ["broker"] if own - controllers or not own else []
    return ",".join([*roles, *(["controller"] if own & controllers else [])])


def _valid(definition: ConfigDef, text: str) -> bool:
    try:
        definition.validate(text)
    except ConfigError:
        return False
    return True


def _candidates(definition: ConfigDef, text: str, reason: str) -> Iterator[str]:
    if definition.type is ConfigType.BOOLEAN:
        yield _BOOLEANS.get(text.lower(), text)
    elif definition.type in (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT):
        if (number := _number(definition.name, text)) is not None:
            yield str(number)
    elif isinstance(reason, NotAmong):
        allowed = reason.allowed
        given = [item.strip() for item in text.split(",")]
        near = [difflib.get_close_matches(item.lower(), allowed, n=1, cutoff=0.6) for item in given]
        if all(near):
            yield ",".join(found[0] for found in near)
        yield text.lower()


def _number(key: str, text: str) -> int | None:
    """The number in a text such as 1_000, 512k or 7d. A unit is understood for keys of bytes and of ms."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    unit = found[2].lower()
    if key.endswith(".ms"):
        factor = _MS.get(unit)
    elif "bytes" in key or key.endswith(".size"):
        factor = _BYTES.get(unit.removesuffix("b").removesuffix("i"))
    else:
        factor = 1 if not unit else None
    return None if factor is None else int(re.sub(r"[_,' ]", "", found[1])) * factor
