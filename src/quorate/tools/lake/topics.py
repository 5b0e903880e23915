"""quorate-pipeline topics: keeps topics as Delta tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.admin.errors import KafkaError, NetError, error_text
from quorate.lazy import lazy_module, lazy_modules
from quorate.pipeline.topics.brokers import Brokers
from quorate.tools.client.options import name_filter, read_properties
from quorate.tools.command_line import ToolError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quorate.pipeline.tables import lake as lakes
    from quorate.pipeline.topics import formats, keep, positions, schemas, tables
else:
    lakes = lazy_module("quorate.pipeline.tables.lake")
    formats, keep, positions, schemas, tables = lazy_modules(
        "quorate.pipeline.topics", "formats", "keep", "positions", "schemas", "tables"
    )

Session = Callable[[], AbstractContextManager["SparkSession"]]
"""Opens a Spark session with the connector."""


def run(args: argparse.Namespace, session: Session) -> int:
    """Runs the command. Raises ToolError. What can be refused without Spark is refused before it starts."""
    _check_schema(args)
    matches = name_filter(args.topic)
    try:
        with Brokers(args.bootstrap_server, read_properties(args.command_config)) as brokers:
            if not brokers.topics(matches):
                names = [topic.name for topic in brokers.topics(lambda _: True).values()]
                raise ToolError(f"No topic has a name like {args.topic}. The topics are: {_listed(names)}")
            with session() as spark:
                lake, cluster = lakes.Lake(spark, args.lake), args.cluster or brokers.cluster_id
                written = tables.TopicTables(
                    lake, cluster, brokers.servers, brokers.properties, _format(args, spark)
                )
                keeper = keep.Keeper(
                    brokers, positions.Positions(lake, cluster), written, matches, _report,
                    batch_records=args.batch_records,
                )  # fmt: skip
                keep.keep(keeper, _report, follow=args.follow, interval_s=args.interval)
    except (KafkaError, NetError) as error:
        raise ToolError(error_text(error)) from error
    return 0


def _check_schema(args: argparse.Namespace) -> None:
    """Raises ToolError or OSError if the schema files do not suit the format."""
    if args.format == "raw" and args.schema:
        raise ToolError("--schema needs --format json or --format avro")
    if args.format != "raw" and not args.schema:
        raise ToolError(f"--format {args.format} needs --schema FILE")
    if args.format == "json" and len(args.schema) > 1:
        raise ToolError("--format json takes one --schema")
    for path in args.schema:
        Path(path).read_bytes()


def _format(args: argparse.Namespace, spark: SparkSession) -> formats.Format:
    paths = list(map(Path, args.schema))
    match args.format:
        case "json":
            return formats.JsonFormat(schemas.read_json_schema(paths[0]))
        case "avro":
            return formats.AvroFormat([schemas.read_avro_schema(path) for path in paths])
        case _:
            return formats.RawFormat()


def _report(text: str) -> None:
    print(text, flush=True)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:10])
    return f"{shown}, and {len(names) - 10} others" if len(names) > 10 else shown or "none"
