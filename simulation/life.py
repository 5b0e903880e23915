"""One life of a simulated process: its clock, its transport, its fsyncs; and the callbacks that end with it."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

from quorate.raft.driver import RaftClient
from quorate.raft.fsync import Syncer
from simulation.loop import HOST
from simulation.machine import Machine
from simulation.network import SimulatedTransport

if TYPE_CHECKING:
    from simulation.process import Process

WALL_MS = 1_700_000_000_000


class Life:
    """A process from its start to its end. Its callbacks run in its context, and only while it lives."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.alive = True
        self.ready = False  # has started, and answers
        self.blocked_until = 0.0
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.context = contextvars.copy_context()
        self.context.run(HOST.set, self)
        self.machine = Machine(self)
        self.transport = SimulatedTransport(process.cluster.network, self)
        self.client: RaftClient

    def failed(self, error: BaseException) -> None:
        """A callback has raised, or the driver says that it cannot go on."""
        self.process.failed(self, error)

    # a skewed clock, for the driver

    def now(self) -> float:
        return self.process.cluster.now * self.process.rate

    def now_ms(self) -> int:
        return WALL_MS + self.process.wall_offset_ms + int(self.now() * 1000)


class SimulatedSyncer(Syncer):
    """Some fsyncs in the loop, which then stands still, others as if in a thread."""

    def __init__(self, flush: Any, inline_limit_s: float, *, durable: bool) -> None:
        super().__init__(flush, inline_limit_s, durable=durable)
        life = HOST.get()
        assert isinstance(life, Life)
        self._life = life
        self._cluster = life.process.cluster
        self._job: Any = None

    @property
    def running(self) -> bool:
        return self._job is not None

    @property
    def inline(self) -> bool:
        return not self._durable or self._cluster.rng.random() < self._cluster.plan.disks.inline

    def now(self) -> None:
        if self._durable:
            self._flush()
            self._life.blocked_until = max(self._life.blocked_until, self._cluster.now + self._cluster.sync_s(inline=True))

    def in_thread(self, done: Any) -> None:
        job = self._job = [done, False]

        def run() -> None:
            error = self._run(job)
            if self._job is job:
                self._job = None
            done(error)

        self._cluster.loop.call_later(self._cluster.sync_s(inline=False), run)

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

    def close(self) -> None:
        self.wait()
