"""What the tasks of the data source read: slices of files, or a range of a quorum's log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from quorate.lazy import lazy_module, lazy_modules
from quorate.pipeline.datasource.bounds import Bounds
from quorate.pipeline.datasource.options import Options
from quorate.pipeline.directories.layout import Slice
from quorate.pipeline.live.offsets import Range

if TYPE_CHECKING:
    import pyarrow as pa

    from quorate.pipeline.decoder import read
    from quorate.pipeline.live import quorum, ranges
else:  # only the tasks need them, not the driver
    pa = lazy_module("pyarrow")
    read = lazy_module("quorate.pipeline.decoder.read")
    quorum, ranges = lazy_modules("quorate.pipeline.live", "quorum", "ranges")


class FileTask(InputPartition):
    """Slices of files, with the bounds of a stream's batch if there is one."""

    def __init__(self, parts: list[Slice], bounds: Bounds | None = None) -> None:
        self.parts = parts
        self.bounds = bounds


class RangeTask(InputPartition):
    """A range of the log of the quorum of the option `controllers`."""

    def __init__(self, wanted: Range) -> None:
        self.wanted = wanted


def read_task(task: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a task."""
    reading = read.Reading(options.selection, options.bounds, options.mode)
    match task:
        case FileTask():
            if task.bounds is not None:
                reading = replace(reading, bounds=task.bounds)
            for part in task.parts:
                yield from read.read_slice(part, reading, options.files)
        case RangeTask():
            assert options.controllers is not None
            with quorum.Quorum(options.controllers, options.client, task.wanted.cluster_id) as found:
                yield from ranges.read_range(
                    found,
                    task.wanted,
                    reading,
                    snapshots=options.snapshots != "none",
                    complete=options.complete,
                )
        case _:
            raise TypeError(f"{task} is no task of this data source")
