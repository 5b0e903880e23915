"""Rebalances of classic groups: waits for members, removes members, and starts generations.

A rebalance waits in three places, each with its timer. The first rebalance of a group waits
`group.initial.rebalance.delay.ms` for more members. A later one waits the largest rebalance timeout for
all members to rejoin. A new generation waits as long for all members to sync. KIP-62, KIP-134, KIP-345.
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
    current_members,
    join_error,
    join_response,
    sync_error,
    sync_response,
)
from quorate.broker.coordinators.group.classic.member_timers import MemberTimers
from quorate.broker.coordinators.group.config import GroupCoordinatorConfig
from quorate.broker.coordinators.group.model import StateStore, group_record
from quorate.broker.coordinators.group.timer_events import (
    HeartbeatExpired,
    InitialDelayExpired,
    JoinExpired,
    SyncExpired,
    TimerEvent,
)
from quorate.broker.coordinators.result import CoordinatorResult, StepTime
from quorate.broker.coordinators.timer import CoordinatorTimer
from quorate.protocol.errors import ErrorCode

logger = logging.getLogger("quorate.group")

LEAST_WAIT_MS = 100
"""The least time between two checks of static members that have not joined.

Their rebalance timeout may be 0.
"""


class Rebalancer:
    """Moves the classic groups of a shard between their states."""

    __slots__ = ("_config", "_sessions", "_store", "_timer")

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        store: StateStore,
        timer: CoordinatorTimer[TimerEvent],
        sessions: MemberTimers,
    ) -> None:
        self._config = config
        self._store = store
        self._timer = timer
        self._sessions = sessions

    # --- rebalance --------------------------------------------------------------------------------

    def rebalance_or_complete(
        self, group: ClassicGroup, reason: str, at: StepTime, out: CoordinatorResult
    ) -> None:
        """Starts a rebalance, or completes the running one if all members have joined."""
        if group.can_rebalance:
            self.prepare_rebalance(group, reason, at, out)
        else:
            self.complete_join_if_all_joined(group, at, out)

    def prepare_rebalance(
        self, group: ClassicGroup, reason: str, at: StepTime, out: CoordinatorResult
    ) -> None:
        """Starts a rebalance: all members must join again."""
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
            self.answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, at, out)
        group.pending_sync.clear()
        self._timer.cancel(("sync", group.group_id))
        initial = group.state is ClassicGroupState.EMPTY
        group.transition_to(ClassicGroupState.PREPARING_REBALANCE, at.wall_ms)
        logger.info(
            "[Group %s] Preparing to rebalance from generation %d (%s).",
            group.group_id,
            group.generation_id,
            reason,
        )
        if initial:
            delay_ms = self._config.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._initial_delay(group, delay_ms, remaining_ms, at, out)
        elif group.all_members_joined:
            self.complete_join(group, at, out)
        else:
            self._timer.set(
                ("join", group.group_id),
                at.now + group.rebalance_timeout_ms / 1000,
                JoinExpired(group.group_id),
            )

    def _initial_delay(
        self, group: ClassicGroup, delay_ms: int, remaining_ms: int, at: StepTime, out: CoordinatorResult
    ) -> None:
        if delay_ms <= 0:
            # Without a delay the first member alone is the first generation.
            self.complete_join(group, at, out)
            return
        event = InitialDelayExpired(group.group_id, delay_ms, remaining_ms)
        self._timer.set(("join", group.group_id), at.now + delay_ms / 1000, event)

    def complete_join_if_all_joined(self, group: ClassicGroup, at: StepTime, out: CoordinatorResult) -> None:
        """Completes the join phase if all members have joined."""
        # The first rebalance keeps its delay even if all have joined: other members may still come.
        if (
            group.state is ClassicGroupState.PREPARING_REBALANCE
            and group.previous_state is not ClassicGroupState.EMPTY
            and group.all_members_joined
        ):
            self.complete_join(group, at, out)

    def complete_join(self, group: ClassicGroup, at: StepTime, out: CoordinatorResult) -> None:
        """Ends the join phase. Removes dynamic members that did not rejoin, and answers the others with the
        new generation."""
        self._timer.cancel(("join", group.group_id))
        missing = [m.member_id for m in group.members.values() if not m.awaits_join and not m.is_static]
        for member_id in missing:
            group.remove(member_id)
            self._sessions.end(group, member_id)
        if missing:
            logger.info(
                "[Group %s] Removed members that did not rejoin: %s.", group.group_id, ", ".join(missing)
            )
        if not group.elect_joined_leader() and group.members:
            # All remaining members are static and none has joined: wait until one joins or expires.
            wait_ms = max(group.rebalance_timeout_ms, LEAST_WAIT_MS)
            self._timer.set(("join", group.group_id), at.now + wait_ms / 1000, JoinExpired(group.group_id))
            return
        group.next_generation(at.wall_ms)
        if group.state is ClassicGroupState.EMPTY:
            logger.info("[Group %s] Generation %d is empty.", group.group_id, group.generation_id)
            out.records.append(group_record(group, {}))
            out.replay = False
            return
        logger.info(
            "[Group %s] Generation %d has %d members.",
            group.group_id,
            group.generation_id,
            len(group.members),
        )
        for member in group.members.values():
            members = current_members(group) if group.is_leader(member.member_id) else []
            token = group.take_join_token(member)
            if token is not None:
                out.replies.append((token, join_response(group, member.member_id, members)))
            self._sessions.start(group, member.member_id, member.session_timeout_ms, at)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        event = SyncExpired(group.group_id, group.generation_id)
        self._timer.set(("sync", group.group_id), at.now + group.rebalance_timeout_ms / 1000, event)

    def answer_syncs(
        self, group: ClassicGroup, error: ErrorCode, at: StepTime, out: CoordinatorResult
    ) -> None:
        """Answers the waiting SyncGroups and restarts the sessions of their members. Without an error the
        rebalance is complete."""
        self._store.counts.completed_rebalances += error is ErrorCode.NONE
        for member in group.members.values():
            token, member.sync_token = member.sync_token, None
            if token is None:
                continue
            answer = sync_response(group, member.assignment) if error is ErrorCode.NONE else sync_error(error)
            out.replies.append((token, answer))
            # Its session may have expired without effect while the request waited. It counts again from now.
            self._sessions.start(group, member.member_id, member.session_timeout_ms, at)

    def drop_member(self, group: ClassicGroup, member: ClassicGroupMember, out: CoordinatorResult) -> None:
        """Removes a member and answers its waiting requests with UNKNOWN_MEMBER_ID."""
        self._sessions.end(group, member.member_id)
        token = group.take_join_token(member)
        if token is not None:
            # If the client is still alive, it joins again.
            out.replies.append((token, join_error(UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID)))
        if member.sync_token is not None:
            out.replies.append((member.sync_token, sync_error(ErrorCode.UNKNOWN_MEMBER_ID)))
            member.sync_token = None
        group.remove(member.member_id)

    # --- timers -----------------------------------------------------------------------------------

    def expire(self, event: TimerEvent, at: StepTime) -> CoordinatorResult:
        """Handles an expired timer. Timers of groups that no longer exist have no effect."""
        out = CoordinatorResult(replay=False)
        group = self._store.classic_group(event.group_id)
        if group is None or group.state is ClassicGroupState.DEAD:
            return out
        match event:
            case HeartbeatExpired(member_id=member_id):
                self._heartbeat_expired(group, member_id, at, out)
            case JoinExpired():
                if group.state is ClassicGroupState.PREPARING_REBALANCE:
                    self.complete_join(group, at, out)
            case InitialDelayExpired(delay_ms=delay_ms, remaining_ms=remaining_ms):
                if group.state is not ClassicGroupState.PREPARING_REBALANCE:
                    return out
                if group.new_member_added and remaining_ms > 0:
                    group.new_member_added = False
                    next_delay_ms = min(self._config.initial_rebalance_delay_ms, remaining_ms)
                    self._initial_delay(group, next_delay_ms, max(remaining_ms - delay_ms, 0), at, out)
                else:
                    self.complete_join(group, at, out)
            case SyncExpired(generation_id=generation_id):
                if generation_id == group.generation_id and group.pending_sync and group.can_rebalance:
                    late = sorted(group.pending_sync)
                    for member_id in late:
                        member = group.members.get(member_id)
                        if member is not None:
                            self.drop_member(group, member, out)
                    self.prepare_rebalance(group, f"members did not sync in time: {', '.join(late)}", at, out)
        return out

    def _heartbeat_expired(
        self, group: ClassicGroup, member_id: str, at: StepTime, out: CoordinatorResult
    ) -> None:
        if member_id in group.pending_join:
            group.remove(member_id)
            logger.info(
                "[Group %s] Pending member %s did not come back in its session timeout.",
                group.group_id,
                member_id,
            )
        elif member_id in group.members and not group.members[member_id].heartbeat_satisfied:
            logger.info(
                "[Group %s] Member %s failed to heartbeat in its session timeout.", group.group_id, member_id
            )
            self.drop_member(group, group.members[member_id], out)
            if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
                self.rebalance_or_complete(group, f"session of member {member_id} expired", at, out)
                return
        else:
            return
        if group.state is ClassicGroupState.PREPARING_REBALANCE and group.all_members_joined:
            self.complete_join(group, at, out)

    def start_loaded_group(self, group: ClassicGroup, at: StepTime) -> CoordinatorResult:
        """Starts the sessions of a group that was loaded. A group with more members than
        `group.max.size` rebalances."""
        out = CoordinatorResult(replay=False)
        for member in group.members.values():
            self._sessions.start(group, member.member_id, member.session_timeout_ms, at)
        if len(group.members) > self._config.max_size:
            self.prepare_rebalance(group, f"loaded over capacity ({self._config.max_size})", at, out)
        return out
