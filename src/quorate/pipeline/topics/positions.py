"""The table of positions: which offsets of a topic the lake has, and which ones it is about to have.

A batch is first planned, which this table records, then applied to the tables of records, then
confirmed here. A run that ends in between leaves a planned batch, of which the next run applies
what is missing. Delta's transactions make this happen once: each table keeps the number of the last
batch of each topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import functions as f

from quorate.dataclass import dataclass
from quorate.pipeline.tables.lake import Lake, LakeConflictError, literal

POSITIONS: Final = "topic_positions"

APPLICATION: Final = "quorate-topics/1"
"""What Delta's application ids begin with. The number is the version of the tables' schema."""

_SCHEMA: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("batch", pa.int64()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("lost", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Position:
    """How far a topic is in the lake."""

    topic: str
    topic_id: str
    batch: int = 0
    """The number of the last batch that was planned."""
    starts: Mapping[int, int] = field(default_factory=dict)
    """The offset after the last confirmed record of each partition."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """The end of the planned batch in each partition."""
    lost: Mapping[int, int] = field(default_factory=dict)
    """How many offsets of each partition were deleted before they were read, of the partitions that
    have some."""

    @property
    def pending(self) -> bool:
        """Whether a batch is planned and not confirmed."""
        return self.starts != self.ends

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        """The offsets of the planned batch, the end exclusive, of the partitions that have some."""
        return {p: (self.starts[p], end) for p, end in self.ends.items() if end > self.starts[p]}

    @property
    def offsets(self) -> int:
        """The number of offsets of the planned batch."""
        return sum([end - start for start, end in self.ranges.values()])

    def planned(self, ends: Mapping[int, int]) -> Position:
        """The position with the next batch."""
        return replace(self, batch=self.batch + 1, ends=dict(ends))

    def without(self, deleted: Mapping[int, int]) -> Position:
        """The position after the offsets that were deleted, which were those before these ones."""
        starts = {p: max(start, deleted.get(p, 0)) for p, start in self.starts.items()}
        lost = {p: self.lost.get(p, 0) + starts[p] - start for p, start in self.starts.items()}
        return replace(
            self,
            starts=starts,
            ends={p: max(starts[p], end) for p, end in self.ends.items()},
            lost={p: count for p, count in lost.items() if count},
        )

    def with_partitions(self, found: Mapping[int, int]) -> Position:
        """The position with new partitions, which begin at these offsets."""
        return replace(self, starts={**found, **self.starts}, ends={**found, **self.ends})

    def confirmed(self) -> Position:
        """The position after the planned batch."""
        return replace(self, starts=self.ends)

    def taken_back(self) -> Position:
        """The position without the planned batch."""
        return replace(self, ends=self.starts)


class Positions:
    """The positions of one cluster's topics, by their id."""

    def __init__(self, lake: Lake, cluster: str) -> None:
        self._lake = lake
        self._cluster = cluster
        self._application = f"{APPLICATION}/{cluster}"
        self._revision = 0
        self._version = -1
        """The version of the table, of which the revision counts the commits of this cluster."""
        self.known: dict[str, Position] = {}
        self.load()

    def load(self) -> None:
        """Reads the table."""
        self._version = self._lake.snapshot(POSITIONS).version()
        self._revision = self._lake.version(POSITIONS, self._application)
        self.known = {}
        if not self._lake.exists(POSITIONS):
            return
        table = self._lake.spark.read.format("delta").load(self._lake.path(POSITIONS))
        rows = table.where(f.col("cluster") == self._cluster).collect()
        counted = "lost" in table.columns  # earlier releases did not count
        starts: dict[str, dict[int, int]] = {}
        ends: dict[str, dict[int, int]] = {}
        lost: dict[str, dict[int, int]] = {}
        for row in rows:
            starts.setdefault(row["topic_id"], {})[row["partition"]] = row["start"]
            ends.setdefault(row["topic_id"], {})[row["partition"]] = row["end"]
            lost.setdefault(row["topic_id"], {})
            if counted and row["lost"]:
                lost[row["topic_id"]][row["partition"]] = row["lost"]
        self.known = {
            row["topic_id"]: Position(
                row["topic"],
                row["topic_id"],
                row["batch"],
                starts[row["topic_id"]],
                ends[row["topic_id"]],
                lost[row["topic_id"]],
            )
            for row in rows
        }

    def save(self, changed: Iterable[Position]) -> None:
        """Writes changed positions with all others in one commit. Raises LakeConflictError if another run has
        changed the table since it was read."""
        wanted = self.known | {position.topic_id: position for position in changed}
        rows = [
            {
                "cluster": self._cluster,
                "topic": position.topic,
                "topic_id": position.topic_id,
                "batch": position.batch,
                "partition": partition,
                "start": position.starts[partition],
                "end": end,
                "lost": position.lost.get(partition, 0),
            }
            for position in wanted.values()
            for partition, end in position.ends.items()
        ]
        table = self._lake.spark.createDataFrame(pa.Table.from_pylist(rows, _SCHEMA)).coalesce(1)
        writer = table.write.format("delta").partitionBy("cluster")
        if self._lake.exists(POSITIONS):
            condition = f"cluster = '{literal(self._cluster)}'"
            writer = writer.mode("overwrite").option("replaceWhere", condition).option("mergeSchema", "true")
        else:
            writer = writer.mode("append")
        writer = writer.option("txnAppId", self._application).option("txnVersion", self._revision + 1)
        mark = f"{self._cluster}: {uuid4()}"
        writer = writer.option("userMetadata", mark)
        with self._lake.committing(POSITIONS):
            writer.save(self._lake.path(POSITIONS))
        # Delta skips a commit with a revision that another run has committed already.
        if not self._has_commit(mark):
            raise LakeConflictError("another run has written to the lake meanwhile")
        self.known, self._revision = wanted, self._revision + 1

    def _has_commit(self, mark: str) -> bool:
        """Whether one of the commits that came since the last look has this mark."""
        snapshot = self._lake.snapshot(POSITIONS)
        before, self._version = self._version, snapshot.version()
        log = snapshot.deltaLog()
        folder, settings, store = log.logPath().toString(), log.newDeltaHadoopConf(), log.store()
        jvm = self._lake.spark._jvm
        assert jvm is not None
        path = jvm.org.apache.hadoop.fs.Path
        files = [f"{folder}/{version:020d}.json" for version in range(self._version, before, -1)]
        return any(mark in store.read(path(file), settings).mkString() for file in files)
