"""The states of reassignments and of moves between directories, and their texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from quorate.admin.client import AdminClient
from quorate.admin.types import (
    Reassignment,
    ReplicaLogDirInfo,
    TopicPartition,
    TopicPartitionReplica,
)
from quorate.dataclass import dataclass


@dataclass(slots=True, frozen=True)
class PartitionState:
    """The replicas of a partition, those that were asked for, and whether no reassignment is in progress."""

    current: tuple[int, ...]
    target: tuple[int, ...]
    done: bool

    def text(self, tp: TopicPartition) -> str:
        if not self.done:
            return f"Reassignment of partition {tp} is still in progress."
        if self.current == self.target:
            return f"Reassignment of partition {tp} is completed."
        return (
            f"There is no active reassignment of partition {tp}, but replica set is "
            f"{joined(self.current)} rather than {joined(self.target)}."
        )


@dataclass(slots=True, frozen=True)
class MoveState:
    """The directories of a replica, and the one that was asked for."""

    found: ReplicaLogDirInfo
    target: str

    @property
    def active(self) -> bool:
        return self.found.current_path is not None and self.found.future_path is not None

    @property
    def done(self) -> bool:
        return self.found.current_path is not None and self.found.future_path is None

    def text(self, replica: TopicPartitionReplica) -> str:
        tp = TopicPartition(replica.topic, replica.partition)
        current, future = self.found.current_path, self.found.future_path
        if current is None:
            return (
                f"Partition {tp} is not found in any live log dir on broker {replica.broker_id}. There is "
                "likely an offline log directory on the broker."
            )
        if future is None and current == self.target:
            return f"Reassignment of replica {replica} completed successfully."
        if future is None:
            return (
                f"Partition {tp} on broker {replica.broker_id} is not being moved from log dir {current} to "
                f"{self.target}."
            )
        if future == self.target:
            return f"Reassignment of replica {replica} is still in progress."
        return (
            f"Partition {tp} on broker {replica.broker_id} is being moved to log dir {future} instead of "
            f"{self.target}."
        )


def joined(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


def by_broker(replica: TopicPartitionReplica) -> tuple[int, str, int]:
    """The order in which replicas are printed."""
    return replica.broker_id, replica.topic, replica.partition


async def partition_states(
    admin: AdminClient,
    targets: Iterable[tuple[TopicPartition, Sequence[int]]],
    ongoing: Mapping[TopicPartition, Reassignment],
) -> dict[TopicPartition, PartitionState]:
    """Returns the state of each partition. Partitions that do not exist have no replicas."""
    wanted = {tp: tuple(replicas) for tp, replicas in targets}
    topics = {tp.topic for tp in wanted if tp not in ongoing}
    if topics:
        topics &= {listing.name for listing in await admin.list_topics()}
    described = await admin.describe_topics(sorted(topics)) if topics else {}
    found = {}
    for tp, target in wanted.items():
        if tp in ongoing:
            found[tp] = PartitionState(ongoing[tp].replicas, target, done=False)
            continue
        partitions = described[tp.topic].partitions if tp.topic in described else ()
        current = next((p.replicas for p in partitions if p.partition == tp.partition), ())
        found[tp] = PartitionState(current, target, done=True)
    return found


async def move_states(
    admin: AdminClient, targets: Mapping[TopicPartitionReplica, str]
) -> dict[TopicPartitionReplica, MoveState]:
    """Returns the state of each move between directories."""
    found = await admin.describe_replica_log_dirs(targets)
    return {replica: MoveState(found[replica], target) for replica, target in targets.items()}
