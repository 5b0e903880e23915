"""One partition of `__consumer_offsets` as a state machine (`GroupCoordinatorShard` in Kafka): joins the
managers of classic groups and of offsets, and keeps the groups of unsupported types.

The runtime's part is described in `CoordinatorShard` and `CoordinatorResult`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from quorate.broker.coordinators.group.classic.classic_group import ClassicGroup, ClassicGroupState
from quorate.broker.coordinators.group.classic.group_metadata_manager import GroupMetadataManager
from quorate.broker.coordinators.group.classic.member_timers import MemberTimers
from quorate.broker.coordinators.group.classic.rebalance import Rebalancer
from quorate.broker.coordinators.group.config import GroupCoordinatorConfig
from quorate.broker.coordinators.group.group_deletion import GroupDeletion
from quorate.broker.coordinators.group.model import (
    GroupCounts,
    GroupRecord,
    OffsetRecord,
    Record,
    ShardState,
    StateStore,
    UnsupportedGroup,
    UnsupportedGroupRecord,
    group_from_record,
)
from quorate.broker.coordinators.group.offset_metadata_manager import (
    ExpiryCursor,
    OffsetMetadataManager,
    TopicsDeletion,
)
from quorate.broker.coordinators.group.timer_events import TimerEvent
from quorate.broker.coordinators.result import CoordinatorResult, StepTime, Token
from quorate.broker.coordinators.shard import NO_PRODUCER_ID
from quorate.broker.coordinators.timer import CoordinatorTimer
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.describe_groups import DescribeGroupsResponse
from quorate.protocol.messages.list_groups import ListGroupsResponse

DESCRIBE_NOT_FOUND_VERSION = 6
"""From this DescribeGroups version an unknown group is an error. Before it is a group in state Dead."""


class GroupCoordinatorShard:
    """The groups and offsets of one partition."""

    __slots__ = (
        "_config",
        "_deletions",
        "_expiry",
        "_loading_topics",
        "_store",
        "counts",
        "groups",
        "next_expiry",
        "offsets",
        "rebalancer",
        "sessions",
        "timer",
    )

    def __init__(self, config: GroupCoordinatorConfig, counts: GroupCounts | None = None) -> None:
        self._config = config
        self.counts = counts or GroupCounts()
        self._store = store = StateStore(counts=self.counts)
        self.timer = timer = CoordinatorTimer[TimerEvent]()
        self.sessions = sessions = MemberTimers(timer)
        self.rebalancer = Rebalancer(config, store, timer, sessions)
        self.groups = GroupMetadataManager(config, store, timer, sessions, self.rebalancer)
        self.offsets = OffsetMetadataManager(config, store, sessions)
        self._loading_topics: set[str] | None = set()
        """The topics of the loaded offsets. None after the loading."""
        self.next_expiry: float | None = None
        self._expiry: ExpiryCursor | None = None
        self._deletions: deque[TopicsDeletion] = deque()

    @property
    def state(self) -> ShardState:
        """The newest state. The runtime restores an earlier one after a failed append."""
        return self._store.state

    @state.setter
    def state(self, state: ShardState) -> None:
        self._store.state = state

    @property
    def summary(self) -> str:
        """The number of groups, for the log."""
        return f"{len(self.state.groups)} groups"

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """The classic group of this id, or None if it does not exist or has another type."""
        return self._store.classic_group(group_id)

    # --- replay -----------------------------------------------------------------------------------

    def replay(self, record: Record, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Applies a record at `offset` of the log."""
        match record:
            case OffsetRecord():
                if self._loading_topics is not None and record.value is not None:
                    self._loading_topics.add(record.topic)
                self.offsets.replay_offset(record, offset, producer_id)
            case GroupRecord(group_id=group_id, value=value):
                groups = self.state.groups
                if value is not None:
                    groups = groups.set(group_id, group_from_record(group_id, value))
                elif isinstance(groups.get(group_id), ClassicGroup):
                    groups = groups.delete(group_id)
                self.state = self.state._replace(groups=groups)
            case UnsupportedGroupRecord():
                self._replay_unsupported(record)

    def _replay_unsupported(self, record: UnsupportedGroupRecord) -> None:
        groups = self.state.groups
        known = groups.get(record.group_id)
        if isinstance(known, UnsupportedGroup) and known.group_type is record.group_type:
            group = known
        elif record.value is None:
            return  # of a group that has become a classic one
        else:
            group = UnsupportedGroup(record.group_id, record.group_type)
        keys, members = group.keys, group.members
        if record.value is not None:
            keys = keys.set(record.key, record.record_type)
        elif record.key in keys:
            keys = keys.delete(record.key)
        if record.member_id is not None:
            members = (
                members | {record.member_id} if record.value is not None else members - {record.member_id}
            )
        group = replace(group, keys=keys, members=members)
        groups = groups.set(record.group_id, group) if keys else groups.delete(record.group_id)
        self.state = self.state._replace(groups=groups)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Applies a transaction marker of the log."""
        self.offsets.replay_end_transaction(producer_id, committed=committed)

    def loaded(
        self, at: StepTime, has_topic: Callable[[str], bool] = lambda _: True
    ) -> Iterator[CoordinatorResult]:
        """Starts the sessions of the loaded groups, one group in each step, and then the deletion of offsets
        whose topic was deleted."""
        self.next_expiry = at.now + self._config.offsets_retention_check_interval_ms / 1000
        for group in list(self.state.groups.values()):
            if isinstance(group, ClassicGroup):
                yield self.rebalancer.start_loaded_group(group, at)
        deleted = {topic for topic in self._loading_topics or () if not has_topic(topic)}
        self._loading_topics = None
        if deleted:
            self.topics_deleted(frozenset(deleted))

    # --- timers -----------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """The monotonic time of the next call of `tick`: 0 if the last one left work to do."""
        if self._deletions:
            return 0.0
        deadline = self.timer.next_deadline()
        if deadline is None or self.next_expiry is None:
            return self.next_expiry if deadline is None else deadline
        return min(deadline, self.next_expiry)

    def tick(self, at: StepTime) -> Iterator[CoordinatorResult]:
        """Yields one result for each expired timer, for a step of a deletion, and for a step of an expiry.
        What remains when the caller stops is done in the next call."""
        for event in self.timer.due(at.now):
            yield self.rebalancer.expire(event, at)
        if self._deletions:
            deletion = self._deletions[0]
            result = self.offsets.delete_of_topics(deletion)
            if not deletion.groups:  # else it continues in the next call, after the other shards
                self._deletions.popleft()
            yield result
        if self.next_expiry is not None and self.next_expiry <= at.now:
            if self._expiry is None:
                self._expiry = ExpiryCursor(list(self.state.groups))
            result = self.offsets.expire_offsets(self._expiry, at)
            self.counts.offset_expirations += sum([type(one) is OffsetRecord for one in result.records])
            if not self._expiry.groups:  # else it continues in the next call, after the other shards
                self._expiry = None
                self.next_expiry = at.now + self._config.offsets_retention_check_interval_ms / 1000
            yield result

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """Lets the next calls of `tick` delete the current offsets of topics, some milliseconds at a time."""
        deletion = self.offsets.deletion_of(topics)
        if deletion.groups or deletion.pending:
            self._deletions.append(deletion)

    # --- administration ---------------------------------------------------------------------------

    def list_groups(
        self, state: ShardState, states: frozenset[str], types: frozenset[str]
    ) -> Iterator[ListGroupsResponse.ListedGroup | None]:
        """Yields each group of `state`, or None for a group that the filters exclude. Filters are names in
        lower case; an empty filter lists all."""
        for group in state.groups.values():
            if isinstance(group, ClassicGroup):
                kind, group_state, protocol = "classic", group.state.value, group.protocol_type or ""
            else:
                kind, group_state = group.group_type.value, group.state
                protocol = kind
            if (not states or group_state.lower() in states) and (not types or kind in types):
                yield ListGroupsResponse.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=protocol,
                    group_state=group_state,
                    group_type=kind,
                )
            else:
                yield None

    def describe(
        self, state: ShardState, group_id: str, api_version: int
    ) -> DescribeGroupsResponse.DescribedGroup:
        """Describes a classic group. The metadata of its members is given only while the group is stable."""
        group = state.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            described = DescribeGroupsResponse.DescribedGroup(
                group_id=group_id, group_state=ClassicGroupState.DEAD.value
            )
            if api_version >= DESCRIBE_NOT_FOUND_VERSION:
                described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                described.error_message = (
                    f"Group {group_id} not found."
                    if group is None
                    else f"Group {group_id} is not a classic group."
                )
            return described
        stable = group.state is ClassicGroupState.STABLE
        return DescribeGroupsResponse.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if stable else "",
            members=[
                DescribeGroupsResponse.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol_name or "") if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def delete_group(self, deletion: GroupDeletion, token: Token, max_bytes: int) -> CoordinatorResult:
        """Does a step of a deletion. The response is an error code."""
        return deletion.step(self._store, token, max_bytes)
