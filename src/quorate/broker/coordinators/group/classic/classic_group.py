"""One classic group: its members, their votes for a protocol, and its state (`ClassicGroup` in Kafka).

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance ...
    PreparingRebalance without members -> Empty

This module has no timers, records or requests: `rebalance.py` and `group_metadata_manager.py` change the
group. A waiting JoinGroup or SyncGroup is a token, by which the runtime finds the request to answer.
KIP-62, KIP-134, KIP-345, KIP-394, KIP-814.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import field
from enum import Enum
from typing import Final

from quorate.broker.coordinators.result import Token
from quorate.dataclass import dataclass
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.primitives import text

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
UNKNOWN_MEMBER_ID: Final = ""


class ClassicGroupState(Enum):
    """The states of a group. The values are their names in responses."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_PREDECESSORS: Final[dict[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(ClassicGroupState),
}


@dataclass(slots=True, eq=False)
class ClassicGroupMember:
    """A member of a classic group. `protocols` are (name, metadata), in the member's order of preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        """Whether the member has a group instance id (KIP-345)."""
        return self.instance_id is not None

    @property
    def awaits_join(self) -> bool:
        """Whether a JoinGroup of the member waits for its response."""
        return self.join_token is not None

    @property
    def heartbeat_satisfied(self) -> bool:
        """Whether the member counts as alive without heartbeats, because its request waits here. A new
        member does not: its join may time out."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata(self, protocol: str) -> bytes:
        """The member's metadata for `protocol`. Raises KeyError if the member does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(f"member {self.member_id} does not support protocol {protocol}")

    def supports(self, protocol: str) -> bool:
        """Whether the member supports the protocol."""
        return any(name == protocol for name, _ in self.protocols)


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """A classic group. `protocol_type` is None for a simple group, which has committed offsets only.
    `state_timestamp_ms` is None if the group's record has an old version without it."""

    group_id: str
    state: ClassicGroupState = ClassicGroupState.EMPTY
    previous_state: ClassicGroupState = ClassicGroupState.DEAD
    state_timestamp_ms: int | None = None
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, ClassicGroupMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_join: set[str] = field(default_factory=set)
    pending_sync: set[str] = field(default_factory=set)
    subscribed_topics: frozenset[str] | None = None
    new_member_added: bool = False
    awaiting_join_count: int = 0
    storing_generation: int | None = None
    """The generation whose assignment is written but not committed yet."""
    _support: dict[str, int] = field(default_factory=dict)

    # --- state -------------------------------------------------------------------------------------

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        """Moves to `state`. Raises AssertionError for an illegal transition."""
        legal = self.state in LEGAL_PREDECESSORS[state]
        assert legal, f"group {self.group_id}: illegal transition {self.state.value} -> {state.value}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether the group may move to PreparingRebalance."""
        return self.state in LEGAL_PREDECESSORS[ClassicGroupState.PREPARING_REBALANCE]

    @property
    def is_simple(self) -> bool:
        """Whether the group has only committed offsets, and no members."""
        return self.protocol_type is None and self.state is ClassicGroupState.EMPTY and not self.pending_join

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the members have the metadata of Kafka consumers."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def all_members_joined(self) -> bool:
        """Whether all members have rejoined, and no new one has to join with its id."""
        return len(self.members) == self.awaiting_join_count and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        """Whether the member assigns partitions to all members."""
        return self.leader_id == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member is subscribed to `topic`. A consumer group whose metadata cannot be parsed counts
        as subscribed to every topic."""
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.uses_consumer_protocol

    # --- members -----------------------------------------------------------------------------------

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols may join: all current members must support one of them."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        if self.protocol_type != protocol_type:
            return False
        return any(self._support.get(name, 0) == len(self.members) for name in names)

    def add(self, member: ClassicGroupMember, token: Token | None = None) -> None:
        """Adds a member whose protocols were checked with `supports_protocols`. The first member sets the
        group's protocol type and is its leader."""
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, (
                f"static member {member.instance_id} added twice"
            )
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        member.join_token = token
        if token is not None:
            self.awaiting_join_count += 1
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Removes a member or a pending member. After the leader left, the oldest member is the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.awaits_join:
                self.awaiting_join_count -= 1
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)

    def update(
        self,
        member: ClassicGroupMember,
        protocols: tuple[tuple[str, bytes], ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        token: Token | None,
    ) -> None:
        """Updates a member with a JoinGroup, which then waits."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.awaiting_join_count += (token is not None) - member.awaits_join
        member.join_token = token

    def replace_static(
        self, instance_id: str, old_id: str, new_id: str
    ) -> tuple[ClassicGroupMember, Token | None, Token | None]:
        """Gives a static member a new id. Returns (new member, tokens of the old one's JoinGroup and
        SyncGroup), which must be answered with FENCED_INSTANCE_ID."""
        old = self.members.pop(old_id)
        join_token, sync_token = old.join_token, old.sync_token
        if join_token is not None:
            self.awaiting_join_count -= 1
        new = ClassicGroupMember(
            member_id=new_id,
            instance_id=old.instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocol_type=old.protocol_type,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self.members[new_id] = new
        if self.leader_id == old_id:
            self.leader_id = new_id
        self.static_members[instance_id] = new_id
        self.pending_sync.discard(old_id)
        return new, join_token, sync_token

    def take_join_token(self, member: ClassicGroupMember) -> Token | None:
        """Removes and returns the token of the member's waiting JoinGroup."""
        token, member.join_token = member.join_token, None
        if token is not None:
            self.awaiting_join_count -= 1
        return token

    def validate_member(self, member_id: str, instance_id: str | None) -> None:
        """Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another process replaced the static member."""
        if instance_id is not None:
            existing = self.static_members.get(instance_id)
            if existing is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader is a member that has joined. Returns False if no member has."""
        if self.leader_id is None:
            return False
        leader = self.members.get(self.leader_id)
        if leader is not None and leader.awaits_join:
            return True
        for member in self.members.values():
            if member.awaits_join:
                self.leader_id = member.member_id
                return True
        return False

    # --- generations -------------------------------------------------------------------------------

    def select_protocol(self) -> str:
        """The protocol that all members support and that most prefer. Of several with equal votes it is the
        one with the first vote, in the order of the members."""
        candidates = {name for name, count in self._support.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(name for name, _ in member.protocols if name in candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def next_generation(self, now_ms: int) -> None:
        """Starts a generation. The group moves to CompletingRebalance, or to Empty if it has no members."""
        self.generation_id += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(ClassicGroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(ClassicGroupState.EMPTY, now_ms)
        self.pending_sync.clear()

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics in the members' subscriptions, or None if the group has another protocol type or its
        metadata cannot be parsed."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            read = subscription_topics(member.metadata(self.protocol_name))
            if read is None:
                return None
            topics.update(read)
        return frozenset(topics)

    def _count_protocols(self, member: ClassicGroupMember, step: int) -> None:
        for name, _ in member.protocols:
            count = self._support.get(name, 0) + step
            if count:
                self._support[name] = count
            else:
                self._support.pop(name, None)


def subscription_topics(metadata: bytes) -> list[str] | None:
    """The topics of a consumer's subscription, or None if it is malformed. All versions begin with the
    fields of version 0: an int16 version and an array of strings."""
    try:
        _, count = struct.unpack_from(">hi", metadata)
        if count < 0 or count * 2 > len(metadata) - 6:
            return None
        topics, pos = [], 6
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, pos)
            pos += 2
            if length < 0 or pos + length > len(metadata):
                return None
            topics.append(text(metadata[pos : pos + length]))
            pos += length
    except struct.error:
        return None
    return topics
