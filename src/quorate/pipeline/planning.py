"""The partitions and brokers of a cluster as the input of a plan, from the tables of a lake.

    cluster = planned_cluster(Lake(spark, "/lake"), "production")
    plan = make_plan(cluster, Request(balance=True))

The metadata of a cluster has no bytes: a caller who has those of the log directories gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorate.pipeline.questions.moments import Moment, offset_of
from quorate.pipeline.questions.state import state_at
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.lake import Lake
from quorate.planner.cluster import Broker, Cluster, ClusterBuilder

_ACTIVE: Final = (
    "NOT fenced AND (cordoned_log_dirs IS NULL OR size(array_except(log_dirs, cordoned_log_dirs)) > 0)"
)
"""Whether a broker may get replicas, as for a plan of a running cluster."""


def planned_cluster(
    lake: Lake,
    cluster: str,
    at: Moment = None,
    *,
    sizes: Mapping[tuple[str, int], int] | None = None,
    capacities: Mapping[int, int | None] | None = None,
) -> Cluster:
    """The cluster at an offset or time, by default at the end of the lake.

    `sizes` has the bytes of one replica by topic and partition, and `capacities` the bytes that the replicas of a
    broker may have together. Raises LakeError.
    """
    partitions, brokers = ENTITIES["partitions"], ENTITIES["brokers"]
    offset = min([offset_of(lake, cluster, at, entity) for entity in (partitions, brokers)])
    room = capacities or {}
    found = state_at(lake, cluster, brokers, offset)
    builder = ClusterBuilder(
        [
            Broker(row["broker_id"], row["rack"], row["active"], room.get(row["broker_id"]))
            for row in found.selectExpr("broker_id", "rack", f"{_ACTIVE} AS active").collect()
        ]
    )
    held = sizes or {}
    state = state_at(lake, cluster, partitions, offset).select("topic", "partition", "replicas", "leader")
    for batch in state.toArrow().to_batches():  # columns, without an object for each row
        columns = [column.to_pylist() for column in batch.columns]
        for topic, number, replicas, leader in zip(*columns, strict=True):
            builder.add(topic, number, replicas, leader, held.get((topic, number), 0))
    return builder.build()
