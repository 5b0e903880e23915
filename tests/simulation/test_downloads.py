"""Snapshots that are fetched in small parts while nodes crash, lose power and are cut off."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from quorate.raft.config import RaftConfig
from quorate.raft.core import follower
from quorate.raft.core.events import Replied, SnapshotInstalled, SnapshotOpened
from quorate.raft.storage.snapshots import download as downloads
from simulation.config import DiskConfig, FaultSchedule, NetworkConfig, SimulationConfig, Topology, Workload
from simulation.nodes import process
from simulation.nodes.cluster import run_cluster


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def config(seed: int) -> SimulationConfig:
    """Cleans logs early, so that a node that was down needs a snapshot.

    Its download is slow enough to be interrupted.
    """
    return SimulationConfig(
        seed,
        Topology(voters=3, observers=1),
        NetworkConfig(delay_s=(0.005, 0.03), loss=0.01),
        DiskConfig(segment_ms=1000, retention_bytes=1000),
        Workload(propose_every_s=0.05, batch=(20, 40), snapshot_every_s=0.5),
        FaultSchedule(crash_every_s=1.0, power=0.5, down_s=(0.2, 3.0), isolate_every_s=4.0),
    )


@pytest.mark.slow
def test_downloads_that_are_broken_off_go_on_and_every_invariant_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "RaftConfig", partial(RaftConfig, fetch_snapshot_max_bytes=100))
    monkeypatch.setattr(downloads, "FLUSH_BYTES", 500)
    seen: Counter[str] = Counter()
    opened, replied, installed = (
        follower.on_snapshot_opened,
        follower.on_snapshot_reply,
        follower.on_snapshot_installed,
    )

    def on_opened(r: object, event: SnapshotOpened) -> None:
        seen["goes on"] += event.position > 0
        seen["has to be confirmed"] += event.prefix_digest is not None
        opened(r, event)  # type: ignore[arg-type]

    def on_reply(r: object, event: Replied, current: bool, now: float) -> bool:
        seen["confirmed"] += bool(getattr(event.reply, "same_prefix", None))
        return replied(r, event, current, now)  # type: ignore[arg-type]

    def on_installed(r: object, event: SnapshotInstalled, now: float) -> None:
        seen["installed"] += 1
        installed(r, event, now)  # type: ignore[arg-type]

    monkeypatch.setattr(follower, "on_snapshot_opened", on_opened)
    monkeypatch.setattr(follower, "on_snapshot_reply", on_reply)
    monkeypatch.setattr(follower, "on_snapshot_installed", on_installed)
    wanted = ("goes on", "has to be confirmed", "confirmed", "installed")
    for seed in range(20):
        run_cluster(config(seed), 3000)
        if seed >= 2 and all(seen[what] for what in wanted):
            break
    assert all(seen[what] for what in wanted), seen
