"""Keeps a lake small and fast: joins small files, deletes files that no table refers to, and
expires events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quorate.dataclass import dataclass
from quorate.pipeline.history.replay import history_schema
from quorate.pipeline.spark.delta import RETAIN_HOURS
from quorate.pipeline.storage.commits import Transaction
from quorate.pipeline.storage.data_files import DataFile, Place, join_files
from quorate.pipeline.storage.jobs import each
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.events import EVENT_SCHEMA, EVENTS, QUORUM
from quorate.pipeline.tables.lake import Lake, LakeError, Report, conflicts, statistics
from quorate.pipeline.tables.schema import known_schemas
from quorate.pipeline.tables.session_settings import settings
from quorate.pipeline.tables.update import catch_up

SMALL_FILE_BYTES: Final = 128 << 20
"""Files below this size are joined."""

_IS_ENDED: Final = "coalesce(get_json_object(stats, '$.nullCount.valid_to_offset'), '1') = '0'"
"""Whether a file has states that have ended only. They are not joined with others, which later runs
replace."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a table."""

    table: str
    count: int
    size_bytes: int
    small: int
    """The files that would be joined with others."""


def files(lake: Lake, others: Iterable[str] = ()) -> Iterator[Files]:
    """The files of each table that exists, of those of metadata and of others."""
    for table in (EVENTS, *ENTITIES, *others):
        if not lake.exists(table):
            continue
        found = DataFrame(lake.snapshot(table).allFiles().toDF(), lake.spark)
        partitions = (
            found.groupBy(f.col("partitionValues.cluster"), f.expr(_IS_ENDED))
            .agg(
                f.count("*").alias("count"),
                f.sum("size").alias("bytes"),
                f.count(f.when(f.col("size") < SMALL_FILE_BYTES, 1)).alias("small"),
            )
            .collect()
        )
        yield Files(
            table,
            sum([row["count"] for row in partitions]),
            sum([row["bytes"] for row in partitions]),
            sum([row["small"] for row in partitions if row["small"] > 1]),
        )


def _join(lake: Lake, table: str) -> None:
    """Joins the small files of a table of metadata: those of current states, and those of states
    that have ended. Raises LakeError if a newer release has written the table."""
    schema = EVENT_SCHEMA if table == EVENTS else history_schema(ENTITIES[table])
    order = statistics(table)[0]
    for cluster in known_schemas(lake, table):
        transaction = Transaction(lake.spark, lake.path(table))
        place = lake.place(table, cluster)
        groups: list[list[DataFile]] = []
        files = [file for file in transaction.files(cluster) if file.size_bytes < SMALL_FILE_BYTES]
        for ended in (True, False):
            chosen = [file for file in files if (file.nulls("valid_to_offset") == 0) is ended]
            chosen.sort(key=lambda file: file.least(order) or 0)
            groups += [group for group in _grouped(chosen) if len(group) > 1]
        if groups:
            paths = [[file.path for file in group] for group in groups]
            added = each(lake.spark, paths, partial(_joined, place, schema))
            removed = [file for group in groups for file in group]
            transaction.commit([file for file in added if file is not None], removed, "small files joined")


def _joined(place: Place, schema: pa.Schema, paths: list[str]) -> DataFile | None:
    return join_files(place, paths, schema)


def _grouped(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Files that follow one another, as many as make one that is not small."""
    groups: list[list[DataFile]] = [[]]
    size = 0
    for file in files:
        if size + file.size_bytes > SMALL_FILE_BYTES and groups[-1]:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size_bytes
    return groups


def compact(lake: Lake, table: str, retain_hours: float) -> None:
    """Joins the small files of a table, and deletes those that it has not referred to for some time.

    Raises LakeConflictError if a run rewrites the same files, and LakeError if a newer release has
    written the table.
    """
    place = f"delta.`{lake.path(table)}`"
    if table in (EVENTS, *ENTITIES):
        with conflicts():
            _join(lake, table)
    else:
        with lake.committing(table):
            lake.spark.sql(f"OPTIMIZE {place}").collect()
    wanted = {
        # Delta refuses shorter times unless it is asked to trust the caller.
        "spark.databricks.delta.retentionDurationCheck.enabled": str(retain_hours >= RETAIN_HOURS).lower(),
        # Otherwise, VACUUM makes two commits that say so, without the lock of commits in a local directory.
        "spark.databricks.delta.vacuum.logging.enabled": "false",
        # Delta lists the files in as many tasks, by default 10,000.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(
            lake.spark.sparkContext.defaultParallelism
        ),
    }
    with settings(lake.spark, wanted):
        lake.spark.sql(f"VACUUM {place} RETAIN {retain_hours:f} HOURS").collect()


@dataclass(frozen=True, slots=True)
class Expiry:
    """The events of a cluster that are older than a time."""

    cluster: str
    offset: int
    """The first offset that is kept."""
    records: int
    """The events before it."""


def older_than(lake: Lake, cluster: str, time: datetime) -> Expiry:
    """The events before the first one that is not older than a time.

    The last event is always kept, because a run compares it with the log. Raises LakeError if the
    lake has no events of the cluster.
    """
    events = lake.read(EVENTS, cluster).where(~f.col("type").isin(*QUORUM))
    end = lake.applied(EVENTS, cluster)
    if end == 0:
        raise LakeError(f"{lake.folder} has no records of cluster {cluster}")
    young = events.where((f.col("timestamp") >= f.lit(time)) & f.col("snapshot").isNull())
    first = young.agg(f.min("offset")).collect()[0][0]
    offset = end - 1 if first is None else min(first, end - 1)
    return Expiry(cluster, offset, events.where(f.col("offset") < offset).count())


def expire(lake: Lake, expiry: Expiry, report: Report) -> None:
    """Removes these events.

    All other tables are brought up to date before, and keep their rows: the state at any offset
    stays what it was.
    """
    catch_up(lake, expiry.cluster, report, every=True)
    lake.expire(expiry.cluster, expiry.offset)
