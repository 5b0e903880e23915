"""The contents of the page: figures first, then sections with pictures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from typing import Any

from quorate.dataclass import dataclass
from quorate.pipeline.questions.moments import Period
from quorate.pipeline.tables.declaration import Column
from quorate.tools.lake import output


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the figures at the top: its name, its value, and what else is to be known."""

    name: str
    value: str
    note: str = ""
    alarming: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the page."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    command: str
    """The command that prints all rows, if the table does not have all of them."""
    complete: bool = True


@dataclass(slots=True)
class Section:
    """A part of the page."""

    title: str
    summary: str
    """The answer in a sentence; of an empty section, that nothing happened."""
    pictures: list[tuple[str, str]] = field(default_factory=list)
    """Captions and SVG."""
    tables: list[Table] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Contents:
    """All that the page shows."""

    cluster: str
    period: Period
    figures: list[Figure]
    sections: list[Section]


def duration(seconds: float) -> str:
    """A length of time, in its two largest units."""
    if seconds < 60:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"
    left = round(seconds)
    parts = []
    for length, name in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2])


def text_of(column: Column, value: Any, *, days: bool = False) -> str:
    """A value of a table of the page. With `days`, a time is shown as its day."""
    if value is not None and (column.name.endswith("_s") or column.name == "seconds"):
        return duration(value)
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):{'%Y-%m-%d' if days else '%Y-%m-%d %H:%M:%S'}}"
    if isinstance(value, float):
        return f"{value:,.{1 if column.name.endswith('_days') else 3}f}"
    return output.cell(value)
