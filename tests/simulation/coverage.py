"""A configuration with every kind of work and of fault, to show that each of them takes effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from simulation.config import DiskConfig, FaultSchedule, NetworkConfig, SimulationConfig, Topology, Workload

CONFIG = SimulationConfig(
    3,
    Topology(voters=3, spares=2, observers=1, kraft_version=0),
    NetworkConfig(loss=0.01, duplicate=0.05, long_delay=0.02),
    DiskConfig(slow=0.02, segment_ms=2000, retention_bytes=3000),
    Workload(
        propose_every_s=0.05,
        change_voters_every_s=0.5,
        snapshot_every_s=0.7,
        resign_every_s=6.0,
        restart_every_s=6.0,
        upgrade_every_s=1.0,
    ),
    FaultSchedule(
        crash_every_s=3.0,
        blackout_every_s=20.0,
        down_s=(0.0, 2.0),
        cut_every_s=2.0,
        isolate_every_s=6.0,
        split_every_s=6.0,
        cut_s=(0.1, 3.0),
        pause_every_s=5.0,
        pause_s=(0.05, 2.0),
        bad_disk_every_s=6.0,
        skew=0.05,
    ),
)
KINDS = (
    "changes of voters",
    "deaths within a step",
    "elections",
    "failing disks",
    "joins by oneself",
    "kills",
    "kraft.version upgrades",
    "messages cut off one way",
    "messages cut off",
    "messages lost",
    "new directories",
    "pauses",
    "power failures",
    "requests duplicated",
    "requests overtaken",
    "skewed clocks",
    "snapshots loaded",
    "snapshots taken",
    "truncations",
)


def missing(
    run: Callable[[SimulationConfig], Counter[str]], kinds: tuple[str, ...], worlds: int = 8
) -> list[str]:
    """Returns the kinds that took no effect in so many simulations. Stops as soon as all have."""
    seen: Counter[str] = Counter()
    for seed in range(worlds):
        # A node that joins by itself is never out for long enough to get a new directory.
        topology = replace(CONFIG.topology, auto_join=seed % 2 == 1)
        seen += run(replace(CONFIG, seed=seed, topology=topology))
        if all(seen[kind] for kind in kinds):
            return []
    return [kind for kind in kinds if not seen[kind]]
