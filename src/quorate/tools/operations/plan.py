"""What an operation will do: its steps, or the reasons why it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, field
from typing import Protocol

from quorate.dataclass import dataclass
from quorate.tools.operations.description import Cluster


@dataclass(frozen=True, slots=True)
class Step:
    """One step. A step that `waits` changes nothing: the cluster has to reach a state first."""

    kind: str
    """The name of the step for scripts."""
    text: str
    node: int | None = None
    waits: bool = False
    _: KW_ONLY
    by_user: bool = False
    """Whether the user has to do something meanwhile. It may take any time unless --yes is given."""
    unlimited: bool = False
    """Whether it may take any time, because data is copied."""
    detail: str = ""
    """The progress, or what is waited for. A step whose detail alone changes is the same step."""
    data: object = None
    """What the operation needs to perform the step."""

    @property
    def members(self) -> dict[str, object]:
        """The step as members of a JSON object."""
        found: dict[str, object] = {"kind": self.kind, "text": self.text, "waits": self.waits}
        if self.node is not None:
            found["node"] = self.node
        if self.detail:
            found["detail"] = self.detail
        return found


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason why an operation must not be done, and what helps: a command, or what to do."""

    reason: str
    remedy: str

    @property
    def members(self) -> dict[str, object]:
        return {"reason": self.reason, "remedy": self.remedy}


@dataclass(frozen=True, slots=True)
class OperationPlan:
    """The steps that are left. A plan with a refusal is not performed."""

    steps: tuple[Step, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    """What the user should know before the first step."""

    @property
    def members(self) -> dict[str, object]:
        return {
            "steps": [step.members for step in self.steps],
            "refusals": [refusal.members for refusal in self.refusals],
            "notes": list(self.notes),
        }


@dataclass(slots=True)
class Progress:
    """What this run of a command has done so far. It is lost if the command is interrupted, and no plan
    depends on it for safety: without it, a step may be repeated."""

    commanded: dict[int, bytes] = field(default_factory=dict)
    """The nodes for which the user's command has ended, and their incarnation ids from before it."""
    replaced: bool = False
    """Whether the user's command that replaces a disk has ended."""
    kept: object = None
    """What the operation keeps from one plan to the next, because it takes long to find out."""


class Planner(Protocol):
    """Makes the plan of one operation. It has no I/O."""

    @property
    def title(self) -> str:
        """What the operation does, as the heading of its plan."""

    @property
    def again(self) -> Mapping[str, str]:
        """The options that the same command needs to continue after an interruption."""

    def plan(self, cluster: Cluster, progress: Progress) -> OperationPlan: ...
