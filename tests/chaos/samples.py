"""Memory, open files, processor time and response times of each process, at intervals."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from tests.chaos.cluster import ChaosCluster

_TICKS = os.sysconf("SC_CLK_TCK")
_SETTLED_SHARE, _GROWTH, _MORE_FILES = 0.5, 1.25, 50
"""In the second half of a soak, a process may grow by a quarter and open that many files more."""


def percentiles_ms(seconds: list[float]) -> dict[str, float]:
    """Returns count, median, p99 and maximum."""
    if not seconds:
        return {"count": 0}
    ordered = sorted(seconds)
    return {
        "count": len(ordered),
        "median_ms": round(1000 * statistics.median(ordered), 2),
        "p99_ms": round(1000 * ordered[int(0.99 * (len(ordered) - 1))], 2),
        "max_ms": round(1000 * ordered[-1], 2),
    }


def sample(cluster: ChaosCluster) -> list[dict[str, object]]:
    """Returns the figures of each running process."""
    found: list[dict[str, object]] = []
    for node_id in cluster.nodes:
        pid = cluster.kafka.pid(node_id)
        if pid is None:
            continue
        times = cluster.response_times(node_id)
        try:
            figures = _process(pid)
        except OSError:
            continue  # it ends now
        role = "controller" if node_id in cluster.controllers else "broker"
        found.append({"node": node_id, "role": role, **figures, "response": percentiles_ms(times)})
    return found


def _process(pid: int) -> dict[str, object]:
    process = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return {
        "pid": pid,
        "rss_mb": round(int(status["VmRSS"].split()[0]) / 1024, 1),
        "files": len(list((process / "fd").iterdir())),
        "threads": int(status["Threads"]),
        "cpu_s": round((int(fields[11]) + int(fields[12])) / _TICKS, 1),
    }


def growth(samples: list[list[dict[str, object]]]) -> list[str]:
    """Returns which processes grew in the second half of the samples."""
    if len(samples) < 4:
        return []
    settled = {s["node"]: s for s in samples[int(len(samples) * _SETTLED_SHARE)]}
    found = []
    for last in samples[-1]:
        first = settled.get(last["node"])
        if first is None or first["pid"] != last["pid"]:
            continue
        if last["rss_mb"] > _GROWTH * first["rss_mb"]:  # type: ignore[operator]
            found.append(f"node {last['node']} grew from {first['rss_mb']} to {last['rss_mb']} MB")
        if last["files"] > first["files"] + _MORE_FILES:  # type: ignore[operator]
            found.append(f"node {last['node']} had {first['files']} open files, then {last['files']}")
    return found
