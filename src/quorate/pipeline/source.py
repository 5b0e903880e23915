"""The PySpark data source `quorate_metadata`, which reads the records of metadata log directories in
parallel. `quorate.pipeline.options` lists its options.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from quorate.lazy import lazy_module
from quorate.pipeline.columns import TYPED_COLUMNS, ddl
from quorate.pipeline.copies import find_copies, merge
from quorate.pipeline.layout import Slice, group, slices
from quorate.pipeline.options import Options, parse_options
from quorate.pipeline.pushdown import push_filters

if TYPE_CHECKING:
    import pyarrow as pa

    from quorate.pipeline.decoder import read
else:  # only the tasks need them, not the driver
    pa = lazy_module("pyarrow")
    read = lazy_module("quorate.pipeline.decoder.read")


class Task(InputPartition):
    """The slices that one Spark task reads."""

    def __init__(self, parts: list[Slice]) -> None:
        self.parts = parts


class MetadataLogSource(DataSource):
    """The data source. `spark.dataSource.register(MetadataLogSource)` registers it, and
    `spark.read.format("quorate_metadata").load(DIRECTORY)` reads from it.
    """

    @classmethod
    def name(cls) -> str:
        return "quorate_metadata"

    def schema(self) -> str:
        return parse_options(self.options).selection.ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        reader = FilteringReader if options.filter_pushdown else MetadataLogReader
        return reader(options.with_columns(_columns(schema)), schema)


class MetadataLogReader(DataSourceReader):
    """Plans the tasks on the driver by names and sizes of files. The tasks decode the records."""

    def __init__(self, options: Options, schema: StructType) -> None:
        expected = [f"{name}:{ddl(options.selection.kind(name))}" for name in options.selection.columns]
        if schema.simpleString() != f"struct<{','.join(expected)}>":
            raise ValueError(f"the schema of these columns is {', '.join(expected)}")
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        layout = merge(find_copies(options.paths))
        found = slices(
            layout,
            snapshots=layout.chosen_snapshots(options.snapshots),
            start_offset=options.bounds.first_offset,
            end_offset=options.bounds.end_offset,
            slice_bytes=options.slice_bytes,
        )
        return [Task(parts) for parts in group(found, options.slice_bytes)] or [Task([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        options = self._options
        reading = read.Reading(options.selection, options.bounds, options.mode)
        for part in partition.parts:
            yield from read.read_slice(part, reading)


class FilteringReader(MetadataLogReader):
    """A reader that uses the filters of the query. Spark refuses a reader with this method unless
    `spark.sql.python.filterPushdown.enabled` is true, so it is a class and an option of its own."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Uses what filters say about offsets, times and types to read less. Spark evaluates them again."""
        self._options = push_filters(self._options, filters)
        return filters


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
