"""The partitions and brokers of a cluster as the input of a plan, from the tables of a lake.

    cluster = planned_cluster(Lake(spark, "/lake"), "production")
    plan = make_plan(cluster, Request(balance=True))

The metadata of a cluster has no bytes: a caller who has those of the log directories gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import functions as f

from quorate.pipeline.questions.moments import Moment, offset_of
from quorate.pipeline.questions.state import state_at
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.events import EVENTS
from quorate.pipeline.tables.lake import Lake, LakeError
from quorate.planner.cluster import Broker, Cluster, ClusterBuilder
from quorate.planner.sizes import ReplicaSizes

_ACTIVE: Final = (
    "NOT fenced AND (cordoned_log_dirs IS NULL OR size(array_except(log_dirs, cordoned_log_dirs)) > 0)"
)
"""Whether a broker may get replicas, as for a plan of a running cluster."""


def planned_offset(lake: Lake, cluster: str, at: Moment = None) -> int:
    """The offset of a moment, by default the last up to which the tables of a plan are complete.

    Raises LakeError if the lake does not have it.
    """
    return offset_of(lake, cluster, at, ENTITIES["partitions"], ENTITIES["brokers"])


def planned_cluster(
    lake: Lake,
    cluster: str,
    at: Moment = None,
    *,
    sizes: ReplicaSizes | None = None,
    capacities: Mapping[int, int | None] | None = None,
) -> Cluster:
    """The cluster at an offset or time, by default at the end of the lake.

    `capacities` are the bytes that the replicas of each broker may have together. Raises LakeError, also if
    partitions were being reassigned: as in a running cluster, their replicas were about to change.
    """
    offset = planned_offset(lake, cluster, at)
    state = state_at(lake, cluster, ENTITIES["partitions"], offset)
    moving = state.where("size(adding_replicas) > 0 OR size(removing_replicas) > 0")
    count, first = moving.agg(f.count("*"), f.min(f.struct("topic", "partition"))).collect()[0]
    if count:
        raise LakeError(
            f"partitions in a reassignment at offset {offset} of cluster {cluster}: {count}, among them "
            f"{first['topic']}-{first['partition']}. Choose an offset or time before or after it."
        )
    room, held = capacities or {}, sizes or ReplicaSizes()
    brokers = state_at(lake, cluster, ENTITIES["brokers"], offset)
    builder = ClusterBuilder(
        [
            Broker(row["broker_id"], row["rack"], row["active"], room.get(row["broker_id"]))
            for row in brokers.selectExpr("broker_id", "rack", f"{_ACTIVE} AS active").collect()
        ]
    )
    partitions = state.select("topic", "partition", "replicas", "leader")
    for batch in partitions.toArrow().to_batches():  # columns, without an object for each row
        columns = [column.to_pylist() for column in batch.columns]
        for topic, number, replicas, leader in zip(*columns, strict=True):
            builder.add(topic, number, replicas, leader, held.of(topic, number, leader) or 0)
    return builder.build()


def cluster_id_of(lake: Lake, cluster: str) -> str | None:
    """The id of a cluster in the lake, if what was read had it."""
    events = lake.read(EVENTS, cluster).where("cluster_id IS NOT NULL")
    found: str | None = events.agg(f.max_by("cluster_id", "offset")).collect()[0][0]
    return found
