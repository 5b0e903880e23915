"""Actions that recur at random intervals until they are stopped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from simulation.actions.interfaces import SimulatedQuorum, SimulatedReplica
from simulation.config import Span

Action = Callable[[], None]


class RecurringActions(ABC):
    """A set of actions on a simulated quorum, each with a mean interval.

    Intervals are exponentially distributed.
    """

    def __init__(self, quorum: SimulatedQuorum) -> None:
        self.quorum = quorum
        self.running = False

    @abstractmethod
    def intervals(self) -> Iterable[tuple[Action, float]]:
        """Returns each action with its mean interval in seconds; 0 means never."""

    def start(self) -> None:
        self.running = True
        for action, every_s in self.intervals():
            if every_s > 0:
                self._schedule_next(action, every_s)

    def stop(self) -> None:
        """Lets no further action happen.

        What was scheduled by earlier ones, such as the end of a partition, still happens.
        """
        self.running = False

    def _schedule_next(self, action: Action, every_s: float) -> None:
        quorum = self.quorum

        def run(_: None) -> bool | None:
            if not self.running:
                return False
            action()
            self._schedule_next(action, every_s)
            return None

        quorum.schedule(quorum.now + quorum.rng.expovariate(1 / every_s), run, None)

    def _after(self, span: Span, action: Action) -> None:
        """Runs the action once, after a random time."""
        quorum = self.quorum
        quorum.schedule(quorum.now + quorum.rng.uniform(*span), lambda _: action(), None)

    def _random_replica(self) -> SimulatedReplica | None:
        """Draws one of the replicas that are up."""
        found = [r for r in self.quorum.replicas.values() if r.alive]
        return self.quorum.rng.choice(found) if found else None
