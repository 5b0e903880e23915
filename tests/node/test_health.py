"""What a node tells about its start and its readiness."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quorate.node.monitoring.health import Stage, StartupProgress, current_stage, not_ready_reason

A, B = Path("/a"), Path("/b")


def raft(**state: Any) -> Any:
    defaults = {
        "snapshot_progress": None,
        "delivered_offset": 100,
        "high_watermark": 100,
        "hears_leader": True,
        "voters": SimpleNamespace(ids={1, 2}),
    }
    return SimpleNamespace(**{**defaults, **state})


STAGES = [
    ("nothing is known yet", None, None, False, None),
    ("nothing is left", raft(), None, False, None),
    ("a snapshot", raft(snapshot_progress=(5, 50)), None, False, Stage("bytes of the snapshot loaded", 5, 50)),
    ("the log", raft(delivered_offset=20), None, False, Stage("metadata records replayed", 20, 100)),
    ("the log before its start", raft(delivered_offset=-1), None, False, Stage("metadata records replayed", 0, 100)),
    ("logs of two directories", raft(), {A: (7, 7), B: (1, 13)}, True, Stage("logs opened", 8, 20)),
    ("logs before the first one", raft(), {}, True, None),
]  # fmt: skip


@pytest.mark.parametrize(("case", "node", "opened", "recovers", "stage"), STAGES, ids=[s[0] for s in STAGES])
def test_the_stage_of_the_start_is_what_the_node_works_on(
    case: str, node: Any, opened: Any, recovers: bool, stage: Stage | None
) -> None:
    assert current_stage(node, opened, recovers=recovers) == stage


def test_percent_and_time_left_follow_the_work_that_is_done() -> None:
    now = 100.0
    progress = StartupProgress(lambda: now)
    assert progress.fields(None) == {}
    assert progress.fields(Stage("logs opened", 0, 400)) == {
        "progress": "logs opened: 0 of 400",
        "percent": 0.0,
    }
    now = 110.0
    fields = progress.fields(Stage("logs opened", 100, 400))
    assert fields == {"progress": "logs opened: 100 of 400", "percent": 25.0, "secondsLeft": 30.0}
    now = 130.0
    assert progress.fields(Stage("logs opened", 400, 400))["secondsLeft"] == 0.0
    another = progress.fields(Stage("metadata records replayed", 50, 100))
    assert another == {"progress": "metadata records replayed: 50 of 100", "percent": 50.0}, "a new beginning"
    now = 131.0
    assert progress.fields(Stage("metadata records replayed", 75, 100))["secondsLeft"] == 1.0


def broker(fenced: bool | None) -> Any:
    brokers = {} if fenced is None else {1: SimpleNamespace(fenced=fenced)}
    image = SimpleNamespace(cluster=SimpleNamespace(brokers=brokers))
    return SimpleNamespace(metadata=SimpleNamespace(image=image))


READINESS = [
    ("an unfenced broker", raft(), broker(False), False, None),
    ("a fenced broker", raft(), broker(True), False, "fenced"),
    ("an unregistered broker", raft(), broker(None), False, "not registered"),
    ("a cut-off broker", raft(hears_leader=False), broker(False), False, "no contact"),
    ("a voter that follows", raft(), None, True, None),
    ("a voter that does not follow", raft(hears_leader=False), None, True, "no contact"),
    ("a controller that observes", raft(voters=SimpleNamespace(ids={2})), None, True, "not a voter"),
    ("both roles", raft(), broker(False), True, None),
    ("both roles, fenced", raft(), broker(True), True, "fenced"),
]


@pytest.mark.parametrize(
    ("case", "node", "role", "is_controller", "reason"), READINESS, ids=[r[0] for r in READINESS]
)
def test_a_node_is_ready_if_its_broker_is_unfenced_and_its_controller_is_a_voter_that_follows(
    case: str, node: Any, role: Any, is_controller: bool, reason: str | None
) -> None:
    found = not_ready_reason(node, role, 1, is_controller=is_controller)
    assert (found is None) if reason is None else (found is not None and reason in found)
