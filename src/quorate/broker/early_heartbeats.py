"""Decides when a broker sends a heartbeat early because another broker is in controlled shutdown. Pure:
time is an argument.

The controller lets a broker go when every active broker has reported a metadata offset at or beyond the
records that moved the leaderships away (KIP-631, Kafka's `BrokerHeartbeatManager.lowestActiveOffset`).
Heartbeats carry that offset. If they came at their regular interval only, each controlled shutdown
would wait for the rest of the interval of the slowest broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorate.metadata.image import MetadataDelta

PER_BROKER_S = 0.001
"""All brokers together send about one early heartbeat in this time, so that a hundred of them do not
flood the controller."""


class EarlyHeartbeats:
    """One broker's. Distances double while the same brokers are shutting down: a shutdown that takes
    long costs little."""

    def __init__(self, node_id: int, interval_s: float) -> None:
        """interval_s: between regular heartbeats."""
        self._node_id = node_id
        self._interval_s = interval_s
        self._followed = False
        self._leaving: frozenset[tuple[int, int]] = frozenset()
        self._distance_s = 0.0
        self._turn_s = 0.0
        self._sent = float("-inf")
        self._due = float("-inf")

    def metadata_applied(self, delta: MetadataDelta, now: float) -> float | None:
        """Seconds until a heartbeat is to be sent early to report this step of the metadata; instead of
        one that was decided on before and is not due yet. None if no heartbeat is to be sent for this
        step, or the one that is due reports it too.
        """
        others_began = self._follow(delta)
        if not self._leaving:
            return None
        if now >= self._due:
            self._sent = self._due
        elif not others_began:
            return None
        due = max(now + self._turn_s if others_began else now, self._sent + self._distance_s)
        if now < self._due <= due:
            return None
        self._due = due
        if not others_began:
            self._distance_s = min(self._distance_s * 2, self._interval_s)
        return due - now

    def _follow(self, delta: MetadataDelta) -> bool:
        """Notes who is shutting down now; whether another broker began to."""
        brokers = delta.new.cluster.brokers
        if brokers is delta.old.cluster.brokers and self._followed:
            return False
        self._followed = True
        leaving = frozenset(
            (broker.id, broker.epoch)
            for broker in brokers.values()
            if broker.in_controlled_shutdown and not broker.fenced and broker.id != self._node_id
        )
        began = bool(leaving - self._leaving)
        if began:
            self._distance_s = PER_BROKER_S * len(brokers)
            # All of them see the same step at the same moment: they report one after the other, in the
            # order of their ids.
            self._turn_s = PER_BROKER_S * sum(
                broker.active and broker.id < self._node_id for broker in brokers.values()
            )
        self._leaving = leaving
        return began
