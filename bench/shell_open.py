"""How long `kafka-metadata-shell` takes to open the snapshot of a large cluster, and to list its root.

    python -m bench.shell_open --make million.checkpoint          # a million partitions: 125 MB
    python -m bench.shell_open million.checkpoint --runs 5 --json bench/results/shell_open.json

Times are of the tool's process, from its start to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.result import heading
from bench.snapshot import SNAPSHOT, data_batches, put_snapshot
from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.raft.storage.snapshots.files import snapshot_name
from tests.support.cluster import Node

SHELL = Path(sys.executable).parent / "kafka-metadata-shell"
LIMIT_S = 5.0


def make(path: Path, partitions: int) -> int:
    """Writes a snapshot of so many partitions. Returns its size in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder) / "node", roles="controller")
        node.format()
        size = put_snapshot(node, list(data_batches(partitions)))
        shutil.move(node.data / f"{METADATA_TOPIC}-0" / snapshot_name(SNAPSHOT), path)
    return size


def opened(path: Path) -> tuple[float, float]:
    """The elapsed time and the CPU time of the shell, in seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [str(SHELL), "--snapshot", str(path), "ls", "/image"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    elapsed, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "topics" in done.stdout, done.stdout
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("snapshot", type=Path)
    parser.add_argument("--make", action="store_true", help="writes the snapshot")
    parser.add_argument("--partitions", type=int, default=1_000_000, help="with --make")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the figures to this file")
    args = parser.parse_args()
    if args.make:
        print(f"{make(args.snapshot, args.partitions) / 1e6:.0f} MB")
        return
    load = round(os.getloadavg()[0], 1)
    opened(args.snapshot)  # the file and the modules are in the page cache afterwards
    runs = [opened(args.snapshot) for _ in range(args.runs)]
    figures = {
        name: {
            "median": round(statistics.median(values), 2),
            "min": round(min(values), 2),
            "max": round(max(values), 2),
        }
        for name, values in zip(("elapsed_s", "cpu_s"), zip(*runs, strict=True), strict=True)
    }
    print(f"{figures} (limit {LIMIT_S} s)")
    if args.json:
        result = heading("shell_open", args.runs) | {
            "load_average": load,
            "snapshot_mb": round(args.snapshot.stat().st_size / 1e6),
            "figures": figures,
        }
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
