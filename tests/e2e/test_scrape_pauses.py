"""A scraper of /metrics of a broker with many written partitions: the event loop, which Raft,
heartbeats and clients share, pauses for at most BOUND_S."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.scrape import CASES, run

pytestmark = pytest.mark.timeout(280)

BOUND_S = 0.05
PARTITIONS = 3000


@pytest.mark.parametrize("case", CASES)
def test_a_scraper_lets_the_loop_run(tmp_path: Path, case: str) -> None:
    each, replicated = CASES[case]
    done = run(tmp_path, PARTITIONS, each, pages=5, replicated=replicated)
    assert done.series > 10 * PARTITIONS
    assert done.longest_turn_ms < BOUND_S * 1000, done
