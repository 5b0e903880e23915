"""The measurement of a hundred nodes runs, with nine of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.hundred_nodes.steps import Size, measured

pytestmark = pytest.mark.timeout(180)

STEPS = [
    "format",
    "start",
    "idle_without_topics",
    "create",
    "idle",
    "roll_controllers",
    "roll_brokers",
    "lose_rack",
    "return_rack",
    "idle_at_the_end",
    "end",
]


def test_six_brokers_and_three_controllers_start_roll_and_lose_a_rack(tmp_path: Path):
    size = Size(
        brokers=6, controllers=3, racks=3, topics=3, partitions=300, rolled=1, idle_s=0.5, timeout_s=120
    )
    figures = measured(size, tmp_path / "cluster", {"broker.session.timeout.ms": "60000"})
    assert list(figures) == STEPS
    assert figures["create"]["partitions"] == size.partitions
    assert (figures["roll_controllers"]["rolled"], figures["roll_brokers"]["rolled"]) == (3, 1)
    # Each partition has one replica in each rack, so the lost one led a part of them.
    lost = figures["lose_rack"]
    assert lost["brokers"] == 2 and 0 < lost["leaderships"] < size.partitions
    assert lost["fenced_s"] <= lost["isrs_shrunk_s"]
    assert figures["return_rack"]["isrs_full_s"] > 0
    assert figures["idle"]["brokers_sum_mb"] > 0
    assert figures["end"]["errors"] == 0
