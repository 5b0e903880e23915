"""The options of `quorate-pipeline topics`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module

if TYPE_CHECKING:
    from quorate.tools.lake import topics
else:
    topics = lazy_module("quorate.tools.lake.topics")

_DESCRIPTION = """Keeps topics as Delta tables, exactly once: each topic in the table topic_records/TOPIC of
the lake, and records whose values do not decode in topic_poison. Works with clusters of Apache Kafka too."""


def add_topics(commands: Any, session: topics.Session) -> None:
    """Adds the command to the subparsers of `quorate-pipeline`. `session` opens a Spark session with the
    connector."""
    parser = commands.add_parser(
        "topics", help="keep the records of topics as tables", description=_DESCRIPTION
    )
    add = parser.add_argument
    add("--bootstrap-server", required=True, metavar="HOST:PORT,...", help="brokers to connect to")
    add("--command-config", metavar="FILE", help="properties of the clients")
    add("--topic", required=True, metavar="PATTERN", help="a regular expression for names of topics")
    add("--lake", required=True, metavar="DIRECTORY", help="the directory of the tables")
    add("--cluster", metavar="NAME", help="the cluster's name in the lake (default: its id)")
    values = parser.add_argument_group("values of records")
    add = values.add_argument
    add(
        "--format", choices=("raw", "json", "avro"), default="raw",
        help="bytes as they are (the default), or columns of JSON objects or Avro records",
    )  # fmt: skip
    add(
        "--schema", action="append", default=[], metavar="FILE",
        help="of JSON: 'id BIGINT, name STRING'; of Avro: an .avsc file, repeated for earlier schemas of "
        "the topic",
    )  # fmt: skip
    work = parser.add_argument_group("work")
    when = work.add_mutually_exclusive_group()
    when.add_argument("--once", action="store_true", help="end when the tables are up to date (the default)")
    when.add_argument("--follow", action="store_true", help="continue until Ctrl-C")
    work.add_argument(
        "--interval", type=float, default=5.0, metavar="SECONDS",
        help="how often --follow looks for new records (5)",
    )  # fmt: skip
    work.add_argument(
        "--batch-records", type=_positive, default=1_000_000, metavar="N",
        help="how many records of a topic are written in one commit (1000000)",
    )  # fmt: skip
    parser.set_defaults(run=lambda args: topics.run(args, session))


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return value
