"""One incarnation of a simulated process, from its start to its end: its clock, its transport, its fsyncs."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any, Protocol

from quorate.raft.runtime.client import RaftClient
from quorate.raft.storage.fsync import Syncer
from simulation.nodes.environment import WALL_MS, Environment
from simulation.nodes.loop import CALLBACK_OWNER
from simulation.nodes.network import Network, NetworkNode, SimulatedTransport
from simulation.nodes.state_machine import RecordingStateMachine


class IncarnatedProcess(NetworkNode, Protocol):
    """What an incarnation uses of its process."""

    @property
    def environment(self) -> Environment: ...
    @property
    def network(self) -> Network: ...
    @property
    def rate(self) -> float: ...
    @property
    def wall_offset_ms(self) -> int: ...
    def failed(self, incarnation: Incarnation, error: BaseException) -> None: ...


class Incarnation:
    """A process from its start to its end. Its callbacks run in its context, and only while it is alive.

    It is also the clock that the driver reads, which may run fast or slow.
    """

    def __init__(self, process: IncarnatedProcess) -> None:
        self.process = process
        self.alive = True
        self.ready = False  # the client has started, and serves requests
        self.blocked_until = 0.0  # paused, or waiting for an fsync inside the event loop
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.context = contextvars.copy_context()
        self.context.run(CALLBACK_OWNER.set, self)
        self.state_machine = RecordingStateMachine(
            process.environment, process.id, lambda: process.observer.model
        )
        self.transport = SimulatedTransport(process.network, self)
        self.client: RaftClient

    def failed(self, error: BaseException) -> None:
        """Called when a callback raises, and when the driver cannot go on."""
        self.process.failed(self, error)

    def now(self) -> float:
        return self.process.environment.now * self.process.rate

    def now_ms(self) -> int:
        return WALL_MS + self.process.wall_offset_ms + int(self.now() * 1000)


class SimulatedSyncer(Syncer):
    """Runs some fsyncs in the event loop, which they block, and others as if in a thread."""

    def __init__(self, flush: Any, inline_limit_s: float, *, durable: bool) -> None:
        super().__init__(flush, inline_limit_s, durable=durable)
        incarnation = CALLBACK_OWNER.get()
        assert isinstance(incarnation, Incarnation)
        self._incarnation = incarnation
        self._environment = incarnation.process.environment
        self._job: Any = None

    @property
    def running(self) -> bool:
        return self._job is not None

    @property
    def inline(self) -> bool:
        return not self._durable or self._environment.rng.random() < self._environment.config.disks.inline

    def now(self) -> None:
        if self._durable:
            self._flush()
            self._incarnation.blocked_until = max(
                self._incarnation.blocked_until, self._environment.now + self._environment.sync_s(inline=True)
            )

    def in_thread(self, done: Any) -> None:
        job = self._job = [done, False]

        def run() -> None:
            error = self._run(job)
            if self._job is job:
                self._job = None
            done(error)

        self._environment.loop.call_later(self._environment.sync_s(inline=False), run)

    def _run(self, job: list[Any]) -> BaseException | None:
        if job[1]:
            return None
        job[1] = True
        try:
            self._flush()
        except Exception as e:
            return e
        return None

    def wait(self) -> None:
        if self._job is not None:
            self._run(self._job)

    async def close(self) -> None:
        self.wait()
