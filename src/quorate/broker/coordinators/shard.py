"""One partition of the offsets topic as a state machine: classic groups, offsets, and what other protocols'
coordinators left there.

duties of whoever drives it (`driver.py`): see `model.Outcome`; after loading, `loaded`; whenever
`timers.next_deadline()` is past, `tick`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from quorate.broker.coordinators.classic_answers import append_error, foreign_tombstones
from quorate.broker.coordinators.classic_group import ClassicGroup, GroupState, Token
from quorate.broker.coordinators.model import (
    NO_PRODUCER_ID,
    ForeignGroup,
    ForeignRecord,
    GroupConfig,
    GroupRecord,
    Instant,
    OffsetRecord,
    Outcome,
    Record,
    ShardState,
    group_from_record,
)
from quorate.broker.coordinators.offsets import ExpiryCursor, OffsetRules, TopicsDeletion
from quorate.broker.coordinators.rebalance import Due
from quorate.broker.coordinators.timers import Timers
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.delete_groups import DeleteGroupsResponse
from quorate.protocol.messages.describe_groups import DescribeGroupsResponse
from quorate.protocol.messages.list_groups import ListGroupsResponse

DESCRIBE_NOT_FOUND_VERSION = 6
"""From this DescribeGroups version an unknown group is an error; before, a group in state Dead."""


class Shard(OffsetRules):
    """State and steps of one offsets partition."""

    __slots__ = ("_deletions", "_expiry", "next_expiry")

    def __init__(self, config: GroupConfig) -> None:
        super().__init__(config, Timers[Due]())
        self.next_expiry: float | None = None
        self._expiry: ExpiryCursor | None = None
        self._deletions: deque[TopicsDeletion] = deque()

    # -- replay
    # ----------------------------------------------------------------------------------------------

    def replay(self, record: Record, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Applies a record that stands at `offset` of the log."""
        match record:
            case OffsetRecord():
                self.replay_offset(record, offset, producer_id)
            case GroupRecord(group_id=group_id, value=value):
                groups = self.state.groups
                if value is not None:
                    groups = groups.set(group_id, group_from_record(group_id, value))
                elif isinstance(groups.get(group_id), ClassicGroup):
                    groups = groups.delete(group_id)
                self.state = replace(self.state, groups=groups)
            case ForeignRecord():
                self._replay_foreign(record)

    def _replay_foreign(self, record: ForeignRecord) -> None:
        groups = self.state.groups
        known = groups.get(record.group_id)
        if isinstance(known, ForeignGroup) and known.group_type is record.group_type:
            group = known
        elif record.value is None:
            return  # of a group that became a classic one since
        else:
            group = ForeignGroup(record.group_id, record.group_type)
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
        self.state = replace(self.state, groups=groups)

    def loaded(self, at: Instant) -> list[Outcome]:
        """Starts the sessions of the groups that the log had."""
        self.next_expiry = at.now + self.config.offsets_retention_check_interval_ms / 1000
        return [
            self.arm_loaded(g, at) for g in list(self.state.groups.values()) if isinstance(g, ClassicGroup)
        ]

    # -- time
    # ----------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `tick` has work next, in monotonic seconds; 0 when it has work left."""
        if self._deletions:
            return 0.0
        deadline = self.timers.next_deadline()
        if deadline is None or self.next_expiry is None:
            return self.next_expiry if deadline is None else deadline
        return min(deadline, self.next_expiry)

    def tick(self, at: Instant) -> Iterator[Outcome]:
        """What is due at `at`, one outcome for each thing; carry each out before taking the next."""
        for due in self.timers.due(at.now):
            yield self.expire(due, at)
        if self._deletions:
            deletion = self._deletions[0]
            yield self.delete_of_topics(deletion)
            if not deletion.groups:  # else it goes on when the driver has let others run
                self._deletions.popleft()
        if self.next_expiry is not None and self.next_expiry <= at.now:
            if self._expiry is None:
                self._expiry = ExpiryCursor(list(self.state.groups))
            yield self.expire_offsets(self._expiry, at)
            if not self._expiry.groups:  # else it goes on when the driver has let others run
                self._expiry = None
                self.next_expiry = at.now + self.config.offsets_retention_check_interval_ms / 1000

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """The next calls of `tick` delete the offsets that topics have now, a few milliseconds at a time."""
        deletion = self.deletion_of(topics)
        if deletion.groups or deletion.pending:
            self._deletions.append(deletion)

    # -- groups as administrators see them
    # ----------------------------------------------------------------------------------------------

    def list_groups(
        self, state: ShardState, states: frozenset[str], types: frozenset[str]
    ) -> list[ListGroupsResponse.ListedGroup]:
        """Groups of `state`; filters are lower case names, empty for all."""
        listed = []
        for group in state.groups.values():
            if isinstance(group, ClassicGroup):
                kind, stands, protocol = "classic", group.state.value, group.protocol_type or ""
            else:
                kind, stands = group.group_type.value, group.state
                protocol = kind
            if (not states or stands.lower() in states) and (not types or kind in types):
                listed.append(
                    ListGroupsResponse.ListedGroup(
                        group_id=group.group_id, protocol_type=protocol, group_state=stands, group_type=kind
                    )
                )
        return listed

    def describe(
        self, state: ShardState, group_id: str, api_version: int
    ) -> DescribeGroupsResponse.DescribedGroup:
        """One classic group with its members; their metadata only while it is stable."""
        group = state.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            described = DescribeGroupsResponse.DescribedGroup(
                group_id=group_id, group_state=GroupState.DEAD.value
            )
            if api_version >= DESCRIBE_NOT_FOUND_VERSION:
                described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                described.error_message = (
                    f"Group {group_id} not found."
                    if group is None
                    else f"Group {group_id} is not a classic group."
                )
            return described
        stable = group.state is GroupState.STABLE
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

    def delete_groups(self, group_ids: list[str], token: Token) -> Outcome:
        """Deletes empty groups with all their offsets; each other one gets its own error."""
        out = Outcome()
        results: list[DeleteGroupsResponse.DeletableGroupResult] = []
        for group_id in group_ids:
            group = self.state.groups.get(group_id)
            code = ErrorCode.NONE
            if group is None or (isinstance(group, ClassicGroup) and group.state is GroupState.DEAD):
                code = ErrorCode.GROUP_ID_NOT_FOUND
            elif isinstance(group, ForeignGroup):
                code = ErrorCode.NONE if group.is_empty else ErrorCode.NON_EMPTY_GROUP
            elif group.state is not GroupState.EMPTY:
                code = ErrorCode.NON_EMPTY_GROUP
            if code is ErrorCode.NONE:
                out.records += self.offset_tombstones(group_id)
                if isinstance(group, ForeignGroup):
                    out.records += foreign_tombstones(group)
                else:
                    out.records.append(GroupRecord(group_id, None))
            results.append(DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code))

        def stored(error: ErrorCode, _: Instant) -> Outcome:
            if error is not ErrorCode.NONE:
                for result in results:
                    result.error_code = append_error(error)
            return Outcome(replies=[(token, results)])

        out.after = stored
        return out
