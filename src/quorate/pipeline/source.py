"""The PySpark data source `quorate_metadata`, which reads the records of a metadata log directory in
parallel.

Options:
- `path`, or the argument of `load`: the directory
- `snapshots`: `all` (default), `base` (the snapshot that replaces the deleted start of the log), `resets`
  (that snapshot and those before it), `latest` or `none`
- `startOffset` and `endOffset` (exclusive): the range of the log's records
- `payload` (default true): whether to fill the column `json`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from quorate.lazy import lazy_module
from quorate.pipeline.decoder import COLUMNS, read_slice
from quorate.pipeline.layout import Layout, Slice, SnapshotFile, group, scan, slices

if TYPE_CHECKING:
    import pyarrow as pa
else:  # only the tasks need it, not the driver
    pa = lazy_module("pyarrow")

SCHEMA = ", ".join([f"{name} {kind}" for name, kind in COLUMNS])


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
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return MetadataLogReader(dict(self.options))


class MetadataLogReader(DataSourceReader):
    """Plans the tasks on the driver by names and sizes of files. The tasks decode the records."""

    def __init__(self, options: dict[str, str]) -> None:
        lowered = {key.lower(): value for key, value in options.items()}
        path = lowered.get("path")
        if not path:
            raise ValueError("quorate_metadata needs the directory: load(PATH)")
        self._path = path
        self._snapshots = lowered.get("snapshots", "all")
        if self._snapshots not in ("all", "base", "resets", "latest", "none"):
            raise ValueError(f"option snapshots is {self._snapshots!r}: all, base, resets, latest or none")
        self._start = int(lowered.get("startoffset", "0"))
        self._end = int(lowered["endoffset"]) if "endoffset" in lowered else None
        self._payload = lowered.get("payload", "true").lower() == "true"

    def partitions(self) -> list[InputPartition]:
        layout = scan(self._path)
        found = slices(layout, snapshots=self._chosen(layout), start_offset=self._start, end_offset=self._end)
        return [Task(parts) for parts in group(found)] or [Task([])]

    def _chosen(self, layout: Layout) -> list[SnapshotFile]:
        match self._snapshots:
            case "none":
                return []
            case "base":
                base = layout.base_snapshot()
                return [] if base is None else [base]
            case "resets":
                return layout.resets()
            case "latest":
                return list(layout.snapshots[-1:])
            case _:
                return list(layout.snapshots)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        types = {
            "bigint": pa.int64(),
            "int": pa.int32(),
            "string": pa.string(),
            "boolean": pa.bool_(),
            "timestamp": pa.timestamp("us", tz="UTC"),
        }
        schema = pa.schema([(name, types[kind]) for name, kind in COLUMNS])
        assert isinstance(partition, Task)
        for part in partition.parts:
            for columns in read_slice(
                part, start_offset=self._start, end_offset=self._end, payload=self._payload
            ):
                arrays = [pa.array(columns[field.name], type=field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
