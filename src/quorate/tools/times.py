"""Times in the options and outputs of the tools: ISO 8601, in UTC unless a time has a zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def parse_datetime(text: str) -> datetime:
    """Parses a time. Raises ValueError, also for a time of a zone that has no year in UTC."""
    moment = datetime.fromisoformat(text)
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text}: {error}") from error


def epoch_ms(moment: datetime) -> int:
    """Returns a time in ms since 1970."""
    return (moment - _EPOCH) // _MILLISECOND


def time_text(time_ms: int) -> str:
    """Returns a time in ms since 1970 as text, in UTC."""
    at = _EPOCH + timedelta(milliseconds=time_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
