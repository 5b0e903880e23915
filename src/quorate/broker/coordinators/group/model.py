"""The values of the group coordinator: the clients of requests, the records of `__consumer_offsets`, and
the state of one of its partitions.

The state is a value with shared structure. The runtime keeps the state before each step, and one for
each batch that is not committed yet.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import NamedTuple

from immutables import Map

from quorate.broker.coordinators.group.classic.classic_group import (
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
)
from quorate.dataclass import dataclass
from quorate.protocol.uuids import ZERO_UUID


@dataclass(frozen=True, slots=True)
class Caller:
    """The client of a request. `fresh_id` is a random UUID for the id of a new member."""

    api_version: int
    client_id: str = ""
    client_host: str = ""
    fresh_id: str = ""


class OffsetAndMetadata(NamedTuple):
    """A committed offset. `expire_timestamp_ms` is set by requests of versions 2 to 4 that give a retention
    time. `record_offset` is the offset of its record in the log."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None
    topic_id: bytes = ZERO_UUID
    record_offset: int = -1


# --- records of __consumer_offsets ---------------------------------------------------------------


class OffsetRecord(NamedTuple):
    """A committed offset. None deletes it."""

    group_id: str
    topic: str
    partition: int
    value: OffsetAndMetadata | None


class OffsetTombstone(NamedTuple):
    """Deletes a committed offset, whose key is encoded. It is not replayed: its step changes the state."""

    key: bytes


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member in the record of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A classic group in its record: one generation with its assignment."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The state of a classic group. None deletes the group."""

    group_id: str
    value: StoredGroup | None


class UnsupportedGroupType(Enum):
    """Types of groups that this coordinator keeps but does not serve. The values are their names in
    ListGroups."""

    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class UnsupportedGroupRecord:
    """A record of a group of an unsupported type, kept unchanged. `member_id` is set if the record
    declares a member."""

    group_id: str
    group_type: UnsupportedGroupType
    record_type: int
    key: bytes
    value: bytes | None
    member_id: str | None = None


Record = OffsetRecord | OffsetTombstone | GroupRecord | UnsupportedGroupRecord


@dataclass(frozen=True, slots=True)
class UnsupportedGroup:
    """A group of an unsupported type (KIP-848, KIP-932, KIP-1071). Only the keys of its records, with
    their types, and its members are known."""

    group_id: str
    group_type: UnsupportedGroupType
    keys: Map[bytes, int] = field(default_factory=Map)
    members: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def state(self) -> str:
        """The state in ListGroups."""
        return "Empty" if self.is_empty else "Stable"


PartitionKey = tuple[str, int]
"""(topic, partition)"""


class ShardState(NamedTuple):
    """The state of one partition of `__consumer_offsets`. It is a value, but the classic groups in it are
    mutable, because their membership is in memory only."""

    groups: Map[str, ClassicGroup | UnsupportedGroup] = Map()
    offsets: Map[str, Map[PartitionKey, OffsetAndMetadata]] = Map()
    pending: Map[int, Map[tuple[str, str, int], OffsetAndMetadata]] = Map()
    """Offsets of open transactions, by producer id, then by (group, topic, partition)."""

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has an offset for this partition."""
        key = (group_id, topic, partition)
        return any(key in entries for entries in self.pending.values())

    def pending_partitions(self, group_id: str) -> list[PartitionKey]:
        """The partitions of a group for which open transactions have offsets."""
        found = {
            (topic, partition)
            for entries in self.pending.values()
            for group, topic, partition in entries
            if group == group_id
        }
        return sorted(found)


def offsets_differ(group_id: str, state: ShardState, other: ShardState) -> bool:
    """Whether the offsets of a group may differ in two states."""
    if state is other:
        return False
    return (
        (group_id in state.groups) != (group_id in other.groups)
        or state.offsets.get(group_id) != other.offsets.get(group_id)
        or state.pending_partitions(group_id) != other.pending_partitions(group_id)
    )


@dataclass(slots=True)
class GroupCounts:
    """What the coordinator of this broker has done since its start (`GroupCoordinatorMetrics` in
    Kafka). As there, offsets count when their records are written."""

    offset_commits: int = 0
    offset_deletions: int = 0
    offset_expirations: int = 0
    completed_rebalances: int = 0


@dataclass(slots=True, eq=False)
class StateStore:
    """Holds the newest state of a shard. The managers of the shard share it."""

    state: ShardState = field(default_factory=ShardState)
    counts: GroupCounts = field(default_factory=GroupCounts)
    """The counts of all shards of the broker."""

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """The classic group of this id, or None if it does not exist or has another type."""
        group = self.state.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def put_group(self, group: ClassicGroup) -> None:
        """Adds or replaces a group."""
        self.state = self.state._replace(groups=self.state.groups.set(group.group_id, group))


def group_record(group: ClassicGroup, assignment: dict[str, bytes]) -> GroupRecord:
    """The record of a group's current generation. Raises KeyError for a member without assignment."""
    members = tuple(
        StoredMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name or ""),
            assignment=assignment[member.member_id],
        )
        for member in group.members.values()
    )
    return GroupRecord(
        group.group_id,
        StoredGroup(
            protocol_type=group.protocol_type or "",
            generation=group.generation_id,
            protocol=group.protocol_name,
            leader=group.leader_id,
            state_timestamp_ms=-1 if group.state_timestamp_ms is None else group.state_timestamp_ms,
            members=members,
        ),
    )


def empty_group_record(group: ClassicGroup) -> GroupRecord:
    """The record of a new group, before its first generation."""
    timestamp = -1 if group.state_timestamp_ms is None else group.state_timestamp_ms
    return GroupRecord(group.group_id, StoredGroup("", 0, None, None, timestamp))


def group_from_record(group_id: str, value: StoredGroup) -> ClassicGroup:
    """The group of a record: Stable with the members of its generation, or Empty."""
    group = ClassicGroup(
        group_id,
        state=ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY,
        state_timestamp_ms=None if value.state_timestamp_ms == -1 else value.state_timestamp_ms,
        generation_id=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader,
    )
    for stored in value.members:
        group.add(
            ClassicGroupMember(
                member_id=stored.member_id,
                instance_id=stored.instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=stored.session_timeout_ms
                if stored.rebalance_timeout_ms == -1
                else stored.rebalance_timeout_ms,
                session_timeout_ms=stored.session_timeout_ms,
                protocol_type=value.protocol_type,
                protocols=((value.protocol or "", stored.subscription),),
                assignment=stored.assignment,
            )
        )
    group.subscribed_topics = group.compute_subscribed_topics()
    return group
