"""Options that several commands have."""

from __future__ import annotations

import argparse

ENTITIES = (
    "topics",
    "partitions",
    "brokers",
    "controllers",
    "voters",
    "configs",
    "features",
    "quotas",
    "producer_ids",
    "acls",
    "scram_users",
    "tokens",
)
"""The tables, named here so that --help does not load Spark."""

_MOMENT = "OFFSET|TIME"


def add_lake(parser: argparse.ArgumentParser) -> None:
    """The lake and the cluster."""
    parser.add_argument("--lake", required=True, metavar="DIRECTORY", help="the directory of the tables")
    parser.add_argument("--cluster", metavar="NAME", help="the cluster's name in the lake (default: its id)")


def add_format(parser: argparse.ArgumentParser) -> None:
    """The form of the answer."""
    parser.add_argument("--json", action="store_true", help="print one JSON object per row, with all columns")
    parser.add_argument("--wide", action="store_true", help="show all columns in the table")


def add_entity(parser: argparse.ArgumentParser) -> None:
    """The table that is asked."""
    parser.add_argument("--entity", required=True, choices=ENTITIES, help="the table")


def add_period(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """The begin and the end of a period."""
    text = "only what happened after it" + ("" if required else " (default: the begin of the lake)")
    parser.add_argument("--from", dest="since", metavar=_MOMENT, required=required, help=text)
    parser.add_argument(
        "--to", dest="until", metavar=_MOMENT, help="only up to it (default: the end of the lake)"
    )


def add_key(parser: argparse.ArgumentParser, example: str) -> None:
    """Values of columns that rows must have."""
    parser.add_argument(
        "--key", action="append", default=[], metavar="COLUMN=VALUE",
        help=f"only rows with this value, such as {example} (may be repeated)",
    )  # fmt: skip


def add_unit(parser: argparse.ArgumentParser, default: str, *, total: bool = True) -> None:
    """The length of the steps in which something is counted."""
    units = ["minute", "hour", "day", "week", *(["total"] if total else [])]
    parser.add_argument("--by", choices=units, default=default, help=f"the steps of the answer ({default})")


def add_racks(parser: argparse.ArgumentParser) -> None:
    """Whether racks are counted rather than brokers."""
    parser.add_argument("--racks", action="store_true", help="add up the brokers of each rack")


def add_min_isr(parser: argparse.ArgumentParser) -> None:
    """The value of min.insync.replicas that the log does not have."""
    parser.add_argument(
        "--min-isr", type=int, default=1, metavar="N",
        help="min.insync.replicas in the brokers' properties, for topics without a value of their own (1)",
    )  # fmt: skip
