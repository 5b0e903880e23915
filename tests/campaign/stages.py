"""What a campaign runs, and how much of the time each stage gets.

A new stage is one more entry of `STAGES`.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_SEEDS_APART = 1_000_000
"""Simulations of two campaigns have no seed in common unless one of them runs so many."""
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """One command of a campaign."""

    name: str
    command: tuple[str, ...]
    """with {minutes}, {seed}, {first_seed} (of a simulation) and {json}, the file for its record"""
    share: float
    """of the time of its lane, in relation to the other stages"""
    figures: Callable[[Any], Figures]
    """from the JSON record to seeds, events and faults"""
    simulated: bool = False
    """whether it computes only: such stages share a second core"""
    missing: Callable[[], str | None] = lambda: None
    """why it cannot run here"""

    def arguments(self, minutes: float, seed: int, record: Path) -> list[str]:
        values = {
            "minutes": f"{minutes:.2f}",
            "seed": str(seed),
            "first_seed": str(seed * _SEEDS_APART),
            "json": str(record),
        }
        return [word.format_map(values) for word in self.command]


@dataclass(frozen=True, slots=True)
class Planned:
    stage: Stage
    minutes: float


def module(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name, *arguments, "--json", "{json}")


_TIMED = ("--minutes", "{minutes}", "--seed", "{seed}")
_SEEDS = ("--minutes", "{minutes}", "--seed", "{first_seed}", "--events", str(10**12))


_SIMULATED_FAULTS = {
    "kills", "deaths within a step", "power failures", "failing disks", "pauses", "skewed clocks", "new directories",
    "new disks", "old disks", "messages lost", "messages cut off", "messages cut off one way", "links cut",
    "links cut one way", "connections reset", "controllers replaced",
}  # fmt: skip
"""Names of counts of faults in the records of simulations. Other counts are of the workload and of
effects."""


def simulation_figures(record: Any) -> Figures:
    """Of `python -m simulation` and `python -m simulation.replication`."""
    ((_, runs),) = record.items()
    run = runs[-1]
    if "seeds" in run and isinstance(run["seeds"], list):
        seeds = run["seeds"]
    else:
        seeds = [run["first_seed"], run["first_seed"] + run["seeds"] - 1]
    return {
        "seeds": f"{seeds[0]}..{seeds[1]}",
        "events": run["events"],
        "faults": sum(count for name, count in run["coverage"].items() if name in _SIMULATED_FAULTS),
        "failure": run["failure"],
    }


def chaos_figures(record: Any) -> Figures:
    return {
        "seeds": str(record["seed"]),
        "events": record["clients"]["acknowledged"] + record["clients"]["read"],
        "faults": record["faults"]["total"],
        "failure": "; ".join(record["violations"]) or None,
    }


def soak_figures(record: Any) -> Figures:
    """Of the clusters with Apache Kafka."""
    counts = [value for value in record.get("changes", {}).values() if isinstance(value, int)]
    return {
        "seeds": str(record["seed"]),
        "events": sum(counts) + record.get("records_acknowledged", 0),
        "faults": record["faults"]["total"],
        "failure": None if record["result"] == "passed" else record["result"],
    }


def without_java() -> str | None:
    if shutil.which("java") is None:
        return "Java is not installed"
    if not list((ROOT / ".cache").glob("kafka-*/kafka-clients-*.jar")):
        return "Apache Kafka's jars are not in .cache (make setup)"
    return None


def _without(name: str) -> Callable[[], str | None]:
    def missing() -> str | None:
        if importlib.util.find_spec(name) is None:
            return f"there is no module {name}"
        return without_java()

    return missing


STAGES = (
    Stage(
        "chaos", module("tests.chaos", *_TIMED), 4, chaos_figures,
    ),
    Stage(
        "mixed controllers", module("tests.interop.soak", *_TIMED), 3, soak_figures,
        missing=_without("tests.interop.soak"),
    ),
    Stage(
        "mixed brokers", module("tests.interop.broker_soak", *_TIMED), 3, soak_figures,
        missing=_without("tests.interop.broker_soak"),
    ),
    Stage(
        "simulated quorum, core", module("simulation", "--level", "core", *_SEEDS), 1, simulation_figures,
        simulated=True,
    ),
    Stage(
        "simulated quorum, nodes", module("simulation", "--level", "node", *_SEEDS), 2, simulation_figures,
        simulated=True,
    ),
    Stage(
        "simulated brokers", module("simulation.replication", *_SEEDS), 3, simulation_figures,
        simulated=True,
    ),
)  # fmt: skip


def share_out(stages: Sequence[Stage], minutes: float, jobs: int) -> list[list[Planned]]:
    """Returns the stages of each lane, with their time. With two jobs, simulations have a lane of their own.

    The lanes run at the same time, the stages of a lane one after the other. A stage that cannot
    run here gets no time.
    """
    lanes = [[s for s in stages if not s.simulated], [s for s in stages if s.simulated]]
    if jobs < 2:
        lanes = [lanes[0] + lanes[1]]
    planned = []
    for lane in filter(None, lanes):
        shares = [stage.share if stage.missing() is None else 0.0 for stage in lane]
        total = sum(shares) or 1.0
        planned.append(
            [Planned(stage, minutes * share / total) for stage, share in zip(lane, shares, strict=True)]
        )
    return planned


def figures_of(stage: Stage, record: Path) -> Figures:
    """Returns the figures of a record, or none if the stage did not write it."""
    try:
        return stage.figures(json.loads(record.read_text()))
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return {}


def replays(command: Sequence[str], output: str) -> Iterator[str]:
    """Yields how to run what failed again: the seed of a simulation, or the command itself."""
    words = ["python" if word == sys.executable else word for word in command]
    shown = " ".join(words[: words.index("--json")] if "--json" in words else words)
    found = re.search(r"^FAILED: seed (\d+)", output, re.MULTILINE)
    options = re.search(r"^replay it by: (.*)$", output, re.MULTILINE)
    if found is None or options is None:
        yield shown
        return
    yield f"{' '.join(words[:3])} {options[1].replace('SEED', found[1])}"
