"""What the filters of a query say about offsets, times and types, so that less is read.

Spark evaluates all filters again, so
that bounds may be wider than a filter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from quorate.pipeline.datasource.bounds import Bounds
from quorate.pipeline.datasource.options import Options


def push_filters(options: Options, filters: Iterable[Filter]) -> Options:
    """The options with the narrower bounds of these filters, all of which hold for the rows asked for."""
    for found in filters:
        match found:
            case EqualTo(("type",), str() as name):
                options = _with_types(options, {name})
            case In(("type",), names):
                options = _with_types(options, {name for name in names if isinstance(name, str)})
            case IsNull(("snapshot",)):
                options = replace(options, snapshots="none")
            case IsNotNull(("snapshot",)):
                options = replace(options, log=False)
            case EqualTo(("timestamp",), datetime() as value):
                options = replace(options, bounds=_times(_times(options.bounds, value, -1), value, 1))
            case GreaterThan(("timestamp",), value) | GreaterThanOrEqual(("timestamp",), value):
                options = replace(options, bounds=_times(options.bounds, value, -1))
            case LessThan(("timestamp",), value) | LessThanOrEqual(("timestamp",), value):
                options = replace(options, bounds=_times(options.bounds, value, 1))
            case _:
                options = replace(
                    options,
                    bounds=_offsets(options.bounds, found),
                    snapshot_bounds=_offsets(options.snapshot_bounds, found),
                )
    return options


def _with_types(options: Options, names: set[str]) -> Options:
    types = options.selection.types
    chosen = frozenset(names) if types is None else types & names
    return replace(options, selection=replace(options.selection, types=chosen))


def _offsets(bounds: Bounds, found: Filter) -> Bounds:
    first, end = bounds.first_offset, bounds.end_offset
    match found:
        case EqualTo(("offset",), int() as value):
            first, end = max(first, value), _least(end, value + 1)
        case GreaterThan(("offset",), int() as value):
            first = max(first, value + 1)
        case GreaterThanOrEqual(("offset",), int() as value):
            first = max(first, value)
        case LessThan(("offset",), int() as value):
            end = _least(end, value)
        case LessThanOrEqual(("offset",), int() as value):
            end = _least(end, value + 1)
    return bounds._replace(first_offset=first, end_offset=end)


def _least(end: int | None, value: int) -> int:
    return max(0, value if end is None else min(end, value))


def _times(bounds: Bounds, value: Any, side: int) -> Bounds:
    """The bounds with a time as their first (side -1) or last (side 1) time, to the millisecond around it."""
    if not isinstance(value, datetime):
        return bounds
    moment = value.astimezone(UTC) if value.tzinfo is None else value
    milliseconds = int(moment.timestamp() // 0.001)
    first, last = bounds.first_time_ms, bounds.last_time_ms
    if side < 0:
        return bounds._replace(
            first_time_ms=milliseconds - 1 if first is None else max(first, milliseconds - 1)
        )
    return bounds._replace(last_time_ms=milliseconds + 1 if last is None else min(last, milliseconds + 1))
