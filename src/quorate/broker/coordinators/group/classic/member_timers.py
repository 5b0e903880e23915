"""The session timeouts of the members of classic groups. Only sets the timers; `rebalance.Rebalancer.expire`
removes the member."""

from __future__ import annotations

from quorate.broker.coordinators.group.classic.classic_group import ClassicGroup
from quorate.broker.coordinators.group.timer_events import HeartbeatExpired, TimerEvent
from quorate.broker.coordinators.result import StepTime
from quorate.broker.coordinators.timer import CoordinatorTimer


class MemberTimers:
    """Sets the heartbeat timers of members."""

    __slots__ = ("_timer",)

    def __init__(self, timer: CoordinatorTimer[TimerEvent]) -> None:
        self._timer = timer

    def start(self, group: ClassicGroup, member_id: str, timeout_ms: int, at: StepTime) -> None:
        """Starts or restarts a timer, also that of a member that has not joined yet."""
        event = HeartbeatExpired(group.group_id, member_id)
        self._timer.set(("heartbeat", group.group_id, member_id), at.now + timeout_ms / 1000, event)

    def restart(self, group: ClassicGroup, member_id: str, at: StepTime) -> None:
        """Restarts the session of a member. Unknown members are ignored."""
        member = group.members.get(member_id)
        if member is not None:
            self.start(group, member_id, member.session_timeout_ms, at)

    def end(self, group: ClassicGroup, member_id: str) -> None:
        """Ends the session of a member that left."""
        self._timer.cancel(("heartbeat", group.group_id, member_id))
