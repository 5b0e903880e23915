"""Where the tables get the records of a cluster from: directories, or the controllers of a live quorum.

DIRECTORY[,DIRECTORY...]        metadata logs, log directories, folders of nodes or of a cluster
controllers://HOST:PORT[,...]   a live quorum
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from quorate.dataclass import dataclass
from quorate.pipeline.datasource.bounds import Bounds
from quorate.pipeline.datasource.columns import select
from quorate.pipeline.datasource.options import CLIENT_PREFIX, parse_options
from quorate.pipeline.datasource.source import MetadataLogReader
from quorate.pipeline.decoder.read import Reading, read_slice, read_view
from quorate.pipeline.directories.copies import Copy, find_copies, merge
from quorate.pipeline.directories.layout import Slice, slices
from quorate.pipeline.live.offsets import OffsetError
from quorate.pipeline.live.tail import QuorumTail

CONTROLLERS: Final = "controllers://"

FEW_RECORDS: Final = 120_000
"""So many records are applied in the process that drives Spark, in seconds and some 100 MB."""


class SourceError(Exception):
    """The source cannot be used. The message says why."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The records that a source has from an offset on."""

    start: int
    """The first offset of the log's records that are read."""
    end: int
    """The offset after the last one."""
    snapshot: int | None = None
    """The end offset of the snapshot that replaces the records before `start`, because the log begins later.
    """


class Mark(NamedTuple):
    """Leader epoch and time of a record. Two logs that agree in the epoch at an offset are equal up to it."""

    epoch: int
    timestamp_ms: int


class Source(Protocol):
    """A metadata log, from which the tables of a lake get their rows."""

    def cluster_id(self) -> str | None:
        """The id of the cluster, if it is known."""
        ...

    def extent(self, offset: int) -> Extent:
        """What there is to read from an offset on. Raises SourceError if the log does not have it, nor a
        snapshot."""
        ...

    def mark(self, offset: int) -> Mark | None:
        """Epoch and time of the record at an offset, or None if the log does not have it any more."""
        ...

    def reader(self, extent: Extent, columns: str, types: str | None = None) -> MetadataLogReader:
        """A reader of the rows in an extent. To read them fails if the log has lost some meanwhile."""
        ...

    def close(self) -> None:
        """Closes the connections of a live quorum. Directories have none."""
        ...


def open_source(text: str, properties: Mapping[str, str] = MappingProxyType({})) -> Source:
    """The source of a command's option. `properties` are Kafka's properties of clients, for a live quorum."""
    if text.startswith(CONTROLLERS):
        return ControllerSource(text.removeprefix(CONTROLLERS), properties)
    if properties:
        raise SourceError(f"properties of a client are for a source {CONTROLLERS}HOST:PORT,... only")
    return DirectorySource(tuple([path.strip() for path in text.split(",") if path.strip()]))


class DirectorySource:
    """Directories of one cluster's nodes. The driver reads names and sizes of files, the executors their
    content. Records that the nodes have not committed yet are read, too."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        find_copies(self._paths)  # raises FileNotFoundError and ValueError

    def _copies(self) -> list[Copy]:
        return find_copies(self._paths)

    def cluster_id(self) -> str | None:
        return next((copy.cluster_id for copy in self._copies() if copy.cluster_id is not None), None)

    def extent(self, offset: int) -> Extent:
        copies = self._copies()
        layout = merge(copies)
        _, end = max([(copy.last_epoch, copy.end_offset) for copy in copies])
        if layout.log_start_offset <= offset:
            return Extent(offset, end)
        base = layout.base_snapshot()
        if base is None:
            raise SourceError(
                f"{layout.directory} begins at offset {layout.log_start_offset} and has no snapshot for the "
                f"records from {offset} on"
            )
        return Extent(base.end_offset, end, base.end_offset)

    def mark(self, offset: int) -> Mark | None:
        layout = merge(self._copies())
        if offset < layout.log_start_offset:
            return None
        parts = slices(layout, snapshots=(), start_offset=offset, end_offset=offset + 1)
        return _mark((batch for part in parts for batch in read_slice(part, _marks(offset))), offset)

    def reader(self, extent: Extent, columns: str, types: str | None = None) -> MetadataLogReader:
        return MetadataLogReader(parse_options(self._options(extent, columns, types)))

    def _options(self, extent: Extent, columns: str, types: str | None) -> dict[str, str]:
        return _options(extent, columns, types) | {"path": ",".join(self._paths)}

    def close(self) -> None:
        pass


class ControllerSource:
    """The controllers of a live quorum, which this process and the tasks follow as observers. Only committed
    records are read."""

    def __init__(self, servers: str, properties: Mapping[str, str] = MappingProxyType({})) -> None:
        """`properties` are Kafka's properties of clients. Connects, and raises ValueError, KafkaError and
        NetError."""
        self._servers = servers
        self._properties = dict(properties)
        self._tail = QuorumTail(servers, self._properties, 1)

    def cluster_id(self) -> str | None:
        return self._tail.cluster_id

    def extent(self, offset: int) -> Extent:
        try:
            start, committed = self._tail.available(offset)
        except OffsetError as error:
            raise SourceError(f"{error}: was the cluster formatted anew?") from error
        # A new active controller does not know yet how much is committed.
        return Extent(start, max(start, committed), start if start > offset else None)

    def mark(self, offset: int) -> Mark | None:
        batch = self._tail.batch_at(offset)
        if batch is None:
            return None
        part = Slice(self._servers, 0, -1, len(batch))
        return _mark(read_view(part, memoryview(batch), _marks(offset)), offset)

    def reader(self, extent: Extent, columns: str, types: str | None = None) -> MetadataLogReader:
        return MetadataLogReader(parse_options(self._options(extent, columns, types)))

    def _options(self, extent: Extent, columns: str, types: str | None) -> dict[str, str]:
        options = _options(extent, columns, types) | {"controllers": self._servers}
        options |= {f"{CLIENT_PREFIX}{name}": value for name, value in self._properties.items()}
        if extent.snapshot is not None:
            options["startOffset"] = "0"  # which is gone, so that the quorum sends its snapshot
        return options

    def close(self) -> None:
        self._tail.close()


def _options(extent: Extent, columns: str, types: str | None) -> dict[str, str]:
    """The options of the data source that read an extent."""
    found = {
        "columns": columns,
        "startOffset": str(extent.start),
        "endOffset": str(extent.end),
        "snapshots": "none" if extent.snapshot is None else str(extent.snapshot),
        "complete": "true",
    }
    return found if types is None else found | {"types": types}


def is_little(extent: Extent) -> bool:
    """Whether an extent has few records only. How many a snapshot has is not known."""
    return extent.snapshot is None and extent.end - extent.start <= FEW_RECORDS


def _marks(offset: int) -> Reading:
    return Reading(select("offset,epoch,timestamp"), Bounds(offset, offset + 1))


def _mark(batches: Iterable[pa.RecordBatch], offset: int) -> Mark | None:
    for batch in batches:
        for row in batch.to_pylist():
            if row["offset"] == offset:
                return Mark(row["epoch"], round(row["timestamp"].timestamp() * 1000))
    return None
