"""The share-out of the time, the runs of stages, Ctrl-C and the report, with stub commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.__main__ import main
from tests.campaign.runner import Runner, Status
from tests.campaign.stages import (
    ROOT,
    STAGES,
    Planned,
    Stage,
    chaos_figures,
    module,
    replays,
    share_out,
    simulation_figures,
    soak_figures,
)
from tests.support.cluster import wait_for

CHAOS_RECORD = {
    "seed": 7,
    "violations": [],
    "clients": {"acknowledged": 40, "read": 2},
    "faults": {"total": 3},
}
WRITES_A_RECORD = f"""
import pathlib, sys
print("minutes", sys.argv[2], "seed", sys.argv[3])
pathlib.Path(sys.argv[1]).write_text('''{json.dumps(CHAOS_RECORD)}''')
"""
FAILS = """
import sys
print("the seeds 7..8 were run")
print("FAILED: seed 8, event 103: majority: broken")
print("replay it by: --replay SEED --each 8000")
sys.exit(1)
"""
WAITS = """
import pathlib, sys, time
pathlib.Path(sys.argv[1]).with_suffix(".started").touch()
try:
    time.sleep(600)
except KeyboardInterrupt:
    print("it ends")
    sys.exit(3)
"""
IGNORES_INTERRUPTS = """
import pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).with_suffix(".started").touch()
time.sleep(600)
"""


def stub(name: str, code: str, share: float = 1, **options: object) -> Stage:
    command = (
        sys.executable,
        "-c",
        code.replace("{", "{{").replace("}", "}}"),
        "{json}",
        "{minutes}",
        "{seed}",
    )
    return Stage(name, command, share, chaos_figures, **options)  # type: ignore[arg-type]


def no_java() -> str:
    return "Java is not installed"


def reports(folder: Path) -> tuple[dict[str, object], str]:
    return json.loads((folder / "report.json").read_text()), (folder / "report.md").read_text()


A, B, C, D = (
    stub(name, "", share, simulated=name in "CD") for name, share in zip("ABCD", (3, 1, 1, 4), strict=True)
)


MISSING = stub("missing", "", 2, missing=no_java)


@pytest.mark.parametrize(
    ("stages", "jobs", "expected"),
    [
        ([A, B, C, D], 1, [[("A", 10), ("B", 10 / 3), ("C", 10 / 3), ("D", 40 / 3)]]),
        ([A, B, C, D], 2, [[("A", 22.5), ("B", 7.5)], [("C", 6), ("D", 24)]]),
        ([A, B], 2, [[("A", 22.5), ("B", 7.5)]]),
        ([A, MISSING, B], 2, [[("A", 22.5), ("missing", 0), ("B", 7.5)]]),
        ([MISSING], 1, [[("missing", 0)]]),
        ([D], 2, [[("D", 30)]]),
        ([D, A], 1, [[("A", 90 / 7), ("D", 120 / 7)]]),
    ],
)
def test_each_stage_gets_its_share_of_its_lane(
    stages: list[Stage], jobs: int, expected: list[list[tuple[str, float]]]
) -> None:
    lanes = share_out(stages, 30, jobs)
    assert [
        [(planned.stage.name, pytest.approx(planned.minutes)) for planned in lane] for lane in lanes
    ] == expected


def test_every_stage_takes_minutes_seed_and_a_file_for_its_record() -> None:
    for stage in STAGES:
        arguments = stage.arguments(1.5, 7, Path("record.json"))
        assert arguments[arguments.index("--minutes") + 1] == "1.50"
        assert arguments[arguments.index("--seed") + 1] in ("7", "7000000")
        assert arguments[-2:] == ["--json", "record.json"]
        if stage.missing() is None:
            asked = [*arguments[:3], "--help"]
            done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
            assert {"--minutes", "--seed", "--json"} <= set(
                done.stdout.replace("]", " ").replace("[", " ").split()
            )


def test_a_passed_campaign_reports_what_ran(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    stages = [
        stub("chaos", WRITES_A_RECORD, 3),
        stub("mixed", WRITES_A_RECORD, missing=no_java),
        stub("simulated", WRITES_A_RECORD, simulated=True),
    ]
    assert main(["--minutes", "4", "--seed", "7", "--jobs", "2", "--out", str(folder)], stages) == 0
    document, text = reports(folder)
    assert document["result"] == "passed" and document["seed"] == 7
    assert {"commit", "python", "quorate"} <= set(document["versions"])  # type: ignore[call-overload]
    assert {"cpus", "memory_gb", "system"} <= set(document["machine"])  # type: ignore[call-overload]
    assert "| chaos | passed | 0.0 | 7 | 42 | 3 |" in text
    assert "Java is not installed" in text
    assert (folder / "chaos.log").read_text() == "minutes 4.00 seed 7\n"
    assert (folder / "simulated.log").read_text() == "minutes 4.00 seed 7\n"


def test_a_failure_is_reported_with_its_replay_and_the_others_run_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    stages = [stub("broken", FAILS), stub("chaos", WRITES_A_RECORD)]
    assert main(["--minutes", "1", "--jobs", "1", "--out", str(folder)], stages) == 1
    document, text = reports(folder)
    assert document["result"] == "failed" and document["failed"] == ["broken"]
    assert "| chaos | passed |" in text
    assert "--replay 8 --each 8000" in text


def test_a_stage_that_does_not_end_is_ended_and_failed(tmp_path: Path) -> None:
    runner = Runner(
        [[Planned(stub("stuck", IGNORES_INTERRUPTS), 0.0)]], 1, tmp_path, lambda _: None,
        grace_s=0.5, interrupted_grace_s=0.1,
    )  # fmt: skip
    runner.run()
    assert [o.status for o in runner.outcomes] == [Status.FAILED]
    assert runner.outcomes[0].reason.startswith("did not end within")


def test_a_command_that_cannot_be_run_is_a_failure(tmp_path: Path) -> None:
    stage = Stage("gone", (str(tmp_path / "no-such-program"), "--json", "{json}"), 1, chaos_figures)
    runner = Runner([[Planned(stage, 1)]], 1, tmp_path, lambda _: None)
    runner.run()
    assert [o.status for o in runner.outcomes] == [Status.FAILED]
    assert "no-such-program" in runner.outcomes[0].reason


def test_progress_is_reported(tmp_path: Path) -> None:
    said: list[str] = []
    runner = Runner(
        [[Planned(stub("slow", "print('half of it'); import time; time.sleep(1)"), 0.0)]], 1, tmp_path, said.append,
        progress_every_s=0.2,
    )  # fmt: skip
    runner.run()
    assert any(line.startswith("slow: 0.0 of 0.0 min: half of it") for line in said)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_stages_and_the_report_is_written(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C in a terminal sends SIGINT. Here the campaign starts as in the background of a shell."""
    folder = tmp_path / "out"
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "from tests.campaign.__main__ import end_in_order_on_signals, main; end_in_order_on_signals(); "
        "from tests.campaign import test_campaign as t; "
        "stages = [t.stub('first', t.WAITS), t.stub('second', t.WAITS)]; "
        f"sys.exit(main(['--minutes', '1', '--jobs', '1', '--out', {str(folder)!r}], stages))"
    )
    campaign = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for("the first stage to run", lambda: (folder / "first.started").exists())
    os.kill(campaign.pid, number)
    said, _ = campaign.communicate(timeout=60)
    assert campaign.returncode == 130, said
    document, _ = reports(folder)
    assert document["result"] == "interrupted"
    assert [stage["status"] for stage in document["stages"]] == ["interrupted", "skipped"]  # type: ignore[attr-defined]
    assert (folder / "first.log").read_text() == "it ends\n"


def test_the_figures_of_each_kind_of_record_are_found() -> None:
    core = {
        "core": [
            {
                "seeds": [7, 9],
                "events": 5,
                "coverage": {"kills": 2, "links cut": 1, "requests sent": 9},
                "failure": "seed 9",
            }
        ]
    }
    assert simulation_figures(core) == {"seeds": "7..9", "events": 5, "faults": 3, "failure": "seed 9"}
    brokers = {"replication": [{"first_seed": 7, "seeds": 3, "events": 5, "coverage": {}, "failure": None}]}
    assert simulation_figures(brokers) == {"seeds": "7..9", "events": 5, "faults": 0, "failure": None}
    soak = {"seed": 7, "changes": {"created": 2, "deleted": 1}, "faults": {"total": 4}, "result": "passed"}
    assert soak_figures(soak) == {"seeds": "7", "events": 3, "faults": 4, "failure": None}
    brokers_soak = {"seed": 7, "records_acknowledged": 9, "faults": {"total": 4}, "result": "lost: x"}
    assert soak_figures(brokers_soak) == {"seeds": "7", "events": 9, "faults": 4, "failure": "lost: x"}


def test_a_failure_without_a_seed_of_its_own_is_replayed_by_the_command() -> None:
    command = [
        word.replace("{json}", "x.json") for word in module("tests.chaos", "--minutes", "3", "--seed", "7")
    ]
    assert list(replays(command, "FAILED: lost: kept-0 lost it")) == [
        "python -m tests.chaos --minutes 3 --seed 7"
    ]
    core = [sys.executable, "-m", "simulation", "--seed", "1", "--json", "x"]
    output = "FAILED: seed 12, event 3: x\nreplay it by: --replay SEED --level node --each 8000\n"
    assert list(replays(core, output)) == ["python -m simulation --replay 12 --level node --each 8000"]
