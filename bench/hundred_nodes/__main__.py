"""Starts a cluster of a hundred nodes on this machine, fills it with topics, restarts nodes one after the
other, and loses a rack:

    python -m bench.hundred_nodes --json bench/results/hundred_nodes.json
    python -m bench.hundred_nodes --brokers 6 --controllers 3 --racks 3 --partitions 300 --topics 3

Every node is a process with one role. `--config` sets a property of all nodes, as in `--config
broker.session.timeout.ms=30000`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from bench.hundred_nodes.steps import Size, measured
from bench.result import heading


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option in fields(Size):
        name = f"--{option.name.replace('_', '-')}"
        default = getattr(Size(), option.name)
        parser.add_argument(name, type=type(default), default=default, help=f"({default})")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--controller-nice", type=int, default=0, help="nice value of the controllers (0)")
    parser.add_argument("--folder", type=Path, help="where the nodes keep their files (a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="keep the files of the nodes")
    parser.add_argument("--json", type=Path, help="where the record goes")
    args = parser.parse_args()
    size = Size(**{option.name: getattr(args, option.name) for option in fields(Size)})
    config = dict(text.split("=", 1) for text in args.config)
    folder = Path(tempfile.mkdtemp(prefix="quorate-nodes-", dir=args.folder))
    record = {
        **heading("hundred_nodes", 1),
        "size": asdict(size),
        "config": config,
        "controller_nice": args.controller_nice,
    }

    def write(figures: dict[str, dict[str, Any]]) -> None:
        """Writes the record after each step, so that a run that fails leaves the steps before."""
        if args.json is not None:
            args.json.write_text(json.dumps({**record, "steps": figures}, indent=1) + "\n")

    try:
        figures = measured(size, folder / "cluster", config, args.controller_nice, write)
    finally:
        if args.keep:
            print(f"files: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if args.json is None:
        print(json.dumps({**record, "steps": figures}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
