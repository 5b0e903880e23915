"""What all processes of one cluster share: virtual time, chance, filesystem, invariant checker and trace.

This module knows no process. `Cluster` extends `Environment` by the processes themselves, so that a process
depends on what is declared here and not on the cluster that it is part of.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from quorate.raft.types import ReplicaKey
from simulation.checker.invariants import InvariantChecker, InvariantError, Key, Keys
from simulation.config import SimulationConfig
from simulation.nodes.filesystem import SimulatedFilesystem
from simulation.nodes.loop import VirtualLoop
from simulation.seeds import naming_violations

T = TypeVar("T")
WALL_MS = 1_700_000_000_000  # the date at which virtual time begins


class Environment(ABC):
    """The surroundings of the processes of one cluster.

    All randomness comes from `rng`, so a seed gives one history.
    """

    def __init__(
        self, config: SimulationConfig, voters: Keys, trace_sink: Callable[[str], None] | None
    ) -> None:
        self.config = config
        self.rng = random.Random(config.seed)
        self.trace_sink = trace_sink
        self.loop = VirtualLoop()
        self.loop.executor_delay = lambda: self.sync_s(inline=False)
        self.loop.set_task_factory(self.loop.task_factory)
        self.filesystem = SimulatedFilesystem(lambda: WALL_MS * 1_000_000 + int(self.now * 1e9))
        self.checker = InvariantChecker(voters)
        self.coverage = self.checker.coverage
        self.events = 0
        self.last_unique_number = 0
        self.errors: list[InvariantError] = []
        self.acknowledged: set[int] = set()  # ids of records whose commit was confirmed to their proposer
        self.cut_links: set[tuple[int, int]] = set()
        self.pending_additions: dict[ReplicaKey, float] = {}  # until when a request may still make it a voter
        self.cleanups: list[Callable[[], None]] = []  # run after the current event

    @abstractmethod
    def holds(self, key: Key, hwm: int, digest: int) -> bool:
        """Returns whether this voter's disk has the log with this digest below `hwm`, durably."""

    # --- time and chance --------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.loop.time()

    def schedule(self, at: float, action: Callable[[T], bool | None], argument: T) -> None:
        """Calls `action(argument)` at this virtual time, on behalf of the simulation and not of a process."""
        self.loop.call_at(at, action, argument, context=self.loop.world_context)

    def unique_number(self) -> int:
        self.last_unique_number += 1
        return self.last_unique_number

    def sync_s(self, *, inline: bool) -> float:
        """Draws how long an fsync takes. One that runs inline blocks the event loop for that time."""
        disks, rng = self.config.disks, self.rng
        if disks.slow and rng.random() < disks.slow:
            return rng.uniform(*disks.slow_s)
        low, high = disks.sync_s
        return rng.uniform(low, high) * (0.1 if inline else 1.0)

    def delay(self) -> float:
        """Draws how long a message is under way."""
        network, rng = self.config.network, self.rng
        span = (
            network.long_delay_s
            if network.long_delay and rng.random() < network.long_delay
            else network.delay_s
        )
        return rng.uniform(*span)

    def drops_message(self, a: int, b: int) -> bool:
        """Decides whether a message from node `a` to node `b` is lost now: by a cut link or by chance."""
        if (a, b) in self.cut_links:
            self.coverage["messages cut off" if (b, a) in self.cut_links else "messages cut off one way"] += 1
            return True
        loss = self.config.network.loss
        if loss > 0 and self.rng.random() < loss:
            self.coverage["messages lost"] += 1
            return True
        return False

    def crash_loses_power(self) -> bool:
        """Draws whether the next crash is a power failure rather than the end of the process alone."""
        return self.rng.random() < self.config.faults.power

    # --- trace and violations ---------------------------------------------------------------------

    def trace(self, node_id: int, what: str) -> None:
        if self.trace_sink is not None:
            self.trace_sink(f"n{node_id} {what}")

    @contextmanager
    def collecting_violations(self) -> Iterator[None]:
        """Ends the run if the block raises InvariantError, even where a driver catches the exception."""
        try:
            yield
        except InvariantError as e:
            self.errors.append(e)
            raise

    def violation_context(self) -> AbstractContextManager[None]:
        """Adds seed, event and time to an InvariantError that the block raises."""
        return naming_violations(self.config.seed, lambda: (self.events, self.now))
