"""`quorate metadata log`: who changed what, from files or from a running quorum."""

from __future__ import annotations

import argparse
import asyncio
import mmap
import re
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from quorate.admin.errors import KafkaError, NetError, error_text
from quorate.admin.metadata_log import MetadataObserver
from quorate.admin.quorum_log import QuorumLog
from quorate.metadata.changes import Change, Value
from quorate.metadata.errors import MetadataError
from quorate.metadata.snapshot import read_snapshot
from quorate.pipeline.directories.layout import scan
from quorate.tools.changes.history import Filter, History
from quorate.tools.changes.shown import json_line, text_lines
from quorate.tools.client.admin_client import admin_client
from quorate.tools.command_line import ToolError
from quorate.tools.times import epoch_ms, parse_datetime

RETRY_S = 0.1

_AGO = re.compile(r"(\d{1,9})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class _Printer:
    """Prints changes at once, or the last ones at the end."""

    def __init__(self, args: argparse.Namespace, wanted: Filter) -> None:
        self._json: bool = args.json
        self._most: int = args.max_records
        self._last: deque[tuple[Change, Sequence[Value]]] | None = None
        if args.last is not None:
            self._last = deque(maxlen=args.last)
        self.history = History(wanted, self._emit)

    def _emit(self, change: Change, values: Sequence[Value]) -> None:
        if self._last is not None:
            self._last.append((change, values))
        elif self._json:
            sys.stdout.write(json_line(change, values, self.history.topics) + "\n")
        else:
            for line in text_lines(change, values, self.history.topics, self._most):
                sys.stdout.write(line + "\n")

    def caught_up(self) -> None:
        """Prints what is kept. Each later change is printed at once."""
        last, self._last = self._last, None
        for change, values in last or ():
            self._emit(change, values)
        sys.stdout.flush()


def metadata_log(args: argparse.Namespace) -> int:
    """Runs the command. Raises ToolError."""
    if args.follow and args.bootstrap_controller is None:
        raise ToolError("--follow needs --bootstrap-controller")
    now = time.time()
    since, until = parse_time(args.since, now), parse_time(args.until, now)
    printer = _Printer(args, Filter(args.topic, args.principal, since, until))
    if args.bootstrap_controller is not None:
        _read_quorum(args, printer)
    else:
        _read_files(args, printer.history)
        printer.caught_up()
    if not printer.history.knows_topic:
        raise ToolError(f"The log names no topic {args.topic}")
    return 0


# -- a running quorum


def _read_quorum(args: argparse.Namespace, printer: _Printer) -> None:
    args.bootstrap_server = None
    try:
        asyncio.run(_follow(args, printer))
    except (KafkaError, NetError) as error:
        raise ToolError(f"Error: {error_text(error)}") from error


async def _follow(args: argparse.Namespace, printer: _Printer) -> None:
    """Reads the committed log, and with --follow each change after it, until the user ends the command."""
    log = QuorumLog(printer.history)
    async with admin_client(args) as admin:
        observer = MetadataObserver(admin)
        while not log.caught_up:
            if not await log.step(observer) and not log.caught_up:
                await asyncio.sleep(RETRY_S)
        printer.caught_up()
        while args.follow:
            if not await log.step(observer):
                await asyncio.sleep(RETRY_S)
            sys.stdout.flush()


# -- files


def _read_files(args: argparse.Namespace, history: History) -> None:
    path: Path = args.directory or args.snapshot
    try:
        if args.directory is not None:
            _read_directory(path, history)
        elif path.suffix == ".log":
            _read_segment(path, history)
        else:
            for batch in read_snapshot(_view(path), name=path.name).batches:
                history.read(batch)
    except FileNotFoundError as error:
        raise ToolError(f"{error}. Name the directory of metadata.log.dir, or one of log.dirs.") from error
    except OSError as error:
        raise ToolError(f"Cannot read {path}: {error.strerror}") from error
    except MetadataError as error:
        raise ToolError(f"{path} cannot be read: {error}") from error


def _read_directory(path: Path, history: History) -> None:
    """Reads the log. The snapshot below it only names topics, since it does not say who made a change."""
    layout = scan(path)
    base = layout.base_snapshot()
    if base is not None:
        history.name_topics(read_snapshot(_view(Path(base.path)), name=Path(base.path).name).batches)
        print(f"(The log begins at offset {layout.log_start_offset}.)", file=sys.stderr)
    for segment in layout.segments:
        _read_segment(Path(segment.path), history)


def _read_segment(path: Path, history: History) -> None:
    if not path.exists():  # it is renamed a minute before it is deleted
        path = path.with_name(path.name + ".deleted")
    history.take(_view(path), path.name)


def _view(path: Path) -> memoryview:
    """The content of a file, which stays mapped as long as anything refers to it."""
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            return memoryview(b"")  # an empty file cannot be mapped
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def parse_time(text: str | None, now: float) -> int | None:
    """A time in ms since 1970, from ISO 8601 (UTC unless it has a zone) or a time ago. Raises ToolError."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return int((now - int(ago[1]) * _UNITS[ago[2]]) * 1000)
    try:
        return epoch_ms(parse_datetime(text))
    except ValueError:
        raise ToolError(f"{text} is no time: give 2026-11-23T08:00:00, or 10m for ten minutes ago") from None
