"""The sections about who changed what."""

from __future__ import annotations

from pyspark.sql import functions as f

from quorate.pipeline.questions import changes, unchanged
from quorate.pipeline.questions.moments import Period
from quorate.tools.lake.report.asking import Asking, rows_of
from quorate.tools.lake.report.contents import Section


def changes_section(asking: Asking, title: str) -> Section:
    """Shows how many records each author wrote, and in which changes."""
    by_author = changes.authors(*asking.of)
    table = asking.table(
        "The most records first", by_author, changes.AUTHORS, ["-records", "record"], "changes --total"
    )
    if not table.rows:
        return Section(title, "Nobody changed anything in this period.")
    sums = rows_of(
        by_author.agg(
            f.sum("records").alias("all"),
            f.sum(f.when(f.col("principal").isNotNull(), f.col("records"))).alias("known"),
        )
    )[0]
    return Section(
        title,
        f"{sums['all']:,} records changed something. Of {sums['known'] or 0:,} the log says who caused them.",
        tables=[table],
    )


def unchanged_section(asking: Asking, title: str) -> Section:
    """Topics that were not changed for the longest time."""
    lake, cluster, period = asking.of
    end = Period(period.last, period.last, period.end, period.end)
    table = asking.table(
        "Unchanged for the longest time", unchanged.unchanged(lake, cluster, end), unchanged.COLUMNS,
        ["changed_time", "topic"], "unchanged --from OFFSET|TIME",
    )  # fmt: skip
    if not table.rows:
        return Section(title, "There was no topic at the end of this period.")
    days = table.rows[0]["unchanged_days"]
    return Section(
        title,
        f"The longest: {table.rows[0]['topic']}, for {days:.1f} days at the end of the period.",
        tables=[table],
    )
