"""Numbers as Java reads them from text."""

from __future__ import annotations

import math
import re

_DECIMAL = r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
_HEXADECIMAL = r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
_NAMED = {"NaN": math.nan, "Infinity": math.inf}


def parse_double(text: str) -> float:
    """Reads a text such as 0.5, 1e3, .5d or 0x1p-1 as `java.lang.Double.parseDouble` does. Raises
    ValueError."""
    text = text.strip("".join(map(chr, range(33))))  # as String.trim does
    if found := re.fullmatch(_DECIMAL, text):
        return float(found[1])
    if found := re.fullmatch(_HEXADECIMAL, text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if text[0] == "-" else math.inf
    sign, name = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if name not in _NAMED:
        raise ValueError(f"not a number: {text!r}")
    return -_NAMED[name] if sign == "-" else _NAMED[name]
