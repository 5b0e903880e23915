"""Commits to a lake in a local directory: only one process at a time makes one."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.pipeline.tables.lake import Changes, Lake, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.spark, pytest.mark.lake, pytest.mark.timeout(200)]

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""
"""Another process that commits. The JVM's locks of files are those of POSIX, too."""


def waits_for(file: Path) -> bool:
    """Whether a process waits for the lock of a file."""
    place = f":{file.stat().st_ino} "
    return any("->" in line and place in line for line in Path("/proc/locks").read_text().splitlines())


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def advance(lake: Lake, end: int) -> None:
    """A commit to the topics of a lake."""
    begun = lake.begin("topics", "c", lake.progress("topics", "c"))
    lake.commit("topics", "c", begun, Changes(), Progress(0, end))


def test_a_commit_waits_for_another_process_that_commits_to_the_same_table(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    advance(lake, 1)
    assert not caplog.messages
    file = Path(lake.folder, ".topics.lock")
    command = [sys.executable, "-c", HOLDER, str(file)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder,
        ThreadPoolExecutor(1) as pool,
    ):
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        done = pool.submit(advance, lake, 2)
        try:
            until(lambda: done.done() or waits_for(file))
            assert not done.done()
            assert lake.applied("topics", "c") == 1
            assert caplog.messages == [f"Waiting for another command that writes to {lake.path('topics')}"]
        finally:
            holder.stdin.close()
        done.result(60)
    assert lake.applied("topics", "c") == 2


def test_the_lock_of_a_process_that_was_killed_is_free(lake: Lake) -> None:
    advance(lake, 1)
    command = [sys.executable, "-c", HOLDER, str(Path(lake.folder, ".topics.lock"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"locked\n"
        holder.kill()
    advance(lake, 2)
    assert lake.applied("topics", "c") == 2
