"""State of one classic consumer group (the protocol of JoinGroup and SyncGroup; KIP-62, KIP-134,
KIP-345, KIP-394, KIP-814).

Knows neither time nor timers, records nor requests: only members, votes and the legal moves between
states. The rules that drive it are in `classic.py`. A parked JoinGroup or SyncGroup is a *token*, an
opaque value of the driver's by which it finds the request to answer.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.primitives import text

Token = Hashable

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
UNKNOWN_MEMBER_ID: Final = ""


class GroupState(Enum):
    """Values are the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_PREDECESSORS: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


@dataclass(slots=True, eq=False)
class Member:
    """One member. `protocols` are (name, metadata) in the member's order of preference; timeouts in
    milliseconds."""

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
        return self.instance_id is not None

    @property
    def awaits_join(self) -> bool:
        return self.join_token is not None

    @property
    def heartbeat_satisfied(self) -> bool:
        """A member whose request is parked here is alive by that, save a new one: it cannot heartbeat,
        so its parked join may expire.
        """
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata(self, protocol: str) -> bytes:
        """The member's bytes for `protocol`; KeyError if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(f"member {self.member_id} does not support protocol {protocol}")

    def supports(self, protocol: str) -> bool:
        return any(name == protocol for name, _ in self.protocols)


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """One group. `protocol_type` None: a "simple" group, of committed offsets only.
    `state_timestamp_ms` None: loaded from an old record without it.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.DEAD
    state_timestamp_ms: int | None = None
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_join: set[str] = field(default_factory=set)
    pending_sync: set[str] = field(default_factory=set)
    subscribed_topics: frozenset[str] | None = None
    new_member_added: bool = False
    awaiting_join_count: int = 0
    storing_generation: int | None = None
    """The generation whose assignment is written and not yet committed."""
    _support: dict[str, int] = field(default_factory=dict)

    # -- state
    # ----------------------------------------------------------------------------------------------

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Moves to `state`; AssertionError on a move that the table does not have."""
        legal = self.state in LEGAL_PREDECESSORS[state]
        assert legal, f"group {self.group_id}: illegal move {self.state.value} -> {state.value}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in LEGAL_PREDECESSORS[GroupState.PREPARING_REBALANCE]

    @property
    def is_simple(self) -> bool:
        return self.protocol_type is None and self.state is GroupState.EMPTY and not self.pending_join

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads `topic`; with metadata that cannot be read, a consumer group counts as
        reading every topic.
        """
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.uses_consumer_protocol

    # -- members
    # ----------------------------------------------------------------------------------------------

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols could join: some one of them must be known to all
        present members."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        if self.protocol_type != protocol_type:
            return False
        return any(self._support.get(name, 0) == len(self.members) for name in names)

    def add(self, member: Member, token: Token | None = None) -> None:
        """Adds a member whose protocols were checked with `supports_protocols`; the first one gives the
        group its type and leads.
        """
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
        """Removes a member or a pending one; the oldest remaining member leads if the leader went."""
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
        member: Member,
        protocols: tuple[tuple[str, bytes], ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        token: Token | None,
    ) -> None:
        """Takes over what a (re)join says, and parks it."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.awaiting_join_count += (token is not None) - member.awaits_join
        member.join_token = token

    def replace_static(
        self, instance_id: str, old_id: str, new_id: str
    ) -> tuple[Member, Token | None, Token | None]:
        """Gives a static member a new id: (new member, join and sync tokens of the old one, to be answered
        FENCED_INSTANCE_ID).
        """
        old = self.members.pop(old_id)
        join_token, sync_token = old.join_token, old.sync_token
        if join_token is not None:
            self.awaiting_join_count -= 1
        new = Member(
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

    def take_join_token(self, member: Member) -> Token | None:
        """Unparks the member's JoinGroup."""
        token, member.join_token = member.join_token, None
        if token is not None:
            self.awaiting_join_count -= 1
        return token

    def validate_member(self, member_id: str, instance_id: str | None) -> None:
        """Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID for a static member that another process
        replaced."""
        if instance_id is not None:
            existing = self.static_members.get(instance_id)
            if existing is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader is among those who joined; False when nobody did."""
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

    # -- generations
    # ----------------------------------------------------------------------------------------------

    def select_protocol(self) -> str:
        """The protocol that all support and most prefer; of several with equal votes the one that the
        oldest member ranks first.
        """
        candidates = {name for name, count in self._support.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(name for name, _ in member.protocols if name in candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def next_generation(self, now_ms: int) -> None:
        """Closes the join phase: a new generation, in CompletingRebalance with members, in Empty without."""
        self.generation_id += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(GroupState.EMPTY, now_ms)
        self.pending_sync.clear()

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Topics that the members' consumer metadata names; None when the group is of another type or
        its metadata is not readable.
        """
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

    def _count_protocols(self, member: Member, step: int) -> None:
        for name, _ in member.protocols:
            count = self._support.get(name, 0) + step
            if count:
                self._support[name] = count
            else:
                self._support.pop(name, None)


def subscription_topics(metadata: bytes) -> list[str] | None:
    """Topics of a consumer's embedded subscription, whose version 0 prefixes all later ones: int16
    version, array of strings. None if malformed.
    """
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
