"""A process that grows in the second half of a soak is found."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from tests.chaos.samples import figures, growth, percentiles_ms


def process(rss_mb: float, files: int, segments: int = 0, pid: int = 1) -> list[dict[str, Any]]:
    return [{"node": 4, "pid": pid, "rss_mb": rss_mb, "files": files, "segments": segments}]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([process(40, 50)] * 8, []),
        ([process(20, 10), process(30, 30), *[process(40, 50)] * 4], []),
        ([*[process(40, 50)] * 4, process(49, 99)], []),
        ([*[process(40, 50)] * 4, process(51, 50)], ["node 4 grew from 40 to 51 MB"]),
        ([*[process(40, 50)] * 4, process(40, 101)], ["node 4 had 50 open files, then 101"]),
        ([*[process(40, 50, 10)] * 4, process(40, 130, 20)], []),
        ([*[process(40, 50, 10)] * 4, process(40, 131, 20)], ["node 4 had 50 open files, then 131"]),
        ([*[process(40, 50)] * 4, process(60, 500, pid=2)], []),
        ([process(40, 50), process(400, 500)], []),
    ],
    ids=["same", "settles", "a little", "memory", "files", "segments", "files and segments", "restarted", "short"],
)  # fmt: skip
def test_growth(samples: list[list[dict[str, Any]]], expected: list[str]) -> None:
    assert growth(samples) == expected


def test_a_process_that_ends_now_has_no_figures() -> None:
    """Its memory is free, but its parent does not know yet."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(OSError, match=f"process {ended.pid} has ended"):
            figures(ended.pid)
    assert figures(os.getpid())["rss_mb"] > 1  # type: ignore[operator]


def test_percentiles() -> None:
    assert percentiles_ms([i / 1000 for i in range(1, 101)]) == {
        "count": 100, "median_ms": 50.5, "p99_ms": 99.0, "max_ms": 100.0,
    }  # fmt: skip
    assert percentiles_ms([]) == {"count": 0}
