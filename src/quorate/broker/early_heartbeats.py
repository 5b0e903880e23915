"""Decides when a broker sends a heartbeat early because another broker is in controlled shutdown. Pure:
time is an argument.

The controller ends a controlled shutdown when every active broker has reported a metadata offset at or
after the records that moved the leaderships (KIP-631, `BrokerHeartbeatManager.lowestActiveOffset` in
Kafka). Heartbeats carry that offset. With regular heartbeats only, each controlled shutdown would take up
to the interval of the slowest broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorate.metadata.image import MetadataDelta

PER_BROKER_S = 0.001
"""All brokers together send about one early heartbeat in this time, so that many brokers do not overload the
controller."""


class EarlyHeartbeats:
    """The early heartbeats of one broker. Their distance doubles while the same brokers are shutting down, so
    that a long shutdown costs little."""

    def __init__(self, node_id: int, interval_s: float) -> None:
        """`interval_s` is the time between regular heartbeats."""
        self._node_id = node_id
        self._interval_s = interval_s
        self._followed = False
        self._leaving: frozenset[tuple[int, int]] = frozenset()
        self._distance_s = 0.0
        self._turn_s = 0.0
        self._sent = float("-inf")
        self._due = float("-inf")

    def metadata_applied(self, delta: MetadataDelta, now: float) -> float | None:
        """Returns the seconds until a heartbeat must be sent to report this delta. It replaces an early
        heartbeat that was not sent yet. Returns None if the delta needs no heartbeat, or if the one that is
        planned will report it."""
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
        """Updates the set of brokers in controlled shutdown. Returns whether a broker has started one."""
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
            # All brokers get the delta at the same time. They report one after the other, in the order of
            # their ids.
            self._turn_s = PER_BROKER_S * sum(
                broker.active and broker.id < self._node_id for broker in brokers.values()
            )
        self._leaving = leaving
        return began
