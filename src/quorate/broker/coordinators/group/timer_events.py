"""The events of a shard's timers."""

from __future__ import annotations

from quorate.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class HeartbeatExpired:
    """A member sent no heartbeat in its session timeout."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class JoinExpired:
    """The rebalance timeout for members to rejoin has passed."""

    group_id: str


@dataclass(frozen=True, slots=True)
class InitialDelayExpired:
    """A part of the delay of a group's first rebalance has passed. The remaining time is used if a member
    joined during this part."""

    group_id: str
    delay_ms: int
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class SyncExpired:
    """The rebalance timeout for members to sync has passed."""

    group_id: str
    generation_id: int


TimerEvent = HeartbeatExpired | JoinExpired | InitialDelayExpired | SyncExpired
