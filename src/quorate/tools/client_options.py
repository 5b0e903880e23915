"""Options and properties of the tools that talk to a running cluster, without the client that they talk
through: reading them imports no more than the parser.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from quorate.log import properties_text
from quorate.tools.common import Parser, ToolError

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def tool_parser(prog: str, description: str) -> Parser:
    """A parser in the style of Kafka's tools, which ends with status 1 on wrong usage and has --version."""
    parser = Parser(prog, description)
    parser.add_version()
    return parser


def read_properties(path: str | None) -> dict[str, str]:
    """A Java properties file. Raises ToolError when it cannot be read."""
    if path is None:
        return {}
    try:
        return properties_text.load(Path(path).read_bytes())
    except OSError as error:
        raise ToolError(f"Cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ToolError(f"Cannot read {path}: {error}") from error


def key_values(pairs: Iterable[str], what: str) -> dict[str, str]:
    """The mapping that repeated name=value options give. Raises ToolError."""
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise ToolError(f'Invalid {what} {pair}: it must be in the format "key=value"')
        found[name.strip()] = value.strip()
    return found
