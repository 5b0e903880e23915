"""How a classic group rebalances: who is waited for and how long, who is dropped, and what falls due.

A rebalance waits in three places, each with its timer: a first one `group.initial.rebalance.delay.ms`
for company, a later one the largest rebalance timeout for all members to rejoin, and a new generation
as long for all to sync. Pure: see `classic.py`. KIP-62, KIP-134, KIP-345.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from quorate.broker.coordinators.classic_answers import (
    current_members,
    join_error,
    joined,
    sync_error,
    synced,
)
from quorate.broker.coordinators.classic_group import UNKNOWN_MEMBER_ID, ClassicGroup, GroupState, Member
from quorate.broker.coordinators.model import (
    GroupConfig,
    Instant,
    Outcome,
    ShardState,
    stored_group,
)
from quorate.broker.coordinators.timers import Timers
from quorate.protocol.errors import ErrorCode

log = logging.getLogger("quorate.group")


@dataclass(frozen=True, slots=True)
class HeartbeatExpired:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class JoinExpired:
    group_id: str


@dataclass(frozen=True, slots=True)
class InitialDelayOver:
    group_id: str
    delay_ms: int
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class SyncExpired:
    group_id: str
    generation_id: int


Due = HeartbeatExpired | JoinExpired | InitialDelayOver | SyncExpired


class RebalanceRules:
    """Base of a shard: its state, its timers, and the moves of a group between its states."""

    __slots__ = ("config", "state", "timers")

    def __init__(self, config: GroupConfig, timers: Timers[Due]) -> None:
        self.config = config
        self.timers = timers
        self.state = ShardState()

    # -- lookups
    # ----------------------------------------------------------------------------------------------

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        group = self.state.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _put_group(self, group: ClassicGroup) -> None:
        self.state = replace(self.state, groups=self.state.groups.set(group.group_id, group))

    # -- rebalance
    # ----------------------------------------------------------------------------------------------

    def _rebalance_or_complete(self, group: ClassicGroup, reason: str, at: Instant, out: Outcome) -> None:
        if group.can_rebalance:
            self._prepare_rebalance(group, reason, at, out)
        else:
            self._complete_join_if_all_in(group, at, out)

    def _prepare_rebalance(self, group: ClassicGroup, reason: str, at: Instant, out: Outcome) -> None:
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
            self._answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, at, out)
        group.pending_sync.clear()
        self.timers.cancel(("sync", group.group_id))
        initial = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, at.wall_ms)
        log.info(
            "[Group %s] Preparing to rebalance from generation %d (%s).",
            group.group_id,
            group.generation_id,
            reason,
        )
        if initial:
            delay_ms = self.config.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._initial_delay(group, delay_ms, remaining_ms, at, out)
        elif group.all_members_joined:
            self._complete_join(group, at, out)
        else:
            self.timers.set(
                ("join", group.group_id),
                at.now + group.rebalance_timeout_ms / 1000,
                JoinExpired(group.group_id),
            )

    def _initial_delay(
        self, group: ClassicGroup, delay_ms: int, remaining_ms: int, at: Instant, out: Outcome
    ) -> None:
        if delay_ms <= 0:
            # Without a delay nobody is waited for: the first member alone is the first generation.
            self._complete_join(group, at, out)
            return
        event = InitialDelayOver(group.group_id, delay_ms, remaining_ms)
        self.timers.set(("join", group.group_id), at.now + delay_ms / 1000, event)

    def _complete_join_if_all_in(self, group: ClassicGroup, at: Instant, out: Outcome) -> None:
        # A first rebalance keeps its delay even when all have joined: others may be on their way.
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and group.all_members_joined
        ):
            self._complete_join(group, at, out)

    def _complete_join(self, group: ClassicGroup, at: Instant, out: Outcome) -> None:
        """Ends the join phase: whoever did not rejoin is out (static members stay), the others learn of
        the new generation.
        """
        self.timers.cancel(("join", group.group_id))
        missing = [m.member_id for m in group.members.values() if not m.awaits_join and not m.is_static]
        for member_id in missing:
            group.remove(member_id)
            self.timers.cancel(("heartbeat", group.group_id, member_id))
        if missing:
            log.info(
                "[Group %s] Removed members that did not rejoin: %s.", group.group_id, ", ".join(missing)
            )
        if not group.elect_joined_leader() and group.members:
            # Only static members are left and none of them joined: wait until sessions expire or one comes.
            self.timers.set(
                ("join", group.group_id),
                at.now + group.rebalance_timeout_ms / 1000,
                JoinExpired(group.group_id),
            )
            return
        group.next_generation(at.wall_ms)
        if group.state is GroupState.EMPTY:
            log.info("[Group %s] Generation %d is empty.", group.group_id, group.generation_id)
            out.records.append(stored_group(group, {}))
            out.replay = False
            return
        log.info(
            "[Group %s] Generation %d has %d members.",
            group.group_id,
            group.generation_id,
            len(group.members),
        )
        for member in group.members.values():
            members = current_members(group) if group.is_leader(member.member_id) else []
            token = group.take_join_token(member)
            if token is not None:
                out.replies.append((token, joined(group, member.member_id, members)))
            self._arm_heartbeat(group, member.member_id, member.session_timeout_ms, at)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        event = SyncExpired(group.group_id, group.generation_id)
        self.timers.set(("sync", group.group_id), at.now + group.rebalance_timeout_ms / 1000, event)

    def _answer_syncs(self, group: ClassicGroup, error: ErrorCode, at: Instant, out: Outcome) -> None:
        for member in group.members.values():
            token, member.sync_token = member.sync_token, None
            if token is None:
                continue
            answer = synced(group, member.assignment) if error is ErrorCode.NONE else sync_error(error)
            out.replies.append((token, answer))
            # Its session may have run out while it was parked, without effect: from here on it counts again.
            self._arm_heartbeat(group, member.member_id, member.session_timeout_ms, at)

    def _drop_member(self, group: ClassicGroup, member: Member, out: Outcome) -> None:
        self.timers.cancel(("heartbeat", group.group_id, member.member_id))
        token = group.take_join_token(member)
        if token is not None:
            # If its client is alive after all, it joins anew.
            out.replies.append((token, join_error(UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID)))
        if member.sync_token is not None:
            out.replies.append((member.sync_token, sync_error(ErrorCode.UNKNOWN_MEMBER_ID)))
            member.sync_token = None
        group.remove(member.member_id)

    def touch(self, group: ClassicGroup, member_id: str, at: Instant) -> None:
        """Starts a member's session anew; nothing for one that the group does not have."""
        member = group.members.get(member_id)
        if member is not None:
            self._arm_heartbeat(group, member_id, member.session_timeout_ms, at)

    # -- what falls due
    # ----------------------------------------------------------------------------------------------

    def expire(self, due: Due, at: Instant) -> Outcome:
        """Does what a timer of this room was for; one of a group that is gone has no effect."""
        out = Outcome(replay=False)
        group = self.classic_group(due.group_id)
        if group is None or group.state is GroupState.DEAD:
            return out
        match due:
            case HeartbeatExpired(member_id=member_id):
                self._heartbeat_expired(group, member_id, at, out)
            case JoinExpired():
                if group.state is GroupState.PREPARING_REBALANCE:
                    self._complete_join(group, at, out)
            case InitialDelayOver(delay_ms=delay_ms, remaining_ms=remaining_ms):
                if group.state is not GroupState.PREPARING_REBALANCE:
                    return out
                if group.new_member_added and remaining_ms > 0:
                    group.new_member_added = False
                    next_delay_ms = min(self.config.initial_rebalance_delay_ms, remaining_ms)
                    self._initial_delay(group, next_delay_ms, max(remaining_ms - delay_ms, 0), at, out)
                else:
                    self._complete_join(group, at, out)
            case SyncExpired(generation_id=generation_id):
                if generation_id == group.generation_id and group.pending_sync and group.can_rebalance:
                    late = sorted(group.pending_sync)
                    for member_id in late:
                        member = group.members.get(member_id)
                        if member is not None:
                            self._drop_member(group, member, out)
                    self._prepare_rebalance(
                        group, f"members did not sync in time: {', '.join(late)}", at, out
                    )
        return out

    def _heartbeat_expired(self, group: ClassicGroup, member_id: str, at: Instant, out: Outcome) -> None:
        if member_id in group.pending_join:
            group.remove(member_id)
            log.info(
                "[Group %s] Pending member %s did not come back in its session timeout.",
                group.group_id,
                member_id,
            )
        elif member_id in group.members and not group.members[member_id].heartbeat_satisfied:
            log.info(
                "[Group %s] Member %s failed to heartbeat in its session timeout.", group.group_id, member_id
            )
            self._drop_member(group, group.members[member_id], out)
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._rebalance_or_complete(group, f"session of member {member_id} expired", at, out)
                return
        else:
            return
        if group.state is GroupState.PREPARING_REBALANCE and group.all_members_joined:
            self._complete_join(group, at, out)

    def _arm_heartbeat(self, group: ClassicGroup, member_id: str, timeout_ms: int, at: Instant) -> None:
        event = HeartbeatExpired(group.group_id, member_id)
        self.timers.set(("heartbeat", group.group_id, member_id), at.now + timeout_ms / 1000, event)

    def arm_loaded(self, group: ClassicGroup, at: Instant) -> Outcome:
        """After loading: every member gets a full session to show itself; a group over capacity
        rebalances."""
        out = Outcome(replay=False)
        for member in group.members.values():
            self._arm_heartbeat(group, member.member_id, member.session_timeout_ms, at)
        if len(group.members) > self.config.max_size:
            self._prepare_rebalance(group, f"loaded over capacity ({self.config.max_size})", at, out)
        return out
