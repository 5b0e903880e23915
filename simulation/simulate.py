"""`python -m simulation.simulate --events N --seed S`: worlds drawn from S, S + 1, ... until N events have been run.

`--level core` runs the pure core on logs in memory, `--level node` whole Raft clients on simulated files. A failure prints its
seed; `--replay SEED` runs that one again and tells its last steps. `--json FILE` notes what was run. Exit status 1 after a
failure.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from simulation.invariants import History, InvariantError
from simulation.plan import Plan
from simulation.record import Record

EVENTS_A_SEED = 8000  # long enough for a dozen elections, short enough to replay in a second
LAST_STEPS = 60
TELL_S = 10


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
    cpu_s: float = 0.0
    happened: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.events += other.events
        self.elections += other.elections
        self.truncations += other.truncations
        self.set_changes += other.set_changes
        self.commits += other.commits
        self.virtual_s += other.virtual_s
        self.cpu_s += other.cpu_s
        self.happened.update(other.happened)

    def line(self, first: int, took_s: float) -> str:
        return (
            f"seeds {first}..{first + self.seeds - 1}: {self.events} events in {took_s:.1f} s, "
            f"{self.events / took_s:.0f} a second, {self.events / max(self.cpu_s, 1e-9):.0f} a second of processor time; "
            f"{self.virtual_s:.0f} s of virtual time, {self.elections} elections, {self.truncations} truncations, "
            f"{self.set_changes} changes of voters, {self.commits} records committed"
        )


Narrate = Callable[[str], None] | None
Runner = Callable[[Plan, int, Tally, Narrate], None]


def run_core(plan: Plan, events: int, tally: Tally, narrate: Narrate) -> None:
    """One world of the pure core. Raises InvariantError."""
    from simulation.actors import run_plan
    from simulation.world import World

    world = World(plan, narrate)
    try:
        run_plan(world, events)
    finally:
        _count(tally, world.history, world.events, world.now)


def run_nodes(plan: Plan, events: int, tally: Tally, narrate: Narrate) -> None:
    """One world of whole Raft clients. Raises InvariantError."""
    from simulation.cluster import run_cluster

    cluster = run_cluster(plan, events, narrate)
    _count(tally, cluster.history, cluster.events, cluster.now)


def _count(tally: Tally, history: History, events: int, virtual_s: float) -> None:
    tally.seeds += 1
    tally.events += events
    tally.elections += history.elections
    tally.truncations += history.truncations
    tally.set_changes += history.set_changes
    tally.commits += history.committed_end
    tally.virtual_s += virtual_s
    tally.happened.update(history.happened)


LEVELS: dict[str, Runner] = {"core": run_core, "node": run_nodes}


def run_seed(level: str, seed: int, each: int) -> Tally:
    """Raises InvariantError naming the seed."""
    tally, began = Tally(), time.process_time()
    LEVELS[level](Plan.draw(seed), each, tally, None)
    tally.cpu_s = time.process_time() - began
    return tally


def _quiet() -> None:
    logging.disable(logging.CRITICAL)


def _in_processes(level: str, first: int, each: int, jobs: int) -> Iterator[Tally]:
    """Seeds from `first` on, without end, in so many processes. Raises InvariantError."""
    seed = first
    with ProcessPoolExecutor(jobs, initializer=_quiet) as pool:
        running: set[Future[Tally]] = set()
        try:
            while True:
                while len(running) < 2 * jobs:
                    running.add(pool.submit(run_seed, level, seed, each))
                    seed += 1
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in running:
                future.cancel()


def simulate(
    level: str,
    first: int,
    events: int,
    each: int,
    tell: Callable[[str], None],
    jobs: int = 1,
    record: Record | None = None,
) -> Tally:
    """Seeds from `first` on until `events` have been run. Raises InvariantError naming the seed."""
    tally, started, told = Tally(), time.perf_counter(), time.perf_counter()

    def note(failure: str | None = None) -> None:
        took_s = time.perf_counter() - started
        tell(tally.line(first, took_s))
        if record is not None:
            record.write(tally, took_s, failure)

    results = _in_processes(level, first, each, jobs) if jobs > 1 else None
    while tally.events < events:
        try:
            tally.add(next(results) if results is not None else run_seed(level, first + tally.seeds, each))
        except InvariantError as e:
            note(str(e))
            raise
        if time.perf_counter() - told > TELL_S:
            told = time.perf_counter()
            note()
    if isinstance(results, Iterator):
        results.close()  # type: ignore[attr-defined]
    note()
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
    parser = argparse.ArgumentParser(prog="python -m simulation.simulate", description=__doc__)
    parser.add_argument("--level", choices=sorted(LEVELS), default="core")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--each", type=int, default=EVENTS_A_SEED, help="events of one seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run this seed alone and tell its last steps")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add there what was run")
    args = parser.parse_args(argv)
    _quiet()

    def tell(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    if args.replay is not None:
        return 0 if replay(args.level, args.replay, args.each, tell) else 1
    options = f"--level {args.level} --seed {args.seed} --events {args.events} --each {args.each} --jobs {args.jobs}"
    command = f"python -m simulation.simulate {options}"
    record = Record(args.json, args.level, command, args.seed) if args.json is not None else None
    try:
        simulate(args.level, args.seed, args.events, args.each, tell, args.jobs, record)
    except InvariantError as e:
        tell(f"FAILED: {e}")
        tell("replay it by: --replay SEED" + (f" --level {args.level}" if args.level != "core" else "") + f" --each {args.each}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
