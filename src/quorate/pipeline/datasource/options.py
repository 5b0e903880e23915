"""The options of the data source. An option that is not listed here is refused.

| option | meaning |
|---|---|
| `path` | the directories, with commas: metadata logs, log directories, folders of nodes or clusters |
| `controllers` | the controllers of a running quorum, `HOST:PORT` with commas, instead of a path |
| `kafka.NAME` | Kafka's client property NAME for the connections to `controllers` |
| `hadoop.NAME` | the property NAME of Hadoop's configuration, for paths in its file systems |
| `columns` | the columns; `partition_record.leader` is one field of a struct column |
| `types` | the record types of which rows are read |
| `startOffset`, `endOffset` | the range of the log's records; the end is exclusive |
| `startTime`, `endTime` | the times of records and of snapshots' rows, in ISO 8601; the end is exclusive |
| `snapshots` | `all` (default), `base`, `resets`, `latest` or `none`, or the end offset of one |
| `complete` | true to fail if the log begins after `startOffset`, or lacks that snapshot |
| `mode` | `FAILFAST` (default), `PERMISSIVE` or `DROPMALFORMED`: what happens where a file is damaged |
| `sliceBytes` | the bytes that one task reads |
| `startingOffset` | of a stream: `earliest` (default), `latest`, a number, or an offset of a checkpoint |
| `maxOffsetsPerTrigger` | of a stream: the records that one batch reads at most |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final

from quorate.dataclass import dataclass
from quorate.pipeline.datasource.bounds import (
    EPOCH,
    EVERYTHING,
    FIRST_TIME_MS,
    LAST_TIME_MS,
    MILLISECOND,
    Bounds,
    Mode,
    parse_time,
)
from quorate.pipeline.datasource.columns import Selection, select
from quorate.pipeline.directories.files import LOCAL, Files
from quorate.pipeline.directories.layout import SLICE_BYTES
from quorate.pipeline.live.offsets import Start, StartingOffset, parse_starting_offset

SNAPSHOTS: Final = ("all", "base", "resets", "latest", "none")
"""`base` is the snapshot that replaces the deleted start of the log, `resets` that one and those
before it."""

CLIENT_PREFIX: Final = "kafka."
HADOOP_PREFIX: Final = "hadoop."

OF_STREAMS: Final = ("startingOffset", "maxOffsetsPerTrigger")
OF_TABLES: Final = ("startOffset", "endOffset", "startTime", "endTime")
"""The options that only a stream, or only a read of a table, has."""

NAMES: Final = (
    "path",
    "controllers",
    "columns",
    "types",
    "startOffset",
    "endOffset",
    "startTime",
    "endTime",
    "snapshots",
    "complete",
    "mode",
    "sliceBytes",
    "startingOffset",
    "maxOffsetsPerTrigger",
)

_RECORD_BYTES: Final = 128
"""A metadata record is about this large, so that a task reads `sliceBytes` of a quorum's log."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a read, parsed and checked against each other."""

    paths: tuple[str, ...]
    types: str | None = None
    selection: Selection = field(default_factory=Selection)
    snapshots: str = "all"
    bounds: Bounds = EVERYTHING
    mode: Mode = Mode.FAILFAST
    slice_bytes: int = SLICE_BYTES
    controllers: str | None = None
    client: dict[str, str] = field(default_factory=dict)
    """Kafka's client properties."""
    files: Files = LOCAL
    starting: StartingOffset = Start.EARLIEST
    max_offsets: int | None = None
    complete: bool = False

    @property
    def offsets_per_task(self) -> int:
        """The records of a quorum's log that one task reads."""
        return max(1, self.slice_bytes // _RECORD_BYTES)

    def with_columns(self, columns: str) -> Options:
        """The options with the columns of a schema."""
        return replace(self, selection=select(columns, self.types))


def parse_options(given: Mapping[str, str], *, stream: bool = False) -> Options:
    """Parses the options, whose names are not case-sensitive. Raises ValueError with the option's name and
    its possible values."""
    known = {name.lower(): name for name in NAMES}
    values: dict[str, str] = {}
    client: dict[str, str] = {}
    hadoop: dict[str, str] = {}
    for name, value in given.items():
        if name.lower().startswith(CLIENT_PREFIX):
            client[name.lower().removeprefix(CLIENT_PREFIX)] = value
        elif name.lower().startswith(HADOOP_PREFIX):
            hadoop[name[len(HADOOP_PREFIX) :]] = value
        elif name.lower() in known:
            values[known[name.lower()]] = value
        else:
            raise ValueError(
                f"quorate_metadata has no option {name}, only {', '.join(NAMES)}, kafka.NAME, hadoop.NAME"
            )
    for name in OF_TABLES if stream else OF_STREAMS:
        if name in values:
            raise ValueError(f"option {name} is {'not for streams' if stream else 'for streams only'}")
    paths = tuple(path.strip() for path in values.get("path", "").split(",") if path.strip())
    controllers = values.get("controllers")
    if not paths and controllers is None:
        raise ValueError("quorate_metadata needs a directory, load(PATH), or the option controllers")
    if paths and controllers is not None:
        raise ValueError("quorate_metadata reads either a path or the option controllers, not both")
    if client and controllers is None:
        raise ValueError(f"option {CLIENT_PREFIX}{min(client)} is only for the option controllers")
    return Options(
        paths,
        values.get("types"),
        select(values.get("columns"), values.get("types")),
        _snapshots(values.get("snapshots", "all")),
        _bounds(values),
        Mode(_choice("mode", values.get("mode", Mode.FAILFAST).upper(), tuple(Mode))),
        _number(values, "sliceBytes", least=1) or SLICE_BYTES,
        controllers,
        client,
        Files(hadoop),
        parse_starting_offset(values.get("startingOffset", Start.EARLIEST)),
        _number(values, "maxOffsetsPerTrigger", least=1),
        _choice("complete", values.get("complete", "false").lower(), ("true", "false")) == "true",
    )


def _bounds(values: Mapping[str, str]) -> Bounds:
    """The range of offsets and times. Rows whose time no calendar has are in no range of times."""
    offsets = Bounds(_number(values, "startOffset") or 0, _number(values, "endOffset"))
    first, end = (_time_ms(values, name) for name in ("startTime", "endTime"))
    if first is None and end is None:
        return offsets
    return offsets._replace(
        first_time_ms=FIRST_TIME_MS if first is None else first,
        last_time_ms=LAST_TIME_MS if end is None else end - 1,
    )


def _time_ms(values: Mapping[str, str], name: str) -> int | None:
    """The first millisecond that is not before a time. The times of records are whole milliseconds."""
    text = values.get(name)
    if text is None:
        return None
    try:
        return -((EPOCH - parse_time(text)) // MILLISECOND)
    except ValueError:
        raise ValueError(
            f"option {name} is {text!r}, but must be a time such as 2026-11-21T09:20:54, in UTC "
            "unless it has a zone"
        ) from None


def _snapshots(value: str) -> str:
    return value if value.isascii() and value.isdigit() else _choice("snapshots", value, SNAPSHOTS)


def _choice(name: str, value: str, possible: tuple[str, ...]) -> str:
    if value not in possible:
        raise ValueError(f"option {name} is {value!r}: {', '.join(possible[:-1])} or {possible[-1]}")
    return value


def _number(values: Mapping[str, str], name: str, least: int = 0) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ValueError(f"option {name} is {text!r}, but must be a number from {least} on")
    return int(text)
