"""Defines configuration keys: their types, defaults and ranges, and the error for a value that a key
cannot take.

Facts of the tables are Apache Kafka 4.4's (ConfigDef, `kafka-configs --describe`); the texts are ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module

if TYPE_CHECKING:
    from quorate import java_numbers
    from quorate.config import docs
else:
    docs = lazy_module("quorate.config.docs")
    java_numbers = lazy_module("quorate.java_numbers")


class ConfigError(ValueError):
    """A key has a value that it cannot take.

    The message has the wording of Kafka's ConfigException, because clients show it to their users.
    `remedy` is advice for the operator. `correction` has the values of the keys with which the configuration
    passes this check, None for a key to be removed. It is empty where only the operator can know them.
    """

    def __init__(
        self,
        key: str,
        value: object,
        reason: str,
        remedy: str = "",
        correction: Mapping[str, str | None] | None = None,
    ) -> None:
        self.key = key
        self.correction = dict(correction or {})
        self.value = value = ",".join(value) if isinstance(value, list) else value
        self.reason = reason
        self.remedy = remedy
        text = f"Invalid value {'null' if value is None else value} for configuration {key}"
        if reason:
            text += f": {reason}"
        if remedy:
            text += f" ({remedy})"
        super().__init__(text)


def missing_key_error(name: str) -> ConfigError:
    """Returns the error for a required key that is not set."""
    if name == "process.roles":
        return ConfigError(
            name,
            None,
            "it is required; without it a node would be a ZooKeeper one, and there is no ZooKeeper mode",
            "set process.roles=broker,controller for a node that is both, or one of the two",
        )
    return ConfigError(
        name, None, "it is required", f"set {name}=<a number from 0 on, different on every node>"
    )


class ConfigType(IntEnum):
    """The types of values, with the numbers of DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(IntEnum):
    """The importance of a key, as in Kafka's ConfigDef."""

    HIGH = 0
    MEDIUM = 1
    LOW = 2


class Scope(IntEnum):
    """Whether a broker key can be changed while the broker runs, and for which brokers (KIP-226)."""

    READ_ONLY = 0
    CLUSTER_WIDE = 1
    """May be set for all brokers or for one of them."""
    PER_BROKER = 2
    """May be set for one broker only."""


Validator = Callable[[str, Any], "str | None"]
"""Takes a key and its parsed value. Returns the reason why the value is invalid, in Kafka's words, or
None.
"""

# Short names for the tables of keys.
BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
SHORT = ConfigType.SHORT
LONG = ConfigType.LONG
DOUBLE = ConfigType.DOUBLE
LIST = ConfigType.LIST
CLASS = ConfigType.CLASS
PASSWORD = ConfigType.PASSWORD
HIGH = Importance.HIGH
LOW = Importance.LOW
CLUSTER_WIDE = Scope.CLUSTER_WIDE
PER_BROKER = Scope.PER_BROKER

_WHITE = " \t\n\r\f\v"
"""White space that `int` ignores, too, and that Java trims."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 4_000
"""Python raises ValueError for a number of more than 4,300 digits."""
_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()
"""Represents the default of a key that must be set."""


@cache
def _docs() -> Mapping[str, str]:
    """The documentation of all keys. It is cached because a response may document every key."""
    return docs.DOCS


@dataclass(slots=True, frozen=True)
class ConfigDef:
    """One configuration key.

    `default` is text, as in a properties file, or None where the key has no default and may be absent.
    `synonyms` of a topic key are the broker keys that give its default: the first one that is set
    counts.
    """

    name: str
    type: ConfigType
    default: str | None
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    dynamic: Scope = Scope.READ_ONLY
    required: bool = False
    internal: bool = False
    synonyms: tuple[str, ...] = ()

    @property
    def doc(self) -> str:
        """The documentation of the key."""
        return _docs().get(self.name, "")

    @property
    def sensitive(self) -> bool:
        """Whether the value is never shown."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str | None) -> Any:
        """The value of a text, checked. Raises ConfigError.

        The type of the value is bool, str, int, float or list[str]. It is None if the text is None.
        """
        value = parse_value(self.name, self.type, text)
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raises ConfigError if a parsed value is out of range."""
        if self.validator is not None and (reason := self.validator(self.name, value)) is not None:
            raise ConfigError(self.name, value, reason)

    def validate(self, text: str | None) -> None:
        """Raises ConfigError if the text is not a valid value of this key."""
        self.parse(text)

    def default_value(self) -> Any:
        """The parsed default, or None if there is none."""
        return parse_value(self.name, self.type, self.default)


def parse_value(name: str, kind: ConfigType, text: str | None) -> Any:
    """Parses a text as a value of a type, by the rules of Kafka's ConfigDef. Raises ConfigError."""
    if text is None:
        return None
    match kind:
        case ConfigType.PASSWORD:
            return text
        case ConfigType.STRING | ConfigType.CLASS:
            return text.strip(_WHITE)
    text = text.strip(_WHITE)
    match kind:
        case ConfigType.BOOLEAN:
            lowered = text.lower()
            if lowered not in ("true", "false"):
                raise ConfigError(name, text, "Expected value to be either true or false")
            return lowered == "true"
        case ConfigType.LIST:
            # An item that is repeated counts once, as in Kafka's ConfigDef.parseValue.
            return list(dict.fromkeys(part.strip() for part in text.split(","))) if text else []
        case ConfigType.DOUBLE:
            try:
                return java_numbers.parse_double(text)
            except ValueError:
                raise ConfigError(name, text, "Not a number of type DOUBLE") from None
        case _:
            if _INTEGER.fullmatch(text) and len(text) <= _MAX_DIGITS:
                number = int(text)
                half = 1 << (_BITS[kind] - 1)
                if -half <= number < half:
                    return number
            raise ConfigError(name, text, f"Not a number of type {kind.name}")


# -- ranges


class NotAmong(str):
    """The reason that a value, or an item of a list, is not one of those that are allowed."""

    item: object
    allowed: tuple[str, ...]

    def __new__(cls, item: object, allowed: Sequence[str], hint: str = "") -> Self:
        found = super().__new__(cls, f"String must be one of{hint}: {', '.join(allowed)}")
        found.item = item
        found.allowed = tuple(allowed)
        return found


class EmptyValues(str):
    """The reason that a list is empty, with what it may have, or without it that one of its items is."""

    allowed: str | None

    def __new__(cls, allowed: str | None = None) -> Self:
        what = "" if allowed is None else f". Valid values include: {allowed}"
        found = super().__new__(cls, f"values must not be empty{what}")
        found.allowed = allowed
        return found


def at_least(low: float) -> Validator:
    """A validator of numbers that are not smaller than `low`."""

    def check(name: str, value: Any) -> str | None:
        if value is None:
            return "Value must be non-null"
        return f"Value must be at least {low}" if value < low else None

    return check


def between(low: float, high: float) -> Validator:
    """A validator of numbers in a range, including its ends."""

    def check(name: str, value: Any) -> str | None:
        if value is None:
            return "Value must be non-null"
        if value < low:
            return f"Value must be at least {low}"
        return f"Value must be no more than {high}" if value > high else None

    return check


def one_of(*values: str) -> Validator:
    """A validator of strings."""

    def check(name: str, value: Any) -> str | None:
        return None if value in values else NotAmong(value, values)

    return check


def one_of_any_case(*values: str) -> Validator:
    """A validator of strings that ignores the case."""

    def check(name: str, value: Any) -> str | None:
        if value is not None and value.upper() in values:
            return None
        return NotAmong(value, values, " (case insensitive)")

    return check


def items(*, empty: bool = True) -> Validator:
    """A validator of lists whose items are not empty. With `empty`, the list itself may be empty."""

    def check(name: str, value: Any) -> str | None:
        if value == [] and not empty:
            return EmptyValues("any non-empty value")
        return EmptyValues() if "" in (value or ()) else None

    return check


def list_of(*values: str, empty: bool = True) -> Validator:
    """A validator of lists whose items are among `values`. With `empty`, the list may be empty."""

    def check(name: str, value: Any) -> str | None:
        if value == [] and not empty:
            return EmptyValues(", ".join(values))
        for item in value or ():
            if item not in values:
                return NotAmong(item, values)
        return None

    return check


def NON_EMPTY(name: str, value: Any) -> str | None:
    """Checks that a string is not empty."""
    return "String must be non-empty" if value == "" else None


def NON_NULL(name: str, value: Any) -> str | None:
    """Checks that there is a value."""
    return "entry must be non null" if value is None else None


def GZIP_LEVEL(name: str, value: Any) -> str | None:
    """Checks a compression level of gzip."""
    return (
        None
        if value == -1 or (value is not None and 1 <= value <= 9)
        else "Value must be between 1 and 9 or equal to -1"
    )


def THROTTLED(name: str, value: Any) -> str | None:
    """Checks a list of throttled replicas: `*`, or pairs of partition and broker. Raises ConfigError with the
    value in brackets, as Kafka prints this list."""
    if value is None or value == [] or (len(value) == 1 and value[0] == "*"):
        return None
    if all(re.fullmatch(r"[0-9]+:[0-9]+", item) for item in value):
        return None
    raise ConfigError(
        name,
        f"[{', '.join(value)}]",
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    )


def define(
    name: str,
    kind: ConfigType,
    default: str | _Required | None,
    validator: Validator | None = None,
    *,
    importance: Importance = Importance.MEDIUM,
    dynamic: Scope = Scope.READ_ONLY,
    internal: bool = False,
    synonyms: tuple[str, ...] = (),
) -> ConfigDef:
    """Returns a row of a table of keys."""
    required = isinstance(default, _Required)
    return ConfigDef(
        name,
        kind,
        None if isinstance(default, _Required) else default,
        validator,
        importance,
        dynamic,
        required,
        internal,
        synonyms,
    )
