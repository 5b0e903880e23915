"""The Arrow types of columns whose types are declared in Spark's notation."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from quorate.pipeline.datasource.columns import ArrayOf, Kind, StructOf
from quorate.pipeline.decoder.arrays import arrow_type


@cache
def arrow_kind(text: str) -> pa.DataType:
    """The Arrow type of a type in Spark's notation: `array<struct<name:string,port:int>>`."""
    kind, rest = _parse(text)
    assert not rest, text
    return arrow_type(kind)


def _parse(text: str) -> tuple[Kind, str]:
    """The type at the begin of a text, and the rest of it."""
    if text.startswith("array<"):
        element, rest = _parse(text.removeprefix("array<"))
        return ArrayOf(element), rest.removeprefix(">")
    if text.startswith("struct<"):
        fields: list[tuple[str, Kind]] = []
        rest = text.removeprefix("struct<")
        while not rest.startswith(">"):
            name, _, rest = rest.removeprefix(",").partition(":")
            kind, rest = _parse(rest)
            fields.append((name, kind))
        return StructOf(tuple(fields)), rest.removeprefix(">")
    end = min([place for mark in ",>" if (place := text.find(mark)) >= 0], default=len(text))
    return text[:end], text[end:]
