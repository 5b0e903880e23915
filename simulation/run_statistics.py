"""What the simulations of a run have done, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from simulation.checker.invariants import InvariantChecker


@dataclass(slots=True)
class RunStatistics:
    """Sums over the seeds of a run."""

    seeds: int = 0
    events: int = 0
    elections: int = 0
    truncations: int = 0
    voter_changes: int = 0
    commits: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    coverage: Counter[str] = field(default_factory=Counter)

    def add(self, other: RunStatistics) -> None:
        self.seeds += other.seeds
        self.events += other.events
        self.elections += other.elections
        self.truncations += other.truncations
        self.voter_changes += other.voter_changes
        self.commits += other.commits
        self.virtual_s += other.virtual_s
        self.cpu_s += other.cpu_s
        self.coverage.update(other.coverage)

    def add_simulation(self, checker: InvariantChecker, events: int, virtual_s: float) -> None:
        """Adds one finished or failed simulation."""
        self.seeds += 1
        self.events += events
        self.elections += checker.elections
        self.truncations += checker.truncations
        self.voter_changes += checker.voter_changes
        self.commits += checker.committed_end
        self.virtual_s += virtual_s
        self.coverage.update(checker.coverage)

    def line(self, first_seed: int, took_s: float) -> str:
        """Returns one line for people."""
        return (
            f"seeds {first_seed}..{first_seed + self.seeds - 1}: {self.events} events in {took_s:.1f} s, "
            f"{self.events / took_s:.0f} a second, {self.events / max(self.cpu_s, 1e-9):.0f} a second of "
            f"processor time; {self.virtual_s:.0f} s of virtual time, {self.elections} elections, "
            f"{self.truncations} truncations, {self.voter_changes} changes of voters, {self.commits} "
            "records committed"
        )
