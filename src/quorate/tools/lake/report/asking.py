"""Parts that all sections of the page share: the period, and how rows become pictures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quorate.pipeline.questions.moments import Period
from quorate.pipeline.questions.spans import Unit
from quorate.pipeline.tables.declaration import Column
from quorate.pipeline.tables.lake import Lake
from quorate.tools.lake.report import plots
from quorate.tools.lake.report.contents import Figure, Table

ROWS: Final = 15
"""The rows of a table."""
BARS: Final = 5000
"""The bars of a picture of states, and the points of one of single values. The longest are drawn."""
_STEPS: Final = {
    Unit.MINUTE: timedelta(minutes=1),
    Unit.HOUR: timedelta(hours=1),
    Unit.DAY: timedelta(days=1),
    Unit.WEEK: timedelta(weeks=1),
}

Row: TypeAlias = dict[str, Any]


class Asking:
    """A period of a cluster, and the figures that the sections have found."""

    def __init__(self, lake: Lake, cluster: str, period: Period, unit: Unit, min_isr: int) -> None:
        self.of = (lake, cluster, period)
        self.when = (period.begin, period.end)
        self.unit = unit
        self.min_isr = min_isr
        self.figures: list[Figure] = []

    def figure(self, name: str, value: Any, note: str = "", alarming: bool = False) -> None:
        """Adds a figure to the top of the page."""
        self.figures.append(Figure(name, f"{value:,}" if isinstance(value, int) else value, note, alarming))

    def line(self, label: str, unit: str, rows: Sequence[Row], names: dict[str, str]) -> str:
        """A picture of columns over time. `names` has the name of each line and its column."""
        series = {name: [float(row[column]) for row in rows] for name, column in names.items()}
        return plots.lines(label, unit, [row["time"] for row in rows], series)

    def bars(self, label: str, rows: Sequence[Row], names: dict[str, str], below: str | None = None) -> str:
        """The same as bars, without those that are always 0."""
        series = {name: [float(row[column]) for row in rows] for name, column in names.items()}
        series = {name: values for name, values in series.items() if any(values)}
        steps = ([row["time"] for row in rows], _STEPS[self.unit])
        return plots.bars(label, "changes", self.when, steps, series, below)

    def table(
        self, caption: str, rows: DataFrame, columns: Sequence[Column], order: Sequence[str], command: str
    ) -> Table:
        """The first rows in an order, in which `-` is for descending, with null first."""
        shown = [column for column in columns if not column.detail]
        by = [f.desc_nulls_first(name[1:]) if name[0] == "-" else f.asc(name) for name in order]
        found = rows_of(rows.orderBy(*by).select(*[column.name for column in shown]).limit(ROWS + 1))
        return Table(caption, shown, found[:ROWS], command, len(found) <= ROWS)


def rows_of(frame: DataFrame) -> list[Row]:
    """The rows as dictionaries, with times in UTC. Their number must have a bound."""
    found = [row.asDict(recursive=True) for row in frame.collect()]
    return [
        {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in found
    ]


def total(rows: Sequence[Row], name: str) -> int:
    """The sum of a column."""
    return sum([row[name] for row in rows])
