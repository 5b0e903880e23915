"""The folder of a plan.

plan.json      the cluster, the summary and the names of the waves
wave-001.json  a wave, as a reassignment of kafka-reassign-partitions
rollback.json  a reassignment that takes all partitions of the plan back
paused         there while the plan is paused
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from quorate.admin.types import TopicPartition
from quorate.dataclass import dataclass
from quorate.planner.plan import ReassignmentPlan
from quorate.tools.command_line import ToolError
from quorate.tools.reassign.plan import ProposedReassignment, plan_json, read_plan

PLAN, ROLLBACK, PAUSED = "plan.json", "rollback.json", "paused"
VERSION = 1


@dataclass(frozen=True, slots=True)
class PlanFolder:
    """A plan on disk."""

    path: Path
    cluster_id: str
    wave_files: tuple[str, ...]

    def wave(self, number: int) -> ProposedReassignment:
        """Reads a wave. They are numbered from 0."""
        found = read_plan(str(self.path / self.wave_files[number]))
        found.check_executable()
        return found

    def before(self) -> ProposedReassignment:
        """Reads the replicas that the partitions had before the plan."""
        return read_plan(str(self.path / ROLLBACK))

    @property
    def paused(self) -> bool:
        return (self.path / PAUSED).exists()

    def pause(self) -> None:
        (self.path / PAUSED).touch()

    def resume(self) -> None:
        (self.path / PAUSED).unlink(missing_ok=True)


def write(plan: ReassignmentPlan, summary: dict[str, Any], cluster_id: str, folder: Path) -> None:
    """Writes a plan to a new or empty folder. Raises ToolError for another one."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ToolError(f"{folder} exists and is not an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"wave-{number:03}.json" for number in range(1, len(plan.waves) + 1)]
    for name, wave in zip(names, plan.waves, strict=True):
        (folder / name).write_text(_reassignment(plan, wave, plan.replicas) + "\n")
    (folder / ROLLBACK).write_text(_reassignment(plan, plan.moves, plan.replicas_before) + "\n")
    document = {"version": VERSION, "clusterId": cluster_id, "waveFiles": names, "summary": summary}
    (folder / PLAN).write_text(
        json.dumps(document, indent=1) + "\n"
    )  # last: without it the folder is no plan


def _reassignment(
    plan: ReassignmentPlan, partitions: Iterable[int], replicas: Callable[[int], list[int]]
) -> str:
    return plan_json({TopicPartition(*plan.name(p)): replicas(p) for p in partitions}, {})


def read(path: str) -> PlanFolder:
    """Raises ToolError if a folder is not that of a plan."""
    folder = Path(path)
    try:
        document = json.loads((folder / PLAN).read_text("utf-8"))
        if document["version"] != VERSION:
            raise ToolError(f"{folder / PLAN}: version {document['version']} is not known")
        return PlanFolder(folder, str(document["clusterId"]), tuple(map(str, document["waveFiles"])))
    except OSError as error:
        raise ToolError(
            f"{path} is not the folder of a plan: {error.strerror} ({PLAN}). quorate plan --out writes one."
        ) from error
    except (ValueError, KeyError, TypeError):
        raise ToolError(f"{folder / PLAN} is not a plan") from None
