"""Options and client properties that the tools share which talk to a running cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from quorate.log import properties_text
from quorate.tools.command_line import Parser, ToolError

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def tool_parser(prog: str, description: str) -> Parser:
    """Creates the parser of a tool, with `--version`."""
    parser = Parser(prog, description)
    parser.add_version()
    return parser


def read_properties(path: str | None) -> dict[str, str]:
    """Reads a Java properties file; None gives no properties. Raises ToolError if it cannot be read."""
    if path is None:
        return {}
    try:
        return properties_text.load(properties_text.read(Path(path)))
    except OSError as error:
        raise ToolError(f"Cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ToolError(f"Cannot read {path}: {error}") from error


def key_values(pairs: Iterable[str], what: str) -> dict[str, str]:
    """Parses the values of a repeated option of the form name=value. `what` names the option in errors.

    Raises ToolError.
    """
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise ToolError(f'Invalid {what} {pair}: it must be in the format "key=value"')
        found[name.strip()] = value.strip()
    return found


def name_filter(pattern: str | None) -> Callable[[str], bool]:
    """Returns a predicate for names that match a pattern in the syntax of Kafka's IncludeList.

    The pattern is a regular expression of the whole name, in which a comma separates alternatives. None
    accepts every name. Raises ToolError for an invalid expression.
    """
    if pattern is None:
        return lambda _: True
    text = pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        compiled = re.compile(text)
    except re.error as error:
        raise ToolError(f"{text} is an invalid regex: {error}") from error
    return lambda name: compiled.fullmatch(name) is not None
