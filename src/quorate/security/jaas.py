"""Parses the value of `sasl.jaas.config`: one login module with its options."""

from __future__ import annotations

import re

_ENTRY = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*", re.DOTALL | re.IGNORECASE
)
_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Returns the login module, without its package, and its options. Raises ValueError."""
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise ValueError(
            'Invalid value for configuration sasl.jaas.config: it must be like MODULE required name="value";'
        )
    options = {}
    for name, double, single, bare in _OPTION.findall(match[2]):
        options[name] = re.sub(r"\\(.)", r"\1", double or single) or bare
    return match[1].rpartition(".")[2], options
