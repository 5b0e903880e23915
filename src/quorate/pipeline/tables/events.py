"""The table `events`: every record of the log, typed, in the order of the log.

Its columns are those of the data source `quorate_metadata`, without `json`, and with these changes:

  cluster           the name of the cluster
  cluster_id        its id, if it is known
  effective_offset  the offset at which the record takes effect: its own, or that of the record which ends its
                    transaction; null if the transaction was aborted

It has no secrets: credentials are left out, and the values of passwords among the configurations are
`[hidden]`.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from quorate.config.broker_defs import BROKER_CONFIGS, DYNAMIC_BROKER_CONFIGS
from quorate.pipeline.datasource.columns import (
    ATTRIBUTION_COLUMNS,
    COMMITTED,
    ENTITY_COLUMNS,
    LOG_COLUMNS,
    TYPED_COLUMNS,
    select,
    struct_kind,
)

EVENTS: Final = "events"
EFFECTIVE: Final = "effective_offset"
BEGIN: Final = "BEGIN_TRANSACTION_RECORD"
END: Final = "END_TRANSACTION_RECORD"
ABORT: Final = "ABORT_TRANSACTION_RECORD"
MARKERS: Final = (BEGIN, END, ABORT)
"""The records that begin and end transactions."""
MARKER_COLUMNS: Final = "offset,type,snapshot"
"""The option `columns` of the data source with which they are read."""

_BUCKET: Final = 1024
"""Offsets in so many are near each other."""

QUORUM: Final = ("LEADER_CHANGE", "KRAFT_VOTERS")
"""The records of the quorum itself. They do not expire: there are few of them, and who the voters and the active
controller are at any time is in the last ones before it."""

_SECRETS: Final = frozenset({"salt", "stored_key", "server_key"})
_HIDDEN: Final = "[hidden]"
_PASSWORDS: Final = sorted(
    name for name, known in {**BROKER_CONFIGS, **DYNAMIC_BROKER_CONFIGS}.items() if known.sensitive
)
_IS_PASSWORD: Final = f"(^|[.])({'|'.join([re.escape(name) for name in _PASSWORDS])})$"
"""Names of configurations whose values are passwords, also those of one listener."""


def _source_columns() -> list[str]:
    found = [*LOG_COLUMNS, COMMITTED, *ENTITY_COLUMNS, *ATTRIBUTION_COLUMNS]
    for name, cls in TYPED_COLUMNS.items():
        fields = [known for known, _ in struct_kind(cls, cls).fields]
        found += [f"{name}.{known}" for known in fields if known not in _SECRETS]
    return found


SOURCE_COLUMNS: Final = ",".join(_source_columns())
"""The option `columns` of the data source with which the rows are read."""


def to_events(
    rows: DataFrame, cluster: str, cluster_id: str | None, markers: DataFrame | None = None
) -> DataFrame:
    """The rows of the data source as rows of this table. They must not begin or end inside of a transaction.
    `markers` are the offsets and types of the records that begin and end transactions, if there may be any."""
    hidden = f.col("key").rlike(_IS_PASSWORD) & (f.col("type") == "CONFIG_RECORD")
    found = rows.withColumns(
        {
            "cluster": f.lit(cluster),
            "cluster_id": f.lit(cluster_id).cast("string"),
            "value": f.when(hidden & f.col("value").isNotNull(), _HIDDEN).otherwise(f.col("value")),
            "config_record": f.when(
                hidden & f.col("config_record.value").isNotNull(),
                f.col("config_record").withField("value", f.lit(_HIDDEN)),
            ).otherwise(f.col("config_record")),
        }
    )
    found = found.withColumn(EFFECTIVE, f.col("offset")) if markers is None else _effective(found, markers)
    return found.select("cluster", "cluster_id", EFFECTIVE, *select(SOURCE_COLUMNS).columns)


def _effective(rows: DataFrame, markers: DataFrame) -> DataFrame:
    """Adds the offset at which each record takes effect. One task orders the markers of the transactions. Each record
    is compared with the few transactions that are near it, not with all."""
    order = Window.orderBy("offset")
    bucket = f.expr(f"offset div {_BUCKET}")
    spans = (
        markers.where(f.col("type").isin(*MARKERS) & f.col("snapshot").isNull())
        .select("offset", "type")
        .withColumns({"end": f.lead("offset").over(order), "ended_by": f.lead("type").over(order)})
        .where(f.col("type") == BEGIN)
        .select(f.col("offset").alias("begin"), "end", "ended_by")
        .withColumn("near", f.explode(f.expr(f"sequence(begin div {_BUCKET}, end div {_BUCKET})")))
    )
    inside = (
        (bucket == f.col("near"))
        & (f.col("offset") > f.col("begin"))
        & (f.col("offset") < f.col("end"))
        & ~f.col("control")
        & f.col("snapshot").isNull()
    )
    found = rows.join(f.broadcast(spans), inside, "left")
    effective = f.when(f.col("begin").isNull(), f.col("offset")).when(f.col("ended_by") == END, f.col("end"))
    return found.withColumn(EFFECTIVE, effective).drop("begin", "end", "ended_by", "near")
