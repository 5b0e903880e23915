"""Memory, open files, processor time and response times of each process, at intervals."""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import Any

from tests.chaos.cluster import ChaosCluster

_TICKS = os.sysconf("SC_CLK_TCK")
_GROWTH, _MORE_FILES, _FILES_OF_A_SEGMENT = 1.25, 50, 3
"""In the second half of a soak, a process may grow by a quarter. It may open 50 files more, and those of the
segments that were added meanwhile, because its cache of open files is larger."""


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


def sample(cluster: ChaosCluster) -> list[dict[str, Any]]:
    """Returns the figures of each running process."""
    found: list[dict[str, Any]] = []
    for node_id in cluster.nodes:
        pid = cluster.kafka.pid(node_id)
        if pid is None:
            continue
        times = cluster.response_times(node_id)
        try:
            used = figures(pid)
            segments = sum(1 for _ in cluster.kafka.data_directory(node_id).glob("*/*.log"))
        except OSError:
            continue  # it ends now
        role = "controller" if node_id in cluster.controllers else "broker"
        found.append(
            {
                "node": node_id,
                "role": role,
                **used,
                "segments": segments,
                "response": percentiles_ms(times),
            }
        )
    return found


def figures(pid: int) -> dict[str, object]:
    """Returns what a process uses. Raises OSError if it has ended."""
    process = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
    if "VmRSS" not in status:
        raise ProcessLookupError(f"process {pid} has ended")
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return {
        "pid": pid,
        "rss_mb": round(int(status["VmRSS"].split()[0]) / 1024, 1),
        "files": len(list((process / "fd").iterdir())),
        "threads": int(status["Threads"]),
        "cpu_s": round((int(fields[11]) + int(fields[12])) / _TICKS, 1),
    }


def growth(samples: list[list[dict[str, Any]]]) -> list[str]:
    """Returns which processes grew in the second half of the samples."""
    if len(samples) < 4:
        return []
    settled = {s["node"]: s for s in samples[len(samples) // 2]}
    found = []
    for last in samples[-1]:
        first = settled.get(last["node"])
        if first is None or first["pid"] != last["pid"]:
            continue
        if last["rss_mb"] > _GROWTH * first["rss_mb"]:
            found.append(f"node {last['node']} grew from {first['rss_mb']} to {last['rss_mb']} MB")
        added = _FILES_OF_A_SEGMENT * max(0, last["segments"] - first["segments"])
        if last["files"] > first["files"] + added + _MORE_FILES:
            found.append(f"node {last['node']} had {first['files']} open files, then {last['files']}")
    return found
