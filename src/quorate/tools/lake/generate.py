"""quorate-pipeline generate: writes the metadata log of a large cluster's years, from a seed."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_modules

if TYPE_CHECKING:
    from quorate.pipeline.generator import cluster, years
else:
    cluster, years = lazy_modules("quorate.pipeline.generator", "cluster", "years")


def add_generate(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "generate", help="write the metadata log of a large cluster's years, to try things"
    )
    parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="a new node directory")
    for name, default, text in (
        ("records", 100_000, "how many records the log has at least"),
        ("seed", 1, "the same seed and options give the same log"),
        ("brokers", 12, "the brokers"),
        ("racks", 3, "their racks"),
        ("topics", 100, "the topics at the beginning; at most twice as many later"),
        ("partitions", 12, "the partitions of the largest topics"),
        ("segment-bytes", 16 << 20, "the size of the segments"),
        ("snapshot-every", 100_000, "the records after which there is a snapshot"),
    ):
        parser.add_argument(
            f"--{name}", type=_count, default=default, metavar="N", help=f"{text} ({default})"
        )
    parser.add_argument(
        "--cycle", type=_count, metavar="N",
        help="simulate about so many records only, and repeat them with other topics: faster for large logs",
    )  # fmt: skip
    parser.add_argument(
        "--clean", action="store_true", help="delete what the last snapshot but one contains, as a node does"
    )
    parser.set_defaults(run=_generate)


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return value


def _generate(args: argparse.Namespace) -> int:
    size = cluster.Size(args.brokers, args.racks, args.topics, args.partitions)
    done = years.generate(
        args.directory,
        seed=args.seed,
        records=args.records,
        size=size,
        segment_bytes=args.segment_bytes,
        snapshot_every=args.snapshot_every,
        clean=args.clean,
        cycle=args.cycle,
    )
    since, until = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (done.first_ms, done.last_ms))
    print(
        f"Wrote offsets {done.start_offset} to {done.records - 1} of cluster {done.cluster_id}, from "
        f"{since:%Y-%m-%d} to {until:%Y-%m-%d}, and {done.snapshots} snapshots."
    )
    return 0
