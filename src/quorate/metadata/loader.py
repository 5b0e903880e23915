"""Builds images from the committed batches of the log and from the batches of a snapshot.

`apply_steps` and `load_steps` build the same images in small steps, because a step of more than a few
milliseconds would block the event loop.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Protocol

from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import decode_record, frame
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import ImageBuilder
from quorate.metadata.records import NoOpRecord, PartitionRecord
from quorate.records.record_runs import MIN_RUN

STEP_RECORDS = 256
"""The records that are replayed in one step, in one to two milliseconds."""

IMAGE_RECORDS = 1_024
"""The records after which an image is made, which takes another three milliseconds. An image of a
million partitions made at once would take seconds."""

_PARTITION = PartitionRecord.KEY
_NO_OP = frame(NoOpRecord.KEY, 0)

ImageSteps = Generator[None, None, MetadataImage]
"""A generator that yields between steps and returns the image at the end."""


class Batch(Protocol):
    """A committed batch as the Raft client delivers it. `values` is empty for a control batch."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def values(self) -> Sequence[bytes | memoryview]: ...


def apply_committed(image: MetadataImage, batches: Iterable[Batch]) -> MetadataImage:
    """The image after these batches. Control batches only change its provenance.

    Returns the same image if there are no batches. Raises MetadataError with offset, record and reason.
    """
    builder = ImageBuilder(image)
    last: Batch | None = None
    for batch in batches:
        _replay_values(builder, batch.values, batch.base_offset)
        last = batch
    if last is None:
        return image
    return builder.finish(offset=last.last_offset, epoch=last.epoch, timestamp_ms=last.timestamp_ms)


def load_snapshot(
    end_offset: int,
    epoch: int,
    batches: Iterable[Batch],
    *,
    timestamp_ms: int | None = None,
    base: MetadataImage = EMPTY,
) -> MetadataImage:
    """The image of a snapshot that covers the offsets below `end_offset`.

    `timestamp_ms` is the lastContainedLogTimestamp of its header. Without it, the timestamp of the last
    batch is used. `base` is empty, with or without indexes. Raises MetadataError as `apply_committed` does.
    """
    builder = ImageBuilder(base)
    contained = end_offset - 1
    written_ms = -1
    for batch in batches:
        _replay_values(builder, batch.values, None, contained)
        written_ms = batch.timestamp_ms
    return builder.finish(
        offset=contained, epoch=epoch, timestamp_ms=written_ms if timestamp_ms is None else timestamp_ms
    )


def apply_steps(image: MetadataImage, batches: Iterable[Batch]) -> ImageSteps:
    """Does the same as `apply_committed` in steps."""
    steps = _Steps(image)
    last: Batch | None = None
    for batch in batches:
        yield from steps.take(batch, batch.base_offset, batch.epoch)
        last = batch
    return image if last is None else steps.finish(last.last_offset, last.epoch, last.timestamp_ms)


def load_steps(end_offset: int, epoch: int, batches: Iterable[Batch]) -> ImageSteps:
    """Does the same as `load_snapshot` in steps."""
    steps = _Steps(EMPTY)
    written_ms = -1
    for batch in batches:
        yield from steps.take(batch, None, epoch, end_offset - 1)
        written_ms = batch.timestamp_ms
    return steps.finish(end_offset - 1, epoch, written_ms)


class _Steps:
    """Replays records and makes an intermediate image from time to time. Intermediate images are not
    visible to callers."""

    def __init__(self, image: MetadataImage) -> None:
        self._builder = ImageBuilder(image)
        self._count = 0

    def take(self, batch: Batch, base_offset: int | None, epoch: int, contained: int = -1) -> Iterator[None]:
        """Replays a batch. Without a base offset, every record has the offset `contained`."""
        values = batch.values
        for start in range(0, len(values), STEP_RECORDS):
            offset = contained
            step = values[start : start + STEP_RECORDS]
            first = None if base_offset is None else base_offset + start
            _replay_values(self._builder, step, first, contained)
            if first is not None:
                offset = first + len(step) - 1
            self._count += STEP_RECORDS
            yield
            if self._count >= IMAGE_RECORDS:
                self._builder = ImageBuilder(self.finish(offset, epoch, batch.timestamp_ms))
                self._count = 0
                yield

    def finish(self, offset: int, epoch: int, timestamp_ms: int) -> MetadataImage:
        """The image after all replayed records."""
        return self._builder.finish(offset=offset, epoch=epoch, timestamp_ms=timestamp_ms)


def _replay_values(
    builder: ImageBuilder,
    values: Sequence[bytes | memoryview],
    base_offset: int | None,
    contained: int = -1,
) -> None:
    """Replays values. Without a base offset, every one has the offset `contained`.

    PartitionRecords of one size, one after the other, are replayed at once if they have the usual form.
    """
    at = 0
    for size, group in groupby(values, len):
        run = list(group)
        if len(run) < MIN_RUN or size < 2 or run[0][1] != _PARTITION or not builder.take_encoded_run(run):
            following = 0
            for position, value in enumerate(run):
                if position < following:
                    continue
                following = builder.take_encoded_changes(run, position)
                if following == position:
                    offset = contained if base_offset is None else base_offset + at + position
                    replay_value(builder, value, offset)
        at += len(run)


def replay_value(builder: ImageBuilder, value: bytes | memoryview, offset: int) -> None:
    """Replays the value of one record. Raises MetadataError with offset, record and reason.

    A NoOpRecord is skipped without being decoded: the last record of each change can be one."""
    if len(value) > 2:
        if value[1] == _PARTITION and builder.take_encoded(bytes(value)):
            return
        if value[1] == _NO_OP[1] and value[:3] == _NO_OP:
            return
    try:
        record, _ = decode_record(value)
    except MetadataError as error:
        raise error.at(offset) from error.__cause__
    builder.replay(record, offset)
