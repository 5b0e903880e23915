"""The stream reader of the data source. It follows a quorum or directories, batch by batch.

Spark 4.1 gives a Python stream neither the limits of a trigger nor the offset of its checkpoint
before it asks for the newest offset. So the reader keeps its position itself, and takes it from the
first call of `partitions`: after a restart, Spark plans the last batch again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from quorate.lazy import lazy_module
from quorate.pipeline.datasource.options import Options
from quorate.pipeline.datasource.tasks import read_task
from quorate.pipeline.live.directory import DirectoryTail
from quorate.pipeline.live.offsets import OffsetError, StreamOffset, check_order, parse_offset
from quorate.pipeline.live.tail import QuorumTail

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy_module("pyarrow")


class MetadataStreamReader(DataSourceStreamReader):
    """Gives Spark the offsets of a stream and plans its tasks.

    Spark calls it in one process of the driver.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        # Spark also creates readers that it never asks for an offset, and sends the reader to the tasks.
        self._tail: QuorumTail | DirectoryTail | None = None
        self._initial: StreamOffset | None = None
        self._position: StreamOffset | None = None
        self._is_assumed = False
        """Whether the position is that of a first start, although it may be a restart."""

    def initialOffset(self) -> dict[str, Any]:
        """The offset of a stream without a checkpoint."""
        return self._first().to_json()

    def latestOffset(self) -> dict[str, Any]:
        """The end of the next batch: as far as the log is committed, or `maxOffsetsPerTrigger` records."""
        if self._position is None:
            self._position = self._first()
            self._is_assumed = True
        self._position = self._following().advance(self._position, self._options.max_offsets)
        return self._position.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks that read between two offsets. An end before the start is refused."""
        first, last = parse_offset(start), parse_offset(end)
        if self._is_assumed:
            self._is_assumed = False
            self._check_limit(first)
        check_order(first, last)
        if self._position is None or self._position.offset < last.offset:
            self._position = last
        return self._following().plan(first, last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: a quorum does not keep the offsets of its observers."""

    def stop(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _first(self) -> StreamOffset:
        if self._initial is None:
            self._initial = self._following().first(self._options.starting)
        return self._initial

    def _following(self) -> QuorumTail | DirectoryTail:
        if self._tail is None:
            options = self._options
            if options.controllers is not None:
                self._tail = QuorumTail(options.controllers, options.client, options.offsets_per_task)
            else:
                snapshots = options.snapshots != "none"
                self._tail = DirectoryTail(
                    options.paths, options.slice_bytes, snapshots=snapshots, files=options.files
                )
        return self._tail

    def _check_limit(self, start: StreamOffset) -> None:
        """Raises OffsetError if a limit was counted from the wrong offset, because Spark asked for the newest
        offset before it told the offset of the checkpoint. It does so with the trigger `availableNow`."""
        if self._options.max_offsets is not None and start.offset != self._first().offset:
            raise OffsetError(
                "option maxOffsetsPerTrigger does not work with the trigger availableNow, which "
                "reads all that there is in one batch"
            )
