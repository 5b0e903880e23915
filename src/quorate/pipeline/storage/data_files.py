"""Writes Arrow tables as the Parquet files of a Delta table, and reads them, on local disks and in
Hadoop's file systems.

A file that no commit refers to, because a run was killed or a task was repeated, is not read.
`quorate-pipeline compact` deletes it.

Spark writes some files, too: those of older releases, of schema steps, and where records are taken
back or expire. Its times are INT96 without a zone, and its files have the column `cluster`, which
those of this module lack.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field
from datetime import UTC
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from quorate.dataclass import dataclass
from quorate.log.files import fsync_directory, fsync_path
from quorate.pipeline.directories import hadoop
from quorate.pipeline.directories.files import is_remote, local_path
from quorate.pipeline.directories.temporary import delete_left_over, temporary_prefix

ROWS_PER_GROUP: Final = 131_072
"""The rows of one row group. A reader skips those whose statistics exclude what it looks for."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files of a cluster in a table are."""

    table: str
    """The directory of the table."""
    cluster: str
    """The value of the column by which the table is partitioned. It may have any characters."""
    statistics: tuple[str, ...]
    """The columns of which the commit keeps the least and the greatest value of each file."""
    hadoop: Mapping[str, str] = field(default_factory=dict)
    """Properties of Hadoop's configuration, for a table that is not on a local disk."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table."""

    path: str
    """The path in the table's directory, as Delta's log has it."""
    cluster: str
    size_bytes: int
    stats: Mapping[str, Any]
    """What Delta's log says of its rows: `numRecords`, `minValues`, `maxValues`, `nullCount`."""

    def least(self, column: str) -> Any:
        """The least value of a column, or None if it is not known."""
        return self.stats.get("minValues", {}).get(column)

    def greatest(self, column: str) -> Any:
        """The greatest value of a column, or None if it is not known."""
        return self.stats.get("maxValues", {}).get(column)

    def nulls(self, column: str) -> int | None:
        """How many values of a column are null, if it is known."""
        found: int | None = self.stats.get("nullCount", {}).get(column)
        return found

    def added(self, *, data_change: bool = True) -> str:
        """The action that adds it to its table. Without `data_change`, its rows were there before."""
        return json.dumps(
            {
                "add": {
                    "path": self.path,
                    "partitionValues": {"cluster": self.cluster},
                    "size": self.size_bytes,
                    "modificationTime": _now_ms(),
                    "dataChange": data_change,
                    "stats": json.dumps(self.stats),
                }
            }
        )

    def removed(self, *, data_change: bool = True) -> str:
        """The action that removes it from its table. Without `data_change`, its rows stay."""
        return json.dumps(
            {
                "remove": {
                    "path": self.path,
                    "deletionTimestamp": _now_ms(),
                    "dataChange": data_change,
                    "extendedFileMetadata": True,
                    "partitionValues": {"cluster": self.cluster},
                    "size": self.size_bytes,
                }
            }
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class DataFileWriter:
    """Writes one file.

    It is durable when `close` returns. Its block leaves no file if it ends before that.
    """

    def __init__(self, place: Place, schema: pa.Schema) -> None:
        self._place = place
        name = f"cluster={quote(place.cluster, safe='')}/part-{uuid.uuid4()}.snappy.parquet"
        self._name = name
        self._target = f"{place.table}/{name}"
        if is_remote(place.table):
            delete_left_over()
            descriptor, self._local = tempfile.mkstemp(prefix=temporary_prefix())
            os.close(descriptor)
            self._changed: list[Path] = []
        else:
            self._local = local_path(self._target)
            parent = Path(self._local).parent
            missing = [folder for folder in (parent, *parent.parents) if not folder.exists()]
            self._changed = [parent, *[folder.parent for folder in missing]]
            parent.mkdir(parents=True, exist_ok=True)
        self._is_closed = False
        self._writer = parquet.ParquetWriter(self._local, schema)
        self._waiting: list[pa.Table] = []
        self._count = 0
        self._rows = 0
        self._stats = {name: _Statistics() for name in place.statistics}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_closed:
            try:
                self._writer.close()
            finally:
                Path(self._local).unlink(missing_ok=True)

    def write(self, table: pa.Table) -> None:
        """Adds the rows of a table."""
        for name, statistics in self._stats.items():
            statistics.add(table[name])
        self._waiting.append(table)
        self._count += table.num_rows
        if self._count >= ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=ROWS_PER_GROUP)
        self._rows += self._count
        self._waiting, self._count = [], 0

    def close(self) -> DataFile | None:
        """Ends the file. Returns None, and leaves no file, if it has no row. Raises OSError."""
        if self._count:
            self._flush()
        self._writer.close()
        if not self._rows:
            Path(self._local).unlink()
            self._is_closed = True
            return None
        size = Path(self._local).stat().st_size
        if is_remote(self._target):
            hadoop.store(self._local, self._target, self._place.hadoop)
            Path(self._local).unlink()
        else:
            fsync_path(self._local)
            for folder in self._changed:
                fsync_directory(str(folder))
        self._is_closed = True
        found = {name: statistics for name, statistics in self._stats.items() if statistics.least is not None}
        stats = {
            "numRecords": self._rows,
            "minValues": {name: _json(statistics.least) for name, statistics in found.items()},
            "maxValues": {name: _json(statistics.greatest) for name, statistics in found.items()},
            "nullCount": {name: statistics.nulls for name, statistics in self._stats.items()},
        }
        return DataFile(quote(self._name, safe="/="), self._place.cluster, size, stats)


class _Statistics:
    """The least and the greatest value of a column, and the number of nulls."""

    def __init__(self) -> None:
        self.least: Any = None
        self.greatest: Any = None
        self.nulls = 0

    def add(self, column: pa.ChunkedArray) -> None:
        """Adds the values of a column."""
        self.nulls += column.null_count
        found = pc.min_max(column).as_py()
        if found["min"] is not None:
            self.least = found["min"] if self.least is None else min(self.least, found["min"])
            self.greatest = found["max"] if self.greatest is None else max(self.greatest, found["max"])


def _json(value: Any) -> Any:
    """A value as Delta's statistics have it. Our times have no part of a millisecond."""
    if hasattr(value, "isoformat"):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def join_files(place: Place, paths: Iterable[str], schema: pa.Schema) -> DataFile | None:
    """Writes the rows of some files as one."""
    with DataFileWriter(place, schema) as writer:
        for path in paths:
            with _opened(place, path) as file:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group, columns=_there(file, schema.names))
                    writer.write(conformed(table, schema))
        return writer.close()


def write_file(place: Place, table: pa.Table) -> DataFile | None:
    """Writes rows as one file, or none if there are no rows."""
    if not table.num_rows:
        return None
    with DataFileWriter(place, table.schema) as writer:
        writer.write(table)
        return writer.close()


@contextmanager
def _opened(place: Place, path: str) -> Iterator[parquet.ParquetFile]:
    name = unquote(path)
    whole = name if ":" in name or name.startswith("/") else f"{place.table}/{name}"
    source: AbstractContextManager[Any]
    if is_remote(whole):
        source = hadoop.fetched(whole, 0, -1, place.hadoop)
    else:
        source = nullcontext(local_path(whole))
    # Spark writes times as INT96. Arrow reads these as nanoseconds, which end in the year 2262.
    with source as file, parquet.ParquetFile(file, coerce_int96_timestamp_unit="us") as found:
        yield found


def read_file(place: Place, path: str, schema: pa.Schema) -> pa.Table:
    """The rows of a file. A column that it lacks, because it was added later, is null."""
    with _opened(place, path) as file:
        return conformed(file.read(columns=_there(file, schema.names)), schema)


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema. Those that the table lacks are null, and so are fields of structs. Times that
    Spark wrote, which have no zone, are in UTC."""
    if table.schema.equals(schema):
        return table
    columns = [
        table[column.name].cast(column.type)
        if column.name in table.column_names
        else pa.nulls(table.num_rows, column.type)
        for column in schema
    ]
    return pa.table(columns, schema=schema)


def projected(schema: pa.Schema, columns: Collection[str]) -> pa.Schema:
    """The chosen columns of a schema. `columns` may name fields of structs."""
    found = []
    for column in schema:
        kind = _projected(column.type, column.name, columns)
        if kind is not None:
            found.append((column.name, kind))
    return pa.schema(found)


def _projected(kind: pa.DataType, path: str, columns: Collection[str]) -> pa.DataType | None:
    if path in columns:
        return kind
    if not pa.types.is_struct(kind):
        return None
    fields = [(field.name, _projected(field.type, f"{path}.{field.name}", columns)) for field in kind]
    chosen = [(name, inner) for name, inner in fields if inner is not None]
    return pa.struct(chosen) if chosen else None


def read_groups(
    place: Place, path: str, schema: pa.Schema, columns: Collection[str], start: int, end: int
) -> Iterator[pa.Table]:
    """The rows of a file of events in a range of offsets, group after group, with some columns of a schema.
    `columns` may name fields of structs."""
    chosen = projected(schema, columns)
    with _opened(place, path) as file:
        wanted = _there(file, columns)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=wanted)
            offsets = table["offset"]
            extent = pc.min_max(offsets)
            if extent["min"].as_py() < start or extent["max"].as_py() >= end:
                table = table.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))
            if table.num_rows:
                yield conformed(table, chosen)


def _there(file: parquet.ParquetFile, columns: Collection[str]) -> list[str]:
    known = set(file.schema_arrow.names)
    return [name for name in columns if name.partition(".")[0] in known]
