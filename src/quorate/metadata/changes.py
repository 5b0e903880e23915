"""Divides the batches of the metadata log into changes.

Raft writes changes that are made at the same time as one batch. A NoOpRecord ends each change of a
controller that writes who or what caused it (`metadata.records.log`). An AbortTransactionRecord
ends a change too, and has the reason itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from quorate.dataclass import dataclass
from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import decode_record
from quorate.metadata.loader import Batch
from quorate.metadata.records import AbortTransactionRecord, NoOpRecord

_ENDS: Final = (NoOpRecord.KEY, AbortTransactionRecord.KEY)

Value = bytes | memoryview


@dataclass(slots=True, frozen=True)
class Change:
    """The records of a batch that were written together, without the NoOpRecord at their end."""

    base_offset: int
    epoch: int
    timestamp_ms: int
    values: Sequence[Value]
    cause: NoOpRecord | None
    """Who or what caused the change, or None if the log does not say it."""


def changes(batch: Batch) -> Iterator[Change]:
    """Yields the changes of a batch. A NoOpRecord that only shows that the controller is alive is none.

    Raises MetadataError with offset and reason for a record at the end of a change that does not decode.
    """
    values = batch.values
    start = 0
    for at, value in enumerate(values):
        if len(value) < 2 or value[1] not in _ENDS:
            continue
        try:
            record, _ = decode_record(value)
        except MetadataError as error:
            raise error.at(batch.base_offset + at) from error.__cause__
        end = at
        cause: NoOpRecord | None = None
        if isinstance(record, AbortTransactionRecord):
            cause, end = NoOpRecord(reason=record.reason), at + 1
        elif record != _NO_CAUSE:
            assert isinstance(record, NoOpRecord)
            cause = record
        if end > start or cause is not None:
            yield _change(batch, start, values[start:end], cause)
        start = at + 1
    if start < len(values):
        yield _change(batch, start, values[start:], None)


_NO_CAUSE: Final = NoOpRecord()


def _change(batch: Batch, start: int, values: Sequence[Value], cause: NoOpRecord | None) -> Change:
    return Change(batch.base_offset + start, batch.epoch, batch.timestamp_ms, values, cause)
