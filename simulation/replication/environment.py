"""What all processes of one simulated cluster share: virtual time, chance, files, checker and trace.

Files are those of `simulation.nodes`: in memory, with the durability of real disks. Code that reads a clock
or draws a random number by itself reads virtual time and draws from the seed here, so that a seed gives
one history.
"""

from __future__ import annotations

import gc
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from quorate.log.directories import manager
from quorate.net import channel, name_lookup
from simulation.checker.invariants import InvariantError
from simulation.nodes.environment import WALL_MS
from simulation.nodes.loop import CALLBACK_OWNER, CallbackOwner
from simulation.replication.checker import ReplicationChecker
from simulation.replication.config import ReplicationConfig, Span
from simulation.replication.files import BrokerFilesystem, VirtualScheduler, remove_tree
from simulation.replication.network import NetworkLoop
from simulation.seeds import naming_violations


async def _itself(host: str) -> list[str]:
    """The addresses of a host: the simulated network knows hosts by their names."""
    return [host]


class Environment:
    """The surroundings of the processes. All randomness comes from `rng`."""

    def __init__(self, config: ReplicationConfig, trace_sink: Callable[[str], None] | None) -> None:
        self.config = config
        self.rng = random.Random(config.seed)
        self._identifiers = random.Random(f"identifiers {config.seed}")
        self.trace_sink = trace_sink
        self.loop = NetworkLoop()
        self.loop.executor_delay = lambda: self.draw((0.0001, 0.003))
        self.loop.set_task_factory(self.loop.task_factory)
        self.filesystem = BrokerFilesystem(lambda: WALL_MS * 1_000_000 + int(self.now * 1e9))
        self.coverage: Counter[str] = Counter()
        self.checker = ReplicationChecker(config.topology.elr, self.coverage, self.trace)
        self.events = 0
        self.errors: list[InvariantError] = []
        self.cleanups: list[Callable[[], None]] = []
        """Run after the current event."""

    @property
    def now(self) -> float:
        return self.loop.time()

    def now_ms(self) -> int:
        return WALL_MS + int(self.now * 1000)

    def draw(self, span: Span) -> float:
        """Draws a time from a span."""
        return self.rng.uniform(*span)

    def schedule(self, at: float, action: Callable[[], object]) -> None:
        """Calls `action` at this virtual time, on behalf of the simulation and not of a process."""
        self.loop.call_at(at, action, context=self.loop.world_context)

    def after(self, span: Span, action: Callable[[], object]) -> None:
        """Calls `action` after a random time."""
        self.schedule(self.now + self.draw(span), action)

    def trace(self, who: str, what: str) -> None:
        if self.trace_sink is not None:
            self.trace_sink(f"{self.now:10.4f} {who:4} {what}")

    def violation_context(self) -> AbstractContextManager[None]:
        """Adds seed, event and time to an InvariantError that the block raises."""
        return naming_violations(self.config.seed, lambda: (self.events, self.now))

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replaces clock, chance, files and event loop by the simulated ones inside the block."""
        chance = self._identifiers
        with ExitStack() as stack:
            stack.enter_context(self.filesystem.installed())
            stack.enter_context(mock.patch("shutil.rmtree", remove_tree))
            for name in ("perf_counter", "monotonic", "time"):
                stack.enter_context(mock.patch.object(time, name, lambda: self.now))
            stack.enter_context(mock.patch.object(time, "time_ns", lambda: self.now_ms() * 1_000_000))
            stack.enter_context(mock.patch.object(os, "urandom", chance.randbytes))
            stack.enter_context(mock.patch.object(secrets, "randbelow", chance.randrange))
            seeded = SimpleNamespace(Random=lambda: random.Random(chance.getrandbits(32)))
            stack.enter_context(mock.patch.object(channel, "random", seeded))
            stack.enter_context(mock.patch.object(name_lookup, "addresses_of", _itself))
            stack.enter_context(mock.patch.object(manager, "BackgroundScheduler", VirtualScheduler))
            stack.enter_context(self.loop.running())
            stack.enter_context(self.violation_context())
            try:
                yield
            finally:
                self.loop.clear()
                gc.collect()

    def current_owner(self) -> CallbackOwner | None:
        """The process whose callback runs now."""
        return CALLBACK_OWNER.get()

    def failure(self, what: str) -> InvariantError:
        """Returns a violation for the caller to raise."""
        return InvariantError(what)

    def describe(self) -> Any:
        """The state of the cluster, for a violation."""
        return ""
