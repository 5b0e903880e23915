"""The PySpark data source `quorate_metadata`, which reads the records of metadata logs in parallel,
from directories or from a running quorum, as a table or as a stream.
`quorate.pipeline.datasource.options` lists its options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from quorate.lazy import lazy_module
from quorate.pipeline.datasource.columns import COMMITTED, TYPED_COLUMNS, ddl
from quorate.pipeline.datasource.options import OF_STREAMS, OF_TABLES, Options, parse_options
from quorate.pipeline.datasource.tasks import FileTask, RangeTask, read_task
from quorate.pipeline.directories.committed import committed_end
from quorate.pipeline.directories.copies import find_copies, merge
from quorate.pipeline.directories.layout import group, slices
from quorate.pipeline.live.offsets import Start, StreamOffset
from quorate.pipeline.live.stream import MetadataStreamReader
from quorate.pipeline.live.tail import QuorumTail

if TYPE_CHECKING:
    import pyarrow as pa
else:  # only the tasks need it, not the driver
    pa = lazy_module("pyarrow")

_OF_ONE_KIND: Final = frozenset(name.lower() for name in (*OF_STREAMS, *OF_TABLES))


class MetadataLogSource(DataSource):
    """The data source. `spark.dataSource.register(MetadataLogSource)` registers it, and
    `spark.read.format("quorate_metadata").load(DIRECTORY)` reads from it. With `readStream` it is a stream.
    """

    @classmethod
    def name(cls) -> str:
        return "quorate_metadata"

    def schema(self) -> str:
        """The columns, which are the same for a table and a stream."""
        given = {name: value for name, value in self.options.items() if name not in _OF_ONE_KIND}
        return parse_options(given).selection.ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        return MetadataLogReader(_with_schema(parse_options(self.options), schema))

    def streamReader(self, schema: StructType) -> MetadataStreamReader:
        return MetadataStreamReader(_with_schema(parse_options(self.options, stream=True), schema))


class MetadataLogReader(DataSourceReader):
    """Plans the tasks on the driver by names and sizes of files, or by the offsets of a quorum's log.

    The tasks decode the records.

    It has no `pushFilters`: Spark 4.1 keeps the reader that has the filters of one query for the
    next queries of the same DataFrame, and for both sides of a union, whose rows would then be
    missing. What is read less of is said by the options of a load, which hold for all of its
    queries.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    @property
    def options(self) -> Options:
        """The options with which the tasks read."""
        return self._options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        if options.controllers is not None:
            return [*_quorum_tasks(options)] or [FileTask([])]
        copies = find_copies(options.paths, options.files)
        layout = merge(copies)
        layout.check_snapshot(options.snapshots)
        if options.complete:
            layout.check_complete(options.bounds.first_offset)
        parts = slices(
            layout,
            snapshots=layout.chosen_snapshots(options.snapshots),
            start_offset=options.bounds.first_offset,
            end_offset=options.bounds.end_offset,
            slice_bytes=options.slice_bytes,
            committed=committed_end(copies, options.files) if options.selection.has_any([COMMITTED]) else 0,
            files=options.files,
        )
        return [FileTask(task) for task in group(parts, options.slice_bytes)] or [FileTask([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options)


def _quorum_tasks(options: Options) -> list[RangeTask]:
    """The tasks that read a quorum's log up to its high watermark."""
    assert options.controllers is not None
    first, end = options.bounds.first_offset, options.bounds.end_offset
    with closing(QuorumTail(options.controllers, options.client, options.offsets_per_task)) as tail:
        start = tail.first(StreamOffset(first) if first else Start.EARLIEST)
        committed = tail.first(Start.LATEST)
        last = committed if end is None else replace(committed, offset=min(end, committed.offset))
        if start.offset >= last.offset:
            return []
        tasks = tail.plan(start, last)
    if options.complete:
        _check_complete(tasks, options)
    return tasks


def _check_complete(tasks: Sequence[RangeTask], options: Options) -> None:
    """Raises ValueError if a quorum's log has lost its start, and its snapshot is not the wanted one."""
    for task in tasks:
        end = task.wanted.end
        if task.wanted.begins_with_snapshot and options.snapshots != str(end):
            raise ValueError(
                f"the log of {options.controllers} begins with the snapshot {end}, after startOffset "
                f"{options.bounds.first_offset}"
            )


def _with_schema(options: Options, schema: StructType) -> Options:
    """The options with the columns of a schema. Raises ValueError if a column has another type."""
    options = options.with_columns(_columns(schema))
    expected = [f"{name}:{ddl(options.selection.kind(name))}" for name in options.selection.columns]
    if schema.simpleString() != f"struct<{','.join(expected)}>":
        raise ValueError(f"the schema of these columns is {', '.join(expected)}")
    return options


def _columns(schema: StructType) -> str:
    """The columns of a schema, as the option `columns` names them."""
    names: list[str] = []
    for column in schema.fields:
        kind: Any = column.dataType
        if column.name in TYPED_COLUMNS and isinstance(kind, StructType):
            names += [f"{column.name}.{inner.name}" for inner in kind.fields]
        else:
            names.append(column.name)
    return ",".join(names)
