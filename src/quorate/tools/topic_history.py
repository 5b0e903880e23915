"""quorate-topic-history: prints or writes the history of every topic from a metadata log directory.

What is printed of a small log is computed by this process. The rest is computed by Spark.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from quorate.lazy import lazy_module, lazy_modules
from quorate.tools.command_line import Parser, ToolError, printable, run

if TYPE_CHECKING:
    from quorate.pipeline.directories import copies, files
    from quorate.pipeline.history import topic_events
    from quorate.pipeline.jobs import topic_history as job
    from quorate.pipeline.spark import session
else:
    copies, files = lazy_modules("quorate.pipeline.directories", "copies", "files")
    session = lazy_module("quorate.pipeline.spark.session")
    job = lazy_module("quorate.pipeline.jobs.topic_history")
    topic_events = lazy_module("quorate.pipeline.history.topic_events")


SMALL_BYTES: Final = 32 << 20
"""A log up to this size is small: some 400,000 records, for which this process takes a second."""

_ORDER: Final = ("topic", "topic_id", "offset", "position")
_ROWS: Final = 1 << 12
"""The rows that are prepared for printing at once."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    return run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    parser = Parser(
        "quorate-topic-history",
        "Shows what happened to every topic: created, deleted, leaders, ISR, replicas, configs; with offsets "
        "and times.",
    )
    parser.add_version()
    parser.add_argument(
        "directory",
        metavar="DIR",
        help="__cluster_metadata-0, a log directory, or a folder with those of several nodes, running or not",
    )
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME", help="only this topic (may be repeated)"
    )
    parser.add_argument("--output", metavar="PATH", help="write the events there instead of printing them")
    parser.add_argument(
        "--format", default="parquet", choices=("parquet", "json"), help="of --output (default: parquet)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per event")
    options = parser.parse_args(argv)
    copies.find_copies([options.directory])  # fails before Spark is started
    try:
        found = None if options.output else job.history_here(options.directory, SMALL_BYTES)
    except ModuleNotFoundError as error:
        raise ToolError(f"{error.name} is not installed: pip install 'quorate[spark]'") from error
    if found is not None:
        found = found.sort_by([(column, "ascending") for column in _ORDER]).select(topic_events.EVENT_COLUMNS)
        rows = (row for batch in found.to_batches(_ROWS) for row in batch.to_pylist())
        _print((row for row in rows if not options.topic or row["topic"] in options.topic), options)
    else:
        _by_spark(options)
    return 0


def _by_spark(options: Namespace) -> None:
    try:
        borrowed = session.has_session()
        spark = session.local_session("quorate-topic-history")
    except ModuleNotFoundError as error:
        raise ToolError(f"{error.name} is not installed: pip install 'quorate[spark]'") from error
    try:
        if options.output and options.format == "parquet" and not files.is_remote(options.output):
            job.write_parquet(spark, options.directory, files.local_path(options.output), options.topic)
            return
        events = job.history(spark, options.directory)
        if options.topic:
            events = events.where(events["topic"].isin(options.topic))
        if options.output:
            events.drop("position").write.mode("errorifexists").format(options.format).save(options.output)
        else:
            rows = events.orderBy(*_ORDER).select(*topic_events.EVENT_COLUMNS).toLocalIterator()
            _print((row.asDict(recursive=True) for row in rows), options)
    except Exception as error:
        raise ToolError(f"Error: {_reason(error)}") from error
    finally:
        if not borrowed:
            spark.stop()


def _reason(error: Exception) -> str:
    """Returns the line of an error that has the reason.

    Errors of Spark tasks contain a worker's traceback.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    worker = [
        line
        for line in lines
        if line.startswith(("quorate.", "FileNotFoundError", "OSError", "ValueError", "PermissionError"))
    ]
    return (worker or lines or [type(error).__name__])[0]


def _print(rows: Iterator[dict[str, Any]], options: Namespace) -> None:
    for line in json_lines(rows) if options.json else text_lines(rows):
        sys.stdout.write(line + "\n")


def json_lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Yields a JSON object for each event, with times in ISO 8601."""
    for row in rows:
        yield json.dumps(
            {**row, "timestamp": _time(row["timestamp"]).isoformat(timespec="milliseconds")},
            ensure_ascii=False,
        )


def text_lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Yields a heading for each topic and a line for each of its events."""
    last: str | None = None
    for row in rows:
        if row["topic_id"] != last:
            if last is not None:
                yield ""
            last = row["topic_id"]
            yield printable(f"{row['topic'] or '(unknown name)'}  {row['topic_id'] or ''}".rstrip())
        yield (
            f"  {_time(row['timestamp']):%Y-%m-%d %H:%M:%S.%f}"[:-3]
            + f"  offset {row['offset']:<8} {printable(_text(row))}"
        )


def _time(value: datetime) -> datetime:
    """Converts a time of Spark, which is local and has no zone, to UTC."""
    return value.astimezone(UTC) if value.tzinfo is None else value


def _text(row: dict[str, Any]) -> str:
    event, changes = row["event"], row["changes"]
    sign = " " if row["partition"] is not None else " = "
    shown = ", ".join([_change(change, sign) for change in changes])
    if row["partition"] is not None:
        what = {"partition added": " added", "in snapshot": " in snapshot"}.get(event, "")
        return f"partition {row['partition']}{what}: {shown}"
    if not changes:
        return str(event)
    return f"{'config' if event.startswith('config') else f'{event}: config'} {shown}"


_NAMES = {"isr": "ISR", "elr": "ELR", "last known elr": "last known ELR"}


def _change(change: dict[str, str | None], sign: str) -> str:
    name = _NAMES.get(change["field"] or "", change["field"])
    old, new = change["old"], change["new"]
    if change["field"] == "leader":
        old, new = ("none" if value == "-1" else value for value in (old, new))
    if old is None:
        return f"{name}{sign}{new}"
    return f"{name} {old} -> {'unset' if new is None else new}"


if __name__ == "__main__":
    sys.exit(main())
