"""The position of a stream in the metadata log, and the option that names the first one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias

from quorate.dataclass import dataclass

UNKNOWN_EPOCH: Final = -1


class OffsetError(Exception):
    """A stream cannot continue at its offset: the log does not have it, or it is the log of another
    cluster."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The end of what a stream has read. Spark keeps it in the checkpoint, as JSON."""

    offset: int
    """The offset of the next record."""
    epoch: int = UNKNOWN_EPOCH
    """The leader epoch of the record before it. With it, a log that differs before the offset is noticed."""
    cluster_id: str | None = None
    high_watermark: int = -1
    """The high watermark at that time, so that the offsets of a query show how far behind it is."""

    def to_json(self) -> dict[str, Any]:
        """The fields as the checkpoint has them."""
        return {
            "clusterId": self.cluster_id,
            "offset": self.offset,
            "epoch": self.epoch,
            "highWatermark": self.high_watermark,
        }


class Start(StrEnum):
    """The first offset of a stream without a checkpoint."""

    EARLIEST = "earliest"
    """The start of the log, or if that is gone, a snapshot."""
    LATEST = "latest"
    """The high watermark."""


StartingOffset: TypeAlias = Start | StreamOffset


@dataclass(frozen=True, slots=True)
class Range:
    """A part of the committed log of a quorum, which one task reads."""

    start: int
    end: int
    epoch: int
    """The leader epoch of the record before `start`, or UNKNOWN_EPOCH."""
    cluster_id: str
    begins_with_snapshot: bool = False
    """Whether the log no longer has `start`, so that a snapshot replaces its first records."""


def parse_offset(found: Mapping[str, Any]) -> StreamOffset:
    """Parses the fields of a checkpoint, of which only `offset` must be there. Raises ValueError."""
    unknown = sorted(set(found) - {"clusterId", "offset", "epoch", "highWatermark"})
    if unknown:
        raise ValueError(f"an offset has no field {unknown[0]}, only clusterId, offset, epoch, highWatermark")
    cluster_id = found.get("clusterId")
    numbers = [found.get("offset"), found.get("epoch", UNKNOWN_EPOCH), found.get("highWatermark", -1)]
    if any(isinstance(number, bool) or not isinstance(number, int) for number in numbers):
        raise ValueError("offset, epoch and highWatermark of an offset are numbers, and offset must be there")
    if numbers[0] < 0 or (cluster_id is not None and not isinstance(cluster_id, str)):
        raise ValueError("the offset is negative, or its clusterId is no text")
    return StreamOffset(numbers[0], numbers[1], cluster_id, numbers[2])


def parse_starting_offset(text: str) -> StartingOffset:
    """Parses `earliest`, `latest`, a number, or an offset as JSON. Raises ValueError."""
    if text.lower() in tuple(Start):
        return Start(text.lower())
    if text.isascii() and text.isdigit():
        return StreamOffset(int(text))
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("it is no JSON object")
        return parse_offset(found)
    except ValueError as error:
        raise ValueError(
            f"option startingOffset is {text!r}, but must be earliest, latest, a number, or an offset of a "
            f"checkpoint: {error}"
        ) from error


def check_order(start: StreamOffset, end: StreamOffset) -> None:
    """Raises OffsetError if the end is before the start or of another cluster."""
    if start.cluster_id is not None and end.cluster_id is not None and start.cluster_id != end.cluster_id:
        raise OffsetError(f"the stream has read cluster {start.cluster_id}, but this is {end.cluster_id}")
    if end.offset < start.offset:
        raise OffsetError(
            f"the stream has read up to offset {start.offset}, but the log ends at {end.offset}"
        )
