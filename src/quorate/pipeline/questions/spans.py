"""Parts that questions about time share: units, seconds, and states that are joined to longer ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from quorate.pipeline.questions.moments import Period


class Unit(StrEnum):
    """The length of the steps of a series."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    TOTAL = "total"
    """One step, as long as the period."""

    def begin(self, period: Period, time: Column) -> Column:
        """The begin of the step in which a time is."""
        return f.lit(period.begin) if self is Unit.TOTAL else f.date_trunc(self.value, time)


_FINEST = ((timedelta(hours=3), Unit.MINUTE), (timedelta(days=5), Unit.HOUR), (timedelta(days=400), Unit.DAY))
"""The unit that gives a series of at most some hundred steps for periods up to a length."""


def unit_of(period: Period) -> Unit:
    """The unit for a picture of a period."""
    length = period.end - period.begin
    return next((unit for longest, unit in _FINEST if length <= longest), Unit.WEEK)


def seconds(begin: Column, end: Column) -> Column:
    """The seconds between two times, or null. Time may go back when the active controller changes: then 0."""
    length = f.unix_millis(end) - f.unix_millis(begin)
    return f.when(length < 0, f.lit(0)).otherwise(length) / 1000


def steps_between(period: Period, unit: Unit, begin: Column, end: Column) -> Column:
    """The begins of all steps between two times, as an array."""
    if unit is Unit.TOTAL:
        return f.array(f.lit(period.begin))
    return f.sequence(unit.begin(period, begin), f.greatest(begin, end), f.expr(f"interval 1 {unit.value}"))


def timeline(spark: SparkSession, period: Period, unit: Unit) -> DataFrame:
    """The steps of a period: their begin `time`, and how many `seconds` of them are in the period."""
    every = steps_between(period, unit, f.lit(period.begin), f.lit(period.end))
    return spark.range(1).select(f.explode(every).alias("time")).withColumn("seconds", _covered(period, unit))


def _covered(period: Period, unit: Unit) -> Column:
    begin, end = f.lit(period.begin), f.lit(period.end)
    return seconds(f.greatest(f.col("time"), begin), f.least(step_end(unit, f.col("time"), end), end))


def step_end(unit: Unit, time: Column, end: Column) -> Column:
    """The end of the step that begins at a time; of the only step, the end of the period."""
    return end if unit is Unit.TOTAL else time + f.expr(f"interval 1 {unit.value}")


def stepped(rows: DataFrame, keys: Sequence[str], period: Period, unit: Unit) -> DataFrame:
    """States of a table with the steps in which they begin and end, `begins` and `ends`.

    The latter is null for a state that does not end in the period.

    Time may go back when the active controller changes. A state then does not begin before the one that it
    follows, so that there is one state of each entity in every step.
    """
    until_now = (
        Window.partitionBy(*keys).orderBy("valid_from_offset").rowsBetween(Window.unboundedPreceding, 0)
    )
    begins = unit.begin(period, period.clip("valid_from_offset", "valid_from_time"))
    ends = unit.begin(period, period.clip("valid_to_offset", "valid_to_time"))
    found = rows.withColumn("begins", f.max(begins).over(until_now))
    return found.withColumn("ends", f.when(~period.ends_later(), f.greatest("begins", ends)))


def spans(
    rows: DataFrame, keys: Sequence[str], values: Sequence[str] = (), more: Sequence[Column] = ()
) -> DataFrame:
    """Joins states of a table that follow each other, and agree in some columns, to spans.

    The result has the keys, the values, the results of the aggregate functions `more`, and `from_offset`,
    `from_time`, `to_offset`, `to_time`, of which the last two are null for a span that has not ended.
    """
    order = Window.partitionBy(*keys).orderBy("valid_from_offset")
    value = f.struct(f.lit(0).alias("same"), *values)
    continues = f.lag("valid_to_offset").over(order).eqNullSafe(f.col("valid_from_offset"))
    same = continues & value.eqNullSafe(f.lag(value).over(order))
    found = rows.withColumn("begins", (~same).cast("int"))
    found = found.withColumn("span", f.sum("begins").over(order))
    return (
        found.groupBy(*keys, *values, "span")
        .agg(
            f.min("valid_from_offset").alias("from_offset"),
            f.min_by("valid_from_time", "valid_from_offset").alias("from_time"),
            f.max_by("valid_to_offset", "valid_from_offset").alias("to_offset"),
            f.max_by("valid_to_time", "valid_from_offset").alias("to_time"),
            *more,
        )
        .drop("span")
    )
