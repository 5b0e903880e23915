"""The requests of classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and the replay of group
records (`GroupMetadataManager` in Kafka).

Pure: time and random ids are arguments, responses and records are returned in a `CoordinatorResult`. The
transitions of a group are in `rebalance.py`. KIP-62, KIP-345 (static members), KIP-394 (member id before
joining), KIP-814 (skip the assignment).
"""

from __future__ import annotations

import logging

from quorate.broker.coordinators.group.classic.classic_group import (
    UNKNOWN_MEMBER_ID,
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
)
from quorate.broker.coordinators.group.classic.classic_responses import (
    check_sync,
    current_members,
    join_error,
    join_reason,
    join_response,
    rebalance_timeout,
    request_protocols,
    sync_error,
    sync_response,
    unsupported_group_tombstones,
)
from quorate.broker.coordinators.group.classic.member_timers import MemberTimers
from quorate.broker.coordinators.group.classic.rebalance import Rebalancer
from quorate.broker.coordinators.group.config import GroupCoordinatorConfig
from quorate.broker.coordinators.group.model import (
    Caller,
    Record,
    StateStore,
    UnsupportedGroup,
    UnsupportedGroupType,
    empty_group_record,
    group_record,
)
from quorate.broker.coordinators.group.timer_events import TimerEvent
from quorate.broker.coordinators.result import CoordinatorResult, StepTime, Token, operation_error
from quorate.broker.coordinators.timer import CoordinatorTimer
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.messages.join_group import JoinGroupRequest
from quorate.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from quorate.protocol.messages.sync_group import SyncGroupRequest

logger = logging.getLogger("quorate.group")

KNOWN_MEMBER_ID_VERSION = 4
"""From this JoinGroup version a new dynamic member gets its id first and must join again with it."""
SKIP_ASSIGNMENT_VERSION = 9
"""From this JoinGroup version the response informs a returning static leader that it leads and must not
compute a new assignment."""


class GroupMetadataManager:
    """The classic groups of a shard."""

    __slots__ = ("_config", "_rebalancer", "_sessions", "_store", "_timer")

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        store: StateStore,
        timer: CoordinatorTimer[TimerEvent],
        sessions: MemberTimers,
        rebalancer: Rebalancer,
    ) -> None:
        self._config = config
        self._store = store
        self._timer = timer
        self._sessions = sessions
        self._rebalancer = rebalancer

    # --- JoinGroup --------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, caller: Caller, token: Token, at: StepTime
    ) -> CoordinatorResult:
        """Adds or updates a member. Most requests start a rebalance and wait for its end."""
        out = CoordinatorResult(replay=False)
        tombstones: list[Record] = []
        group_id, member_id = request.group_id, request.member_id
        state = self._store.state
        known = state.groups.get(group_id)
        if isinstance(known, UnsupportedGroup):
            if not known.is_empty or known.group_type is not UnsupportedGroupType.CONSUMER:
                out.replies.append(
                    (token, join_error(UNKNOWN_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
                )
                return out
            # An empty consumer group (KIP-848) becomes a classic one when a classic member joins.
            tombstones = unsupported_group_tombstones(known)
            self._store.state = state._replace(groups=state.groups.delete(group_id))
            known = None
        group = known
        is_new_group = group is None
        if group is None:
            if member_id != UNKNOWN_MEMBER_ID:
                out.replies.append((token, join_error(member_id, ErrorCode.UNKNOWN_MEMBER_ID)))
                out.records = tombstones
                return out
            group = ClassicGroup(group_id, state_timestamp_ms=at.wall_ms)
            self._store.put_group(group)
        if not self._accepts(group, member_id):
            group.remove(member_id)
            out.replies.append((token, join_error(UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)))
        elif group.state is ClassicGroupState.DEAD:
            out.replies.append((token, join_error(member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        elif not group.supports_protocols(
            request.protocol_type, [name for name, _ in request_protocols(request)]
        ):
            out.replies.append((token, join_error(member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
        elif member_id == UNKNOWN_MEMBER_ID:
            self._join_new(group, request, caller, token, at, out)
        else:
            self._join_known(group, request, caller, token, at, out)
        if is_new_group and not out.records and out.after is None:
            answered = bool(out.replies)

            def stored(error: ErrorCode, _: StepTime) -> CoordinatorResult:
                if error is ErrorCode.NONE or answered:
                    return CoordinatorResult()
                return CoordinatorResult(
                    replies=[(token, join_error(UNKNOWN_MEMBER_ID, operation_error(error)))]
                )

            out.records = [empty_group_record(group)]
            out.after = stored
        out.records[:0] = tombstones
        return out

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether `group.max.size` leaves room for a member. During the join phase only members that have
        joined are counted, so that the last ones are rejected."""
        match group.state:
            case ClassicGroupState.EMPTY | ClassicGroupState.DEAD:
                return True
            case ClassicGroupState.PREPARING_REBALANCE:
                member = group.members.get(member_id)
                return (
                    member is not None and member.awaits_join
                ) or group.awaiting_join_count < self._config.max_size
            case _:
                return member_id in group.members or len(group.members) < self._config.max_size

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        token: Token,
        at: StepTime,
        out: CoordinatorResult,
    ) -> None:
        instance_id = request.group_instance_id
        new_id = f"{caller.client_id if instance_id is None else instance_id}-{caller.fresh_id}"
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is not None:
                logger.info(
                    "[Group %s] Static member %s joins in state %s with unknown member id; it replaces "
                    "member %s.",
                    group.group_id, instance_id, group.state.value, old_id,
                )  # fmt: skip
                self._replace_static(group, request, caller, old_id, new_id, token, at, out)
                return
        elif caller.api_version >= KNOWN_MEMBER_ID_VERSION:
            group.pending_join.add(new_id)
            self._sessions.start(group, new_id, request.session_timeout_ms, at)
            logger.info(
                "[Group %s] New dynamic member in state %s must rejoin as %s.",
                group.group_id,
                group.state.value,
                new_id,
            )
            out.replies.append((token, join_error(new_id, ErrorCode.MEMBER_ID_REQUIRED)))
            return
        self._add_member(group, request, caller, new_id, token, at, out)

    def _join_known(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        token: Token,
        at: StepTime,
        out: CoordinatorResult,
    ) -> None:
        member_id = request.member_id
        if member_id in group.pending_join:
            if request.group_instance_id is not None:
                # A pending member is always dynamic. This request has the ids of two clients.
                out.replies.append((token, join_error(member_id, ErrorCode.UNKNOWN_SERVER_ERROR)))
                return
            self._add_member(group, request, caller, member_id, token, at, out)
            return
        try:
            group.validate_member(member_id, request.group_instance_id)
        except KafkaError as error:
            out.replies.append((token, join_error(member_id, error.code)))
            return
        member = group.members[member_id]
        same = member.protocols == request_protocols(request)
        match group.state:
            case ClassicGroupState.PREPARING_REBALANCE:
                self._update_member(group, member, request, token, "member rejoins", at, out)
            case ClassicGroupState.COMPLETING_REBALANCE if same:
                # The member probably missed the first response.
                members = current_members(group) if group.is_leader(member_id) else []
                out.replies.append((token, join_response(group, member_id, members)))
            case ClassicGroupState.STABLE if same and not group.is_leader(member_id):
                out.replies.append((token, join_response(group, member_id, [])))
            case ClassicGroupState.COMPLETING_REBALANCE | ClassicGroupState.STABLE:
                reason = "leader rejoins" if group.is_leader(member_id) else "member changes its metadata"
                self._update_member(group, member, request, token, reason, at, out)
            case _:
                out.replies.append((token, join_error(member_id, ErrorCode.UNKNOWN_MEMBER_ID)))

    def _add_member(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        member_id: str,
        token: Token,
        at: StepTime,
        out: CoordinatorResult,
    ) -> None:
        member = ClassicGroupMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            rebalance_timeout_ms=rebalance_timeout(request, caller),
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=request_protocols(request),
            is_new=True,
        )
        if (
            group.state is ClassicGroupState.PREPARING_REBALANCE
            and group.previous_state is ClassicGroupState.EMPTY
        ):
            group.new_member_added = True
        group.add(member, token)
        # A new member cannot send heartbeats while its first join waits. If its client disappears, only a
        # timeout of the join removes it.
        self._sessions.start(group, member_id, self._config.new_member_join_timeout_ms, at)
        self._rebalancer.rebalance_or_complete(
            group, f"new member {member_id}; {join_reason(request)}", at, out
        )

    def _update_member(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        request: JoinGroupRequest,
        token: Token,
        reason: str,
        at: StepTime,
        out: CoordinatorResult,
    ) -> None:
        superseded = member.join_token
        rebalance_ms = (
            request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
        )
        group.update(member, request_protocols(request), rebalance_ms, request.session_timeout_ms, token)
        if superseded is not None:
            # The client has repeated its join. The first one must be answered, too, because the later
            # responses of its connection wait for it.
            out.replies.append((superseded, join_error(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)))
        self._rebalancer.rebalance_or_complete(group, f"{reason}; {join_reason(request)}", at, out)

    def _replace_static(
        self, group: ClassicGroup, request: JoinGroupRequest, caller: Caller, old_id: str, new_id: str,
        token: Token,
        at: StepTime, out: CoordinatorResult
    ) -> None:  # fmt: skip
        """Gives a static member that has restarted a new member id. If the group still selects the same
        protocol, no rebalance is needed (KIP-345)."""
        instance_id = request.group_instance_id
        assert instance_id is not None
        leader_before = group.leader_id
        member, join_token, sync_token = group.replace_static(instance_id, old_id, new_id)
        if join_token is not None:
            out.replies.append((join_token, join_error(old_id, ErrorCode.FENCED_INSTANCE_ID)))
        if sync_token is not None:
            out.replies.append((sync_token, sync_error(ErrorCode.FENCED_INSTANCE_ID)))
        self._sessions.end(group, old_id)
        self._sessions.start(group, new_id, member.session_timeout_ms, at)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update(
            member,
            request_protocols(request),
            rebalance_timeout(request, caller),
            request.session_timeout_ms,
            token,
        )
        match group.state:
            case ClassicGroupState.STABLE if group.select_protocol() == group.protocol_name:

                def stored(error: ErrorCode, when: StepTime) -> CoordinatorResult:
                    if group.members.get(new_id) is not member:
                        return CoordinatorResult()
                    parked = group.take_join_token(member)
                    if parked is None:
                        return CoordinatorResult()
                    if error is not ErrorCode.NONE:
                        group.update(member, *before, None)
                        old, _, _ = group.replace_static(instance_id, new_id, old_id)
                        self._sessions.start(group, old_id, old.session_timeout_ms, when)
                        failed = join_response(group, UNKNOWN_MEMBER_ID, [], leader=leader_before)
                        failed.error_code = operation_error(error)
                        return CoordinatorResult(replies=[(parked, failed)])
                    if caller.api_version >= SKIP_ASSIGNMENT_VERSION:
                        leads = group.is_leader(new_id)
                        answer = join_response(group, new_id, current_members(group) if leads else [])
                        answer.skip_assignment = leads
                    else:
                        # With the old leader id the member does not see itself as the leader, and so
                        # computes no assignment.
                        answer = join_response(group, new_id, [], leader=leader_before)
                    return CoordinatorResult(replies=[(parked, answer)])

                out.records = [
                    group_record(group, {m.member_id: m.assignment for m in group.members.values()})
                ]
                out.after = stored
            case ClassicGroupState.STABLE:
                self._rebalancer.rebalance_or_complete(
                    group, f"static member {instance_id} changes the protocol", at, out
                )
            case ClassicGroupState.COMPLETING_REBALANCE:
                # The leader may be computing an assignment for the old id.
                self._rebalancer.prepare_rebalance(
                    group, f"static member {instance_id} has a new id", at, out
                )
            case _:
                self._rebalancer.complete_join_if_all_joined(group, at, out)

    # --- SyncGroup --------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, token: Token, at: StepTime) -> CoordinatorResult:
        """Stores the leader's assignment. The other members wait for it."""
        out = CoordinatorResult(replay=False)
        group = self._store.classic_group(request.group_id)
        code = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None and group.state is not ClassicGroupState.EMPTY:
            code = check_sync(group, request)
        if group is None or code is not ErrorCode.NONE:
            out.replies.append((token, sync_error(code)))
            return out
        member = group.members[request.member_id]
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            out.replies.append((token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS)))
            return out
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self._timer.cancel(("sync", group.group_id))
        if group.state is ClassicGroupState.STABLE:
            answer = sync_response(group, member.assignment)

            def committed(error: ErrorCode, _: StepTime) -> CoordinatorResult:
                response = answer if error is ErrorCode.NONE else sync_error(operation_error(error))
                return CoordinatorResult(replies=[(token, response)])

            # A new coordinator may have loaded the assignment from a record that is not committed yet. If
            # the next election reverted the record, the generation would get another assignment.
            out.after = committed
            return out
        if member.sync_token is not None:
            out.replies.append((member.sync_token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.sync_token = token
        if not group.is_leader(member.member_id) or group.storing_generation == group.generation_id:
            # A leader that repeats its sync gets the first assignment, as all members do. With a second
            # record in the log, the next coordinator would give the generation another assignment.
            return out
        given = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
        assignment = {member_id: given.get(member_id, b"") for member_id in group.members}
        generation = group.generation_id

        def stored(error: ErrorCode, when: StepTime) -> CoordinatorResult:
            done = CoordinatorResult(replay=False)
            if group.storing_generation == generation:
                group.storing_generation = None
            # A member may have joined or left while the record was written.
            if group.state is not ClassicGroupState.COMPLETING_REBALANCE or group.generation_id != generation:
                return done
            if error is ErrorCode.NONE:
                for each in group.members.values():
                    each.assignment = assignment.get(each.member_id, b"")
                self._rebalancer.answer_syncs(group, ErrorCode.NONE, when, done)
                group.transition_to(ClassicGroupState.STABLE, when.wall_ms)
                return done
            for each in group.members.values():
                each.assignment = b""
            self._rebalancer.answer_syncs(group, operation_error(error), when, done)
            self._rebalancer.rebalance_or_complete(
                group, f"the assignment could not be stored: {error.name}", when, done
            )
            return done

        group.storing_generation = generation
        out.records = [group_record(group, assignment)]
        out.after = stored
        return out

    # --- Heartbeat, LeaveGroup --------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, at: StepTime) -> HeartbeatResponse:
        """Restarts the session of a member. After REBALANCE_IN_PROGRESS the member rejoins."""
        group = self._store.classic_group(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is ClassicGroupState.DEAD:
            return HeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            group.validate_member(request.member_id, request.group_instance_id)
        except KafkaError as error:
            return HeartbeatResponse(error_code=error.code)
        if request.generation_id != group.generation_id:
            return HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
        if group.state is ClassicGroupState.EMPTY:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        self._sessions.restart(group, request.member_id, at)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def leave(self, request: LeaveGroupRequest, token: Token, at: StepTime) -> CoordinatorResult:
        """Removes members. An administrator may give the instance id of a static member alone."""
        out = CoordinatorResult(replay=False)
        group = self._store.classic_group(request.group_id)
        response = LeaveGroupResponse()
        removed: list[str] = []
        for identity in request.members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                code = self._leave_one(group, identity.member_id, identity.group_instance_id, out)
            if code is ErrorCode.NONE:
                removed.append(identity.member_id or identity.group_instance_id or "")
            response.members.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=code,
                )
            )
        if group is not None and removed:
            reason = f"members left: {', '.join(removed)}"
            if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
                self._rebalancer.rebalance_or_complete(group, reason, at, out)
            elif group.state is ClassicGroupState.PREPARING_REBALANCE:
                self._rebalancer.complete_join_if_all_joined(group, at, out)
        if not out.records:
            out.replies.append((token, response))
            return out

        def stored(error: ErrorCode, _: StepTime) -> CoordinatorResult:
            failed = error is not ErrorCode.NONE
            answer = LeaveGroupResponse(error_code=operation_error(error)) if failed else response
            return CoordinatorResult(replies=[(token, answer)])

        out.after = stored
        return out

    def _leave_one(
        self, group: ClassicGroup, member_id: str, instance_id: str | None, out: CoordinatorResult
    ) -> ErrorCode:
        if member_id == UNKNOWN_MEMBER_ID:
            static_id = group.static_members.get(instance_id) if instance_id is not None else None
            if static_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = static_id
        elif member_id in group.pending_join:
            group.remove(member_id)
            self._sessions.end(group, member_id)
            return ErrorCode.NONE
        else:
            try:
                group.validate_member(member_id, instance_id)
            except KafkaError as error:
                return error.code
        self._rebalancer.drop_member(group, group.members[member_id], out)
        return ErrorCode.NONE
