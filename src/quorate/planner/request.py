"""What a plan is for, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from quorate.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """The purposes of a plan, which may be combined, and its limits.

    Without `balance` a plan moves as little as its purposes need: only replicas of drained brokers,
    new replicas of topics whose replication factor grows, and replicas that move to added brokers.
    With it, every replica may move.
    """

    balance: bool = False
    drain: frozenset[int] = frozenset()
    """Ids of brokers that are to have no replica."""
    add: frozenset[int] = frozenset()
    """Ids of brokers that are to get their share. Without `balance` no other broker gets a replica for it."""
    replication: Mapping[str, int] = field(default_factory=dict)
    """The replication factors that topics are to have."""
    tolerance: float = 0.05
    """How far the load of a broker may be from its fair share, as a fraction of it."""
    wave_bytes: int = 50 << 30
    """The most bytes that a broker sends and receives in a wave, unless a single move has more."""
    wave_moves: int = 100
    """The most replicas that a broker sends and receives in a wave."""
    exclude: frozenset[str] = frozenset()
    """Topics that are left as they are. They count for the load of brokers."""
