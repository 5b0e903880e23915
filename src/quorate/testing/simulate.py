"""`python -m quorate.testing.simulate --events N --seed S`: worlds drawn from S, S + 1, ... until N events have been run.

`--level core` runs the pure core on logs in memory, `--level node` whole Raft clients on simulated files. A failure prints its
seed; `--replay SEED` runs that one again and tells its last steps. Exit status 1 after a failure.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quorate.testing.invariants import InvariantError
from quorate.testing.plan import Plan

EVENTS_A_SEED = 8000  # long enough for a dozen elections, short enough to replay in a second
LAST_STEPS = 60


@dataclass(slots=True)
class Tally:
    """What a run of many seeds has seen."""

    seeds: int = 0
    events: int = 0
    elections: int = 0
    truncations: int = 0
    set_changes: int = 0
    commits: int = 0
    virtual_s: float = 0.0

    def line(self, first: int, took_s: float) -> str:
        return (
            f"seeds {first}..{first + self.seeds - 1}: {self.events} events in {took_s:.1f} s, "
            f"{self.events / took_s:.0f} a second; "
            f"{self.virtual_s:.0f} s of virtual time, {self.elections} elections, {self.truncations} truncations, "
            f"{self.set_changes} changes of voters, {self.commits} records committed"
        )


Runner = Callable[[Plan, int, Tally, Callable[[str], None] | None], None]


def run_core(plan: Plan, events: int, tally: Tally, narrate: Callable[[str], None] | None) -> None:
    """One world of the pure core. Raises InvariantError."""
    from quorate.testing.actors import run_plan
    from quorate.testing.world import World

    world = World(plan, narrate)
    try:
        run_plan(world, events)
    finally:
        _count(tally, world.history, world.events, world.now)


def run_nodes(plan: Plan, events: int, tally: Tally, narrate: Callable[[str], None] | None) -> None:
    """One world of whole Raft clients. Raises InvariantError."""
    from quorate.testing.cluster import run_cluster

    cluster = run_cluster(plan, events, narrate)
    _count(tally, cluster.history, cluster.events, cluster.now)


def _count(tally: Tally, history: object, events: int, virtual_s: float) -> None:
    from quorate.testing.invariants import History

    assert isinstance(history, History)
    tally.seeds += 1
    tally.events += events
    tally.elections += history.elections
    tally.truncations += history.truncations
    tally.set_changes += history.set_changes
    tally.commits += history.committed_end
    tally.virtual_s += virtual_s


LEVELS: dict[str, Runner] = {"core": run_core, "node": run_nodes}


def simulate(level: str, first: int, events: int, each: int, tell: Callable[[str], None]) -> Tally:
    """Seeds from `first` on until `events` have been run. Raises InvariantError naming the seed."""
    tally, started, told = Tally(), time.perf_counter(), time.perf_counter()
    while tally.events < events:
        seed = first + tally.seeds
        LEVELS[level](Plan.draw(seed), each, tally, None)
        if time.perf_counter() - told > 10:
            told = time.perf_counter()
            tell(tally.line(first, told - started))
    tell(tally.line(first, time.perf_counter() - started))
    return tally


def replay(level: str, seed: int, each: int, tell: Callable[[str], None]) -> bool:
    """Runs one seed and tells its last steps; whether it held."""
    steps: deque[str] = deque(maxlen=LAST_STEPS)
    plan = Plan.draw(seed)
    tell(str(plan))
    try:
        LEVELS[level](plan, each, Tally(), steps.append)
    except InvariantError as e:
        for step in steps:
            tell(step)
        tell(f"FAILED: {e}")
        return False
    for step in steps:
        tell(step)
    return True


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m quorate.testing.simulate", description=__doc__)
    parser.add_argument("--level", choices=sorted(LEVELS), default="core")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--each", type=int, default=EVENTS_A_SEED, help="events of one seed")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run this seed alone and tell its last steps")
    args = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)

    def tell(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    if args.replay is not None:
        return 0 if replay(args.level, args.replay, args.each, tell) else 1
    try:
        simulate(args.level, args.seed, args.events, args.each, tell)
    except InvariantError as e:
        tell(f"FAILED: {e}")
        tell("replay it by: --replay SEED" + (f" --level {args.level}" if args.level != "core" else "") + f" --each {args.each}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
