"""Measures the event loop: how much later than asked a timer fires, and how much of its thread's
time is idle.

Raft, heartbeats and clients share one loop, so a callback that runs for long delays all of them. The
monitor sees every delay longer than its interval, and a shorter one with the probability that the two
meet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator

from quorate.metrics import Family, gauge, percent
from quorate.raft.runtime.metrics import Metric, Windowed

logger = logging.getLogger("quorate.node.loop_lag")

INTERVAL_S = 0.02
"""Fifty wake-ups a second cost about a thousandth of a core."""

WARN_S = 1.0
"""Half of the default fetch timeout of the quorum: a node that stops for longer is about to lose its
role.
"""


class LoopLagMonitor:
    """Fires a timer at a fixed interval and records by how much each one is late."""

    def __init__(self, loop: asyncio.AbstractEventLoop, node_id: int, interval_s: float = INTERVAL_S) -> None:
        self._loop = loop
        self._node_id = node_id
        self._interval_s = interval_s
        self._lag_ms = Windowed(loop.time())
        self._started_at = loop.time()
        self._busy_s = Windowed(loop.time())
        self._thread_s = 0.0
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self.highest_ms = 0.0
        """The greatest lag since the start."""

    def start(self) -> None:
        """Begins to measure. Called in the thread of the loop."""
        self._thread_s = time.thread_time()
        self._schedule()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _schedule(self) -> None:
        self._due = self._loop.time() + self._interval_s
        self._handle = self._loop.call_at(self._due, self._fired)

    def _fired(self) -> None:
        now = self._loop.time()
        thread_s = time.thread_time()
        self._busy_s.record(thread_s - self._thread_s, now)
        self._thread_s = thread_s
        lag_s = max(now - self._due, 0.0)
        self._lag_ms.record(lag_s * 1000, now)
        self.highest_ms = max(self.highest_ms, lag_s * 1000)
        if lag_s >= WARN_S:
            logger.warning("[KafkaServer id=%d] The event loop was blocked for %.1f s", self._node_id, lag_s)
        self._schedule()

    def metrics(self) -> Iterable[Metric]:
        """Average and maximum over the last 30 to 60 seconds, and the maximum since the start, in
        milliseconds.
        """
        now = self._loop.time()
        yield Metric(
            "event-loop-lag-ms-avg",
            "Average delay of timers of the event loop, in ms.",
            self._lag_ms.average(now),
        )
        yield Metric(
            "event-loop-lag-ms-max",
            "Greatest delay of a timer of the event loop, in ms.",
            self._lag_ms.maximum(now),
        )
        yield Metric(
            "event-loop-lag-ms-highest",
            "Greatest delay of a timer of the event loop since the start, in ms.",
            self.highest_ms,
        )

    def families(self) -> Iterator[Family]:
        """The share of time in which the loop uses no CPU.

        Kafka has threads for the network and for requests, where a node has one loop for both.
        """
        idle = max(0.0, 1.0 - self._busy_s.share(self._loop.time(), self._started_at))
        text = "Share of time in which the event loop uses no CPU, over the last 30 to 60 seconds."
        yield percent("server.KafkaRequestHandlerPool.RequestHandlerAvgIdlePercent", text, idle)
        yield percent("network.SocketServer.NetworkProcessorAvgIdlePercent", text, idle)
        yield gauge("network.SocketServer.NetworkProcessorAvgIdlePercent", text, idle)
