"""Parses the value of `sasl.jaas.config`: one login module with its options (Kafka's `JaasConfig`)."""

from __future__ import annotations

import re
from typing import Final

_MODULE = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION = re.compile(
    r"""\s*([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL
)
_END = re.compile(r"\s*;?\s*")

_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
"""What a letter after a backslash means in quotes. Source: Java's `StreamTokenizer`, which Kafka uses."""


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Returns the login module, without its package, and its options.

    Raises ValueError, whose message has nothing of the text, since that may be a password.
    """
    module = _MODULE.match(text)
    end = 0 if module is None else module.end()
    options = {}
    while option := _OPTION.match(text, end):
        name, double, single, bare = option.groups()
        options[name] = _unescaped(double or single or "") if bare is None else bare
        end = option.end()
    if module is None or _END.fullmatch(text, end) is None:
        raise ValueError(
            "Invalid value for configuration sasl.jaas.config: it must be one login module, like "
            'MODULE required name="value";'
        )
    return module[1].rpartition(".")[2], options


def _unescaped(quoted: str) -> str:
    def character(escape: re.Match[str]) -> str:
        found = escape[1]
        return chr(int(found, 8)) if found[0] in "01234567" else _ESCAPED.get(found, found)

    return _ESCAPE.sub(character, quoted)
