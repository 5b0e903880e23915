"""Prints the rows of an answer as a table or as JSON, without holding all of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from quorate.tools.command_line import printable

_MEASURED = 1000
"""The rows that decide how wide the columns are."""


def json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A JSON object for each row, with times in ISO 8601."""
    for row in rows:
        yield json.dumps(row, default=_time, ensure_ascii=False)


def table_lines(names: Sequence[str], rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A line with the names of the columns and one for each row. "-" stands for null."""
    remaining = iter(rows)
    first = [[cell(row[name]) for name in names] for row in itertools.islice(remaining, _MEASURED)]
    heading = [name.replace("_", " ").upper() for name in names]
    widths = [max(map(len, column)) for column in zip(heading, *first, strict=True)]
    others = ([cell(row[name]) for name in names] for row in remaining)
    for cells in itertools.chain([heading], first, others):
        yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _time(value: object) -> str:
    """A time of Spark, which is local and has no zone, in UTC."""
    assert isinstance(value, datetime)
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cell(value: object) -> str:
    """A value in a table. Names and values may contain any character."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3f}".rstrip("0").rstrip(".")
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
        case list():
            return ",".join([cell(item) for item in value]) or "-"
        case dict():
            return " ".join([f"{name}={cell(item)}" for name, item in value.items()])
        case _:
            return printable(str(value)) or "''"
