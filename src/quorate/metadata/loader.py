"""From committed batches of the log, or the batches of a snapshot, to an image: what every listener of the log does first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import decode_record
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import ImageBuilder


class Batch(Protocol):
    """A committed batch as the Raft client delivers it; `values` is empty for a control batch."""

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
    """The image after these batches, control batches too (they only move its provenance).

    The same image when there are none. MetadataError names offset, record and reason.
    """
    builder = ImageBuilder(image)
    last: Batch | None = None
    for batch in batches:
        for offset, value in enumerate(batch.values, batch.base_offset):
            _replay(builder, value, offset)
        last = batch
    if last is None:
        return image
    return builder.finish(offset=last.last_offset, epoch=last.epoch, timestamp_ms=last.timestamp_ms)


def load_snapshot(end_offset: int, epoch: int, batches: Iterable[Batch], *, timestamp_ms: int | None = None) -> MetadataImage:
    """The image of a snapshot that covers the offsets below `end_offset`.

    `timestamp_ms`: its header's lastContainedLogTimestamp; without it, that of the last batch. Errors as in `apply_committed`.
    """
    builder = ImageBuilder(EMPTY)
    contained = end_offset - 1
    written_ms = -1
    for batch in batches:
        for value in batch.values:
            _replay(builder, value, contained)
        written_ms = batch.timestamp_ms
    return builder.finish(offset=contained, epoch=epoch, timestamp_ms=written_ms if timestamp_ms is None else timestamp_ms)


def _replay(builder: ImageBuilder, value: bytes | memoryview, offset: int) -> None:
    try:
        record, _ = decode_record(value)
    except MetadataError as error:
        raise error.at(offset) from error.__cause__
    builder.replay(record, offset)
