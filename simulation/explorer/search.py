"""The breadth-first search through the worlds within some bounds, and the shortest trace to a violation."""

from __future__ import annotations

import re
import resource
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from simulation.explorer.bounds import Bounds
from simulation.explorer.replica import FIRST_ID
from simulation.explorer.serialization import Renaming
from simulation.explorer.state_space import StateSpace
from simulation.explorer.symmetry import WorldState
from simulation.explorer.transition_checker import ViolationError
from simulation.explorer.visited import ExactWorlds, HashedWorlds, VisitedWorlds

REPORT_INTERVAL_S = 10.0


@dataclass(slots=True)
class ExplorationResult:
    """What an exploration has found."""

    bounds: Bounds
    complete: bool = False
    worlds: int = 0
    transitions: int = 0
    depth: int = 0
    replica_states: int = 0
    core_steps: int = 0  # pairs of replica state and event: the core was run once for each
    messages: int = 0  # different ones
    frontier: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_mib: int = 0
    violation: str | None = None
    trace: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Returns the numbers in one line for people."""
        return (
            f"depth {self.depth}: {self.worlds} worlds, {self.transitions} transitions, frontier "
            f"{self.frontier}; {self.replica_states} states of a replica, {self.core_steps} steps of the "
            f"core, {self.messages} messages; {self.seconds:.0f} s, {self.cpu_s:.0f} s of CPU, "
            f"{self.peak_mib} MiB"
        )


def explore(
    bounds: Bounds,
    *,
    max_worlds: int = 1 << 40,
    max_s: float = 1e9,
    hashed: bool = False,
    write_line: Callable[[str], None] | None = None,
) -> ExplorationResult:
    """Explores all worlds within the bounds, until an invariant is broken or a limit is reached.

    With `hashed`, the visited worlds are kept as hashes. Reports progress.
    """
    space, result = StateSpace(bounds), ExplorationResult(bounds)
    started, cpu, reported_at = time.perf_counter(), time.process_time(), time.perf_counter()

    def count(frontier: int) -> None:
        result.worlds, result.frontier = len(seen), frontier
        result.replica_states, result.core_steps = len(space.replicas.states), len(space.replicas.outcomes)
        result.messages = len(space.replicas.messages.all)
        result.seconds, result.cpu_s = (
            round(time.perf_counter() - started, 1),
            round(time.process_time() - cpu, 1),
        )
        result.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

    first = _pack(space.initial_world())
    seen: VisitedWorlds = HashedWorlds() if hashed else ExactWorlds()
    seen.add(first, None)
    level = [first]
    transitions = 0
    while level:
        next_level: list[bytes] = []
        for at, packed in enumerate(level):
            try:
                for world in space.successors(_unpack(packed)):
                    transitions += 1
                    key = _pack(world)
                    if seen.add(key, packed):
                        next_level.append(key)
            except ViolationError as e:
                result.transitions = transitions
                count(len(next_level))
                result.violation = str(e)
                result.trace = _trace_to(space, seen, first, packed)
                return result
            if not at & 1023:
                now = time.perf_counter()
                if write_line is not None and now - reported_at > REPORT_INTERVAL_S:
                    reported_at, result.transitions = now, transitions
                    count(len(level) - at + len(next_level))
                    write_line(result.line())
                if len(seen) > max_worlds or now - started > max_s:
                    result.transitions = transitions
                    count(len(level) - at + len(next_level))
                    return result
        level = next_level
        result.depth += bool(level)
    result.transitions, result.complete = transitions, True
    count(0)
    return result


def _pack(world: WorldState) -> bytes:
    return array("I", world).tobytes()


def _unpack(packed: bytes) -> WorldState:
    return tuple(array("I", packed))


def _trace_to(space: StateSpace, seen: VisitedWorlds, first: bytes, last: bytes) -> list[str]:
    """Returns the actions from the initial world to the violation, each with what happens at it.

    The search keeps only the predecessor of each world, so the actions are found again by repeating them
    along the path.
    """
    reported_at: list[str] = []
    names = tuple(range(space.n))  # original node at each place: a canonical world has renamed nodes

    def named(text: str) -> str:
        return re.sub(r"\b(n?)(10[1-9])\b", lambda m: f"{m[1]}{names[int(m[2]) - FIRST_ID] + 1}", text)

    here = first
    for wanted in [*seen.path_to(last)[1:], None]:
        step: list[str] = []
        renaming: Renaming | None = None
        try:
            for world in space.successors(_unpack(here), step):
                after, renaming = space.symmetry.canonical_with_renaming(world)
                if wanted is not None and seen.key(packed := _pack(after)) == wanted:
                    here = packed
                    break
        except ViolationError as e:
            step.append(f"FAILED: {e}")
        reported_at.append(named(f"{len(reported_at) + 1}. " + "\n".join(step)))
        if wanted is not None and renaming is not None:
            before = names
            names = tuple(before[renaming.index(at)] for at in range(space.n))
    return reported_at
