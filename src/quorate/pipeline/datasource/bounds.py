"""The bounds of a read, and what it does about damage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)

FIRST_TIME_MS: Final = -62_135_596_800_000
LAST_TIME_MS: Final = 253_402_300_799_999
"""The years 1 to 9999, which both Spark and Python have."""


class Mode(StrEnum):
    """What happens where a file is damaged, in Spark's words."""

    FAILFAST = "FAILFAST"
    """The read fails."""
    PERMISSIVE = "PERMISSIVE"
    """The damage is a row of its own with a text in the column `corrupt`."""
    DROPMALFORMED = "DROPMALFORMED"
    """The damage is logged only."""


class Bounds(NamedTuple):
    """The batches that are asked for. Those outside are skipped by their header."""

    first_offset: int = 0
    end_offset: int | None = None
    first_time_ms: int | None = None
    last_time_ms: int | None = None

    def overlap(self, base_offset: int, last_offset: int, timestamp: int) -> bool:
        """Whether records of such a batch may be asked for."""
        return (
            last_offset >= self.first_offset
            and (self.end_offset is None or base_offset < self.end_offset)
            and (self.first_time_ms is None or timestamp >= self.first_time_ms)
            and (self.last_time_ms is None or timestamp <= self.last_time_ms)
        )

    def of_snapshot(self) -> Bounds:
        """The bounds of the rows of a snapshot, which has its own offsets."""
        return self._replace(first_offset=0, end_offset=None)


EVERYTHING: Final = Bounds()


def parse_time(text: str) -> datetime:
    """A time in ISO 8601, in UTC unless it names a zone.

    Raises ValueError, also for one outside of the calendar.
    """
    time = datetime.fromisoformat(text)
    try:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text}: {error}") from error
