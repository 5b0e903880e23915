"""Rules of the classic group protocol: what JoinGroup, SyncGroup, Heartbeat and LeaveGroup ask of a group.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance ...; Empty again
    without members

Pure: time and fresh ids come in with the call, answers and records go out in an `Outcome`; how a group
moves between its states is in `rebalance.py`. Facts: KIP-62, KIP-345 (static members), KIP-394 (member
id before joining), KIP-814 (skip the assignment).
"""

from __future__ import annotations

import logging
from dataclasses import replace

from quorate.broker.coordinators.classic_answers import (
    append_error,
    check_sync,
    current_members,
    foreign_tombstones,
    join_error,
    join_reason,
    joined,
    rebalance_timeout,
    request_protocols,
    sync_error,
    synced,
)
from quorate.broker.coordinators.classic_group import (
    UNKNOWN_MEMBER_ID,
    ClassicGroup,
    GroupState,
    Member,
    Token,
)
from quorate.broker.coordinators.model import (
    Caller,
    ForeignGroup,
    ForeignType,
    Instant,
    Outcome,
    Record,
    empty_group,
    stored_group,
)
from quorate.broker.coordinators.rebalance import RebalanceRules
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.messages.join_group import JoinGroupRequest
from quorate.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from quorate.protocol.messages.sync_group import SyncGroupRequest

log = logging.getLogger("quorate.group")

KNOWN_MEMBER_ID_VERSION = 4
"""From this JoinGroup version a new dynamic member is first given its id and must join again with it."""
SKIP_ASSIGNMENT_VERSION = 9
"""From this JoinGroup version a static leader that comes back is told to lead without computing an
assignment."""


class ClassicRules(RebalanceRules):
    """Adds the requests of the classic protocol to the moves of a group."""

    __slots__ = ()

    # -- JoinGroup
    # ----------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, caller: Caller, token: Token, at: Instant) -> Outcome:
        """Lets a member in, or parks it until the rebalance that its coming starts is complete."""
        out = Outcome(replay=False)
        tombstones: list[Record] = []
        group_id, member_id = request.group_id, request.member_id
        known = self.state.groups.get(group_id)
        if isinstance(known, ForeignGroup):
            if not known.is_empty or known.group_type is not ForeignType.CONSUMER:
                out.replies.append(
                    (token, join_error(UNKNOWN_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
                )
                return out
            # An empty group of the newer protocol becomes a classic one when a classic member comes.
            tombstones = foreign_tombstones(known)
            self.state = replace(self.state, groups=self.state.groups.delete(group_id))
            known = None
        group = known
        is_new_group = group is None
        if group is None:
            if member_id != UNKNOWN_MEMBER_ID:
                out.replies.append((token, join_error(member_id, ErrorCode.UNKNOWN_MEMBER_ID)))
                out.records = tombstones
                return out
            group = ClassicGroup(group_id, state_timestamp_ms=at.wall_ms)
            self._put_group(group)
        if not self._accepts(group, member_id):
            group.remove(member_id)
            out.replies.append((token, join_error(UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)))
        elif member_id == UNKNOWN_MEMBER_ID:
            self._join_new(group, request, caller, token, at, out)
        else:
            self._join_known(group, request, caller, token, at, out)
        if is_new_group and not out.records and out.after is None:
            answered = bool(out.replies)

            def stored(error: ErrorCode, _: Instant) -> Outcome:
                if error is ErrorCode.NONE or answered:
                    return Outcome()
                return Outcome(replies=[(token, join_error(UNKNOWN_MEMBER_ID, append_error(error)))])

            out.records = [empty_group(group)]
            out.after = stored
        out.records[:0] = tombstones
        return out

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether `group.max.size` leaves room. While members rejoin, those already parked are counted,
        so that the last ones are turned away.
        """
        match group.state:
            case GroupState.EMPTY | GroupState.DEAD:
                return True
            case GroupState.PREPARING_REBALANCE:
                member = group.members.get(member_id)
                return (
                    member is not None and member.awaits_join
                ) or group.awaiting_join_count < self.config.max_size
            case _:
                return member_id in group.members or len(group.members) < self.config.max_size

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        token: Token,
        at: Instant,
        out: Outcome,
    ) -> None:
        protocols = request_protocols(request)
        if group.state is GroupState.DEAD:
            out.replies.append((token, join_error(UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE)))
            return
        if not group.supports_protocols(request.protocol_type, [name for name, _ in protocols]):
            out.replies.append((token, join_error(UNKNOWN_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
            return
        instance_id = request.group_instance_id
        new_id = f"{caller.client_id if instance_id is None else instance_id}-{caller.fresh_id}"
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is not None:
                log.info(
                    "[Group %s] Static member %s joins in state %s with unknown member id; it replaces "
                    "member %s.",
                    group.group_id, instance_id, group.state.value, old_id,
                )  # fmt: skip
                self._replace_static(group, request, caller, old_id, new_id, token, at, out)
                return
        elif caller.api_version >= KNOWN_MEMBER_ID_VERSION:
            group.pending_join.add(new_id)
            self._arm_heartbeat(group, new_id, request.session_timeout_ms, at)
            log.info(
                "[Group %s] New dynamic member in state %s is asked to rejoin as %s.",
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
        at: Instant,
        out: Outcome,
    ) -> None:
        member_id = request.member_id
        protocols = request_protocols(request)
        if group.state is GroupState.DEAD:
            out.replies.append((token, join_error(member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)))
            return
        if not group.supports_protocols(request.protocol_type, [name for name, _ in protocols]):
            out.replies.append((token, join_error(member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
            return
        if member_id in group.pending_join:
            if request.group_instance_id is not None:
                # A pending member is always dynamic: this request mixes two clients' identities.
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
        same = member.protocols == protocols
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                self._update_member(group, member, request, token, "member rejoins", at, out)
            case GroupState.COMPLETING_REBALANCE if same:
                # It probably missed the first answer: the generation that it is in is told again.
                members = current_members(group) if group.is_leader(member_id) else []
                out.replies.append((token, joined(group, member_id, members)))
            case GroupState.STABLE if same and not group.is_leader(member_id):
                out.replies.append((token, joined(group, member_id, [])))
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
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
        at: Instant,
        out: Outcome,
    ) -> None:
        member = Member(
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
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member, token)
        # A new member cannot heartbeat while its first join is parked, and its going away is not seen:
        # the join itself times out.
        self._arm_heartbeat(group, member_id, self.config.new_member_join_timeout_ms, at)
        self._rebalance_or_complete(group, f"new member {member_id}; {join_reason(request)}", at, out)

    def _update_member(
        self,
        group: ClassicGroup,
        member: Member,
        request: JoinGroupRequest,
        token: Token,
        reason: str,
        at: Instant,
        out: Outcome,
    ) -> None:
        superseded = member.join_token
        rebalance_ms = (
            request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
        )
        group.update(member, request_protocols(request), rebalance_ms, request.session_timeout_ms, token)
        if superseded is not None:
            # The client sent its join again; the first must be answered too, or it would block what
            # follows on its connection.
            out.replies.append((superseded, join_error(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)))
        self._rebalance_or_complete(group, f"{reason}; {join_reason(request)}", at, out)

    def _replace_static(
        self, group: ClassicGroup, request: JoinGroupRequest, caller: Caller, old_id: str, new_id: str, token: Token,
        at: Instant, out: Outcome
    ) -> None:  # fmt: skip
        """A static member came back under its instance id: as long as its protocols elect the same one,
        nobody else notices.
        """
        instance_id = request.group_instance_id
        assert instance_id is not None
        leader_before = group.leader_id
        member, join_token, sync_token = group.replace_static(instance_id, old_id, new_id)
        if join_token is not None:
            out.replies.append((join_token, join_error(old_id, ErrorCode.FENCED_INSTANCE_ID)))
        if sync_token is not None:
            out.replies.append((sync_token, sync_error(ErrorCode.FENCED_INSTANCE_ID)))
        self.timers.cancel(("heartbeat", group.group_id, old_id))
        self._arm_heartbeat(group, new_id, member.session_timeout_ms, at)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update(
            member,
            request_protocols(request),
            rebalance_timeout(request, caller),
            request.session_timeout_ms,
            token,
        )
        match group.state:
            case GroupState.STABLE if group.select_protocol() == group.protocol_name:

                def stored(error: ErrorCode, when: Instant) -> Outcome:
                    if group.members.get(new_id) is not member:
                        return Outcome()
                    parked = group.take_join_token(member)
                    if parked is None:
                        return Outcome()
                    if error is not ErrorCode.NONE:
                        group.update(member, *before, None)
                        old, _, _ = group.replace_static(instance_id, new_id, old_id)
                        self._arm_heartbeat(group, old_id, old.session_timeout_ms, when)
                        failed = joined(group, UNKNOWN_MEMBER_ID, [], leader=leader_before)
                        failed.error_code = append_error(error)
                        return Outcome(replies=[(parked, failed)])
                    if caller.api_version >= SKIP_ASSIGNMENT_VERSION:
                        leads = group.is_leader(new_id)
                        answer = joined(group, new_id, current_members(group) if leads else [])
                        answer.skip_assignment = leads
                    else:
                        # Told of the old leader id, it does not take itself for the leader and so computes no
                        # assignment.
                        answer = joined(group, new_id, [], leader=leader_before)
                    return Outcome(replies=[(parked, answer)])

                out.records = [
                    stored_group(group, {m.member_id: m.assignment for m in group.members.values()})
                ]
                out.after = stored
            case GroupState.STABLE:
                self._rebalance_or_complete(
                    group, f"static member {instance_id} changes the protocol", at, out
                )
            case GroupState.COMPLETING_REBALANCE:
                # The leader may be assigning to the old id just now.
                self._prepare_rebalance(group, f"static member {instance_id} has a new id", at, out)
            case _:
                self._complete_join_if_all_in(group, at, out)

    # -- SyncGroup
    # ----------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, token: Token, at: Instant) -> Outcome:
        """Takes the leader's assignment, or parks a follower until it comes."""
        out = Outcome(replay=False)
        group = self.classic_group(request.group_id)
        code = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None and group.state is not GroupState.EMPTY:
            code = check_sync(group, request)
        if group is None or code is not ErrorCode.NONE:
            out.replies.append((token, sync_error(code)))
            return out
        member = group.members[request.member_id]
        if group.state is GroupState.PREPARING_REBALANCE:
            out.replies.append((token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS)))
            return out
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self.timers.cancel(("sync", group.group_id))
        if group.state is GroupState.STABLE:
            answer = synced(group, member.assignment)

            def committed(error: ErrorCode, _: Instant) -> Outcome:
                told = answer if error is ErrorCode.NONE else sync_error(append_error(error))
                return Outcome(replies=[(token, told)])

            # A new coordinator may have read the assignment from a record that is not committed yet.
            # Should the next election lose that, the same generation would get another assignment.
            out.after = committed
            return out
        if member.sync_token is not None:
            out.replies.append((member.sync_token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.sync_token = token
        if not group.is_leader(member.member_id) or group.storing_generation == group.generation_id:
            # A leader that syncs again gets what it said first, as everybody: a second record would
            # stand in the log after the first, and the next coordinator would give the same generation
            # another assignment.
            return out
        given = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
        assignment = {member_id: given.get(member_id, b"") for member_id in group.members}
        generation = group.generation_id

        def stored(error: ErrorCode, when: Instant) -> Outcome:
            done = Outcome(replay=False)
            if group.storing_generation == generation:
                group.storing_generation = None
            # Someone may have joined or left while the record was on its way.
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != generation:
                return done
            if error is ErrorCode.NONE:
                for each in group.members.values():
                    each.assignment = assignment.get(each.member_id, b"")
                self._answer_syncs(group, ErrorCode.NONE, when, done)
                group.transition_to(GroupState.STABLE, when.wall_ms)
                return done
            for each in group.members.values():
                each.assignment = b""
            self._answer_syncs(group, append_error(error), when, done)
            self._rebalance_or_complete(
                group, f"the assignment could not be stored: {error.name}", when, done
            )
            return done

        group.storing_generation = generation
        out.records = [stored_group(group, assignment)]
        out.after = stored
        return out

    # -- Heartbeat, LeaveGroup
    # ----------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, at: Instant) -> HeartbeatResponse:
        """Keeps a session alive; REBALANCE_IN_PROGRESS tells the member to rejoin."""
        group = self.classic_group(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is GroupState.DEAD:
            return HeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            group.validate_member(request.member_id, request.group_instance_id)
        except KafkaError as error:
            return HeartbeatResponse(error_code=error.code)
        if request.generation_id != group.generation_id:
            return HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
        if group.state is GroupState.EMPTY:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        self.touch(group, request.member_id, at)
        if group.state is GroupState.PREPARING_REBALANCE:
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def leave(self, request: LeaveGroupRequest, token: Token, at: Instant) -> Outcome:
        """Removes members at once; an administrator may name static ones by instance id alone."""
        out = Outcome(replay=False)
        group = self.classic_group(request.group_id)
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
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._rebalance_or_complete(group, reason, at, out)
            elif group.state is GroupState.PREPARING_REBALANCE:
                self._complete_join_if_all_in(group, at, out)
        if not out.records:
            out.replies.append((token, response))
            return out

        def stored(error: ErrorCode, _: Instant) -> Outcome:
            failed = error is not ErrorCode.NONE
            answer = LeaveGroupResponse(error_code=append_error(error)) if failed else response
            return Outcome(replies=[(token, answer)])

        out.after = stored
        return out

    def _leave_one(
        self, group: ClassicGroup, member_id: str, instance_id: str | None, out: Outcome
    ) -> ErrorCode:
        if member_id == UNKNOWN_MEMBER_ID:
            static_id = group.static_members.get(instance_id) if instance_id is not None else None
            if static_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = static_id
        elif member_id in group.pending_join:
            group.remove(member_id)
            self.timers.cancel(("heartbeat", group.group_id, member_id))
            return ErrorCode.NONE
        else:
            try:
                group.validate_member(member_id, instance_id)
            except KafkaError as error:
                return error.code
        self._drop_member(group, group.members[member_id], out)
        return ErrorCode.NONE
