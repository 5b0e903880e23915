"""The values that flow through a group coordinator's core: configuration, callers, records, outcomes,
and the state of one offsets partition.

Knows nothing of tasks, sockets and files. The state is a value with shared structure: the driver keeps
the one before an append that fails, and one for each batch that is not committed yet. Reads answer from
the newest committed one, while writes work on the newest of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from immutables import Map

from quorate.broker.coordinators.classic_group import ClassicGroup, GroupState, Member, Token
from quorate.protocol.errors import ErrorCode
from quorate.protocol.uuids import ZERO_UUID

NO_PRODUCER_ID: Final = -1


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The broker's settings that the coordinator obeys, with Kafka's names and defaults."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * 60 * 1000
    """How long a new member's JoinGroup may stay parked; not configurable in Kafka either."""
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_partitions: int = 50
    offsets_compression: int = 0
    """Codec number of the batches in the offsets topic."""
    offsets_commit_timeout_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class Instant:
    """When a step happens: wall clock in milliseconds for what is stored, monotonic seconds for deadlines."""

    wall_ms: int
    now: float


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `fresh_id` is random text that a new member's id may end with."""

    api_version: int
    client_id: str = ""
    client_host: str = ""
    fresh_id: str = ""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """An offset that a group stored; `expire_timestamp_ms` only from requests (v2-4) that name a retention;
    `record_offset` is where it stands in the log.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None
    topic_id: bytes = ZERO_UUID
    record_offset: int = -1


# -- records of __consumer_offsets
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A committed offset; None deletes it."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class StoredMember:
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
    """A classic group as the log keeps it: one generation with its assignment."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A classic group's state; None deletes the group."""

    group_id: str
    value: StoredGroup | None


class ForeignType(Enum):
    """Kinds of groups that this coordinator keeps but does not serve; values are the names that
    ListGroups gives."""

    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class ForeignRecord:
    """A record of a group of another protocol, kept as it is. `member_id`: set on the record that says
    that a member exists.
    """

    group_id: str
    group_type: ForeignType
    record_type: int
    key: bytes
    value: bytes | None
    member_id: str | None = None


Record = OffsetRecord | GroupRecord | ForeignRecord


@dataclass(frozen=True, slots=True)
class ForeignGroup:
    """A group that another protocol's coordinator made (KIP-848, KIP-932, KIP-1071): its record keys
    with their type, and its members.
    """

    group_id: str
    group_type: ForeignType
    keys: Map[bytes, int] = field(default_factory=Map)
    members: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        return "Empty" if self.is_empty else "Stable"


PartitionKey = tuple[str, int]
"""(topic, partition)"""


@dataclass(frozen=True, slots=True)
class ShardState:
    """State of one partition of the offsets topic, a value. Classic groups in it are themselves
    mutable: their membership lives in memory only.
    """

    groups: Map[str, ClassicGroup | ForeignGroup] = field(default_factory=Map)
    offsets: Map[str, Map[PartitionKey, CommittedOffset]] = field(default_factory=Map)
    pending: Map[int, Map[tuple[str, str, int], CommittedOffset]] = field(default_factory=Map)
    """Offsets of open transactions, by producer id and (group, topic, partition)."""

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction holds an offset of this partition."""
        key = (group_id, topic, partition)
        return any(key in entries for entries in self.pending.values())

    def pending_partitions(self, group_id: str) -> list[PartitionKey]:
        """Partitions of the group of which open transactions hold offsets."""
        found = {
            (topic, partition)
            for entries in self.pending.values()
            for group, topic, partition in entries
            if group == group_id
        }
        return sorted(found)


After = Callable[[ErrorCode, Instant], "Outcome"]


@dataclass(slots=True)
class Outcome:
    """What a step wants done. Duties of the driver, in this order:

    1. Send `replies` (parked requests by their token, and the response).
    2. If `replay`, apply `records` with `Shard.replay`; append them as one batch. If that fails, put
       back the state from before the step.
    3. Call `after(NONE)` once the high watermark has passed the batch, or `after(error)` if it was not
       written or timed out, and carry out the outcome of that in turn. Without records, wait for all
       that was written before instead: the answer may tell of it.
    """

    records: list[Record] = field(default_factory=list)
    replies: list[tuple[Token, Any]] = field(default_factory=list)
    after: After | None = None
    replay: bool = True
    atomic: bool = True
    """Whether the records must stand in one batch; many tombstones need not."""


def stored_group(group: ClassicGroup, assignment: dict[str, bytes]) -> GroupRecord:
    """The record of a group's generation. Members without an entry in `assignment` are a KeyError."""
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


def empty_group(group: ClassicGroup) -> GroupRecord:
    """The record that makes a new group durable before it has a generation."""
    timestamp = -1 if group.state_timestamp_ms is None else group.state_timestamp_ms
    return GroupRecord(group.group_id, StoredGroup("", 0, None, None, timestamp))


def group_from_record(group_id: str, value: StoredGroup) -> ClassicGroup:
    """The group that a record tells of: Stable with the members of its generation, or Empty."""
    group = ClassicGroup(
        group_id,
        state=GroupState.STABLE if value.members else GroupState.EMPTY,
        state_timestamp_ms=None if value.state_timestamp_ms == -1 else value.state_timestamp_ms,
        generation_id=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader,
    )
    for stored in value.members:
        group.add(
            Member(
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
