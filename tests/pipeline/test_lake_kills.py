"""The bench that kills runs starts the command of the pipeline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from bench.lake_kills import BY_WORKERS, COMMAND


@pytest.mark.parametrize("command", [COMMAND, BY_WORKERS], ids=["as it is", "by workers"])
def test_the_commands_that_are_killed_start(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *command, "run", "--help"],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
