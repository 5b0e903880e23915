"""`python -m simulation.explore --replicas 3 --epochs 2 --entries 2 --crashes 1`: every world of the core within bounds.

Breadth first, so that what breaks an invariant is told by a shortest story. Exit status 0: all worlds within the bounds have
been seen and none breaks an invariant; 1: one does; 2: time, memory or the given number of worlds ended before.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import re
import resource
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields

from simulation.explore_frozen import Renaming
from simulation.explore_judge import ViolationError
from simulation.explore_replica import FIRST_ID
from simulation.explore_world import Bounds, SmallWorld, World

TELL_EVERY_S = 10.0


@dataclass(slots=True)
class Found:
    """What an exploration has seen."""

    bounds: Bounds
    complete: bool = False
    worlds: int = 0
    transitions: int = 0
    depth: int = 0
    replica_states: int = 0
    core_steps: int = 0  # pairs of replica and event: the core was run for each of them
    letters: int = 0  # different messages
    frontier: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_mib: int = 0
    violation: str | None = None
    story: list[str] = field(default_factory=list)

    def line(self) -> str:
        return (
            f"depth {self.depth}: {self.worlds} worlds, {self.transitions} transitions, frontier {self.frontier}; "
            f"{self.replica_states} states of a replica, {self.core_steps} steps of the core, {self.letters} messages; "
            f"{self.seconds:.0f} s, {self.cpu_s:.0f} s of CPU, {self.peak_mib} MiB"
        )


def explore(bounds: Bounds, *, max_worlds: int = 1 << 40, max_s: float = 1e9, tell: Callable[[str], None] | None = None) -> Found:
    """All worlds within the bounds, unless one breaks an invariant or a limit is reached."""
    small, found = SmallWorld(bounds), Found(bounds)
    started, cpu, told = time.perf_counter(), time.process_time(), time.perf_counter()

    def count(frontier: int) -> None:
        found.worlds, found.frontier = len(seen), frontier
        found.replica_states, found.core_steps = len(small.replicas.known), len(small.replicas.outcomes)
        found.letters = len(small.replicas.letters.all)
        found.seconds, found.cpu_s = round(time.perf_counter() - started, 1), round(time.process_time() - cpu, 1)
        found.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

    first = _pack(small.first())
    seen: dict[bytes, bytes | None] = {first: None}
    level = [first]
    transitions = 0
    while level:
        coming: list[bytes] = []
        for at, packed in enumerate(level):
            try:
                for world in small.moves(_unpack(packed)):
                    transitions += 1
                    key = _pack(world)
                    if key not in seen:
                        seen[key] = packed
                        coming.append(key)
            except ViolationError as e:
                found.transitions = transitions
                count(len(coming))
                found.violation = str(e)
                found.story = _story(small, seen, packed)
                return found
            if not at & 1023:
                now = time.perf_counter()
                if tell is not None and now - told > TELL_EVERY_S:
                    told, found.transitions = now, transitions
                    count(len(level) - at + len(coming))
                    tell(found.line())
                if len(seen) > max_worlds or now - started > max_s:
                    found.transitions = transitions
                    count(len(level) - at + len(coming))
                    return found
        level = coming
        found.depth += bool(level)
    found.transitions, found.complete = transitions, True
    count(0)
    return found


def _pack(world: World) -> bytes:
    return array("I", world).tobytes()


def _unpack(packed: bytes) -> World:
    return tuple(array("I", packed))


def _story(small: SmallWorld, seen: dict[bytes, bytes | None], last: bytes) -> list[str]:
    """From the beginning to the violation, found again on the way down."""
    path = [last]
    while (earlier := seen[path[-1]]) is not None:
        path.append(earlier)
    path.reverse()
    told: list[str] = []
    names = tuple(range(small.n))  # who is at each place: worlds that stand for others have renamed nodes

    def named(text: str) -> str:
        return re.sub(r"\b(n?)(10[1-9])\b", lambda m: f"{m[1]}{names[int(m[2]) - FIRST_ID] + 1}", text)

    wanted: bytes | None
    for here, wanted in zip(path, [*path[1:], None], strict=True):
        step: list[str] = []
        renaming: Renaming | None = None
        try:
            for world in small.moves(_unpack(here), step):
                after, renaming = small.renamed(world)
                if wanted is not None and _pack(after) == wanted:
                    break
        except ViolationError as e:
            step.append(f"FAILED: {e}")
        told.append(named(f"{len(told) + 1}. " + "\n".join(step)))
        if wanted is not None and renaming is not None:
            before = names
            names = tuple(before[renaming.index(at)] for at in range(small.n))
    return told


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation.explore", description=__doc__)
    for f in fields(Bounds):
        name = "--" + f.name.replace("_", "-")
        if isinstance(f.default, bool):
            parser.add_argument(name, action=argparse.BooleanOptionalAction, default=f.default)
        else:
            parser.add_argument(name, type=int, default=f.default)
    parser.add_argument("--max-worlds", type=int, default=1 << 40)
    parser.add_argument("--max-seconds", type=float, default=1e9)
    parser.add_argument("--json", metavar="FILE", help="write the result there")
    args = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)
    gc.disable()  # nothing here refers to itself
    bounds = Bounds(**{f.name: getattr(args, f.name) for f in fields(Bounds)})

    def tell(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    found = explore(bounds, max_worlds=args.max_worlds, max_s=args.max_seconds, tell=tell)
    tell(found.line())
    if found.violation is not None:
        for line in found.story:
            tell(line)
    else:
        tell("complete" if found.complete else "not complete")
    if args.json:
        with open(args.json, "w") as out:
            json.dump(asdict(found), out, indent=1)
            out.write("\n")
    return 1 if found.violation is not None else 0 if found.complete else 2


if __name__ == "__main__":
    sys.exit(main())
