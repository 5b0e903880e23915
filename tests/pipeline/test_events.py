"""The offset at which each record of the table `events` takes effect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quorate.metadata import records as r

from .conftest import ORDERS, change, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_records_of_transactions_take_effect_at_the_end_without_a_comparison_with_all_transactions(
    spark: SparkSession, tmp_path: Path
) -> None:
    from quorate.pipeline.lake_source import open_source
    from quorate.pipeline.tables.events import MARKER_COLUMNS, MARKERS, SOURCE_COLUMNS, to_events

    begin, end, abort = r.BeginTransactionRecord(), r.EndTransactionRecord(), r.AbortTransactionRecord()
    batches = [[change(ORDERS)] * 1500, [begin], [change(ORDERS)] * 3000, [end], [change(ORDERS)] * 3]
    batches += [[begin, change(ORDERS), change(ORDERS), abort, begin, change(ORDERS), end, change(ORDERS)]]
    write_log(tmp_path, 0, batches)
    source = open_source(str(tmp_path))
    extent = source.extent(0)
    rows = source.rows(spark, extent, SOURCE_COLUMNS)
    events = to_events(rows, "c", None, source.rows(spark, extent, MARKER_COLUMNS, ",".join(MARKERS)))
    expected: list[int | None] = [*range(1501), *[4501] * 3000, *range(4501, 4506)]
    expected += [None, None, 4508, 4509, 4511, 4511, 4512]
    found = events.select("offset", "effective_offset").collect()
    assert [row["effective_offset"] for row in sorted(found)] == expected
    plan = events._jdf.queryExecution().executedPlan().toString()
    assert "BroadcastHashJoin" in plan and "NestedLoop" not in plan
