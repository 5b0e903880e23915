"""Finds when processes registered, in the part of the metadata log before the last snapshot.

A snapshot has the registrations, but not their times. Controllers keep the log for a while after they have
written a snapshot (`metadata.max.retention.ms` and `.bytes`), usually for days.
"""

from __future__ import annotations

from quorate.admin.metadata_log import MAX_FETCH_BYTES, MetadataObserver, first_readable_offset
from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import decode_record
from quorate.metadata.records import RegisterBrokerRecord, RegisterControllerRecord
from quorate.records.batch import iter_batches, metadata_values

ONE_BATCH = 1
"""A leader sends at least one batch, even if it is larger."""

_KEYS = frozenset({RegisterBrokerRecord.KEY, RegisterControllerRecord.KEY})


async def registrations_since(
    observer: MetadataObserver, start: int, end: int, time_ms: int
) -> dict[bytes, int]:
    """Returns the time of the first registration of each incarnation id from a time on, in the log from
    `start`, which is where it begins, to `end`, where the last snapshot ends.

    Raises KafkaError, NetError and MetadataError.
    """
    low = first_readable_offset(start)
    high = end
    while low < high:  # finds the first batch that is not older
        middle = (low + high) // 2
        first = next(iter_batches(await _read(observer, middle, ONE_BATCH)), None)
        if first is None:
            return {}
        header, _ = first
        if header.max_timestamp < time_ms:
            low = header.last_offset + 1
        else:
            high = min(middle, header.base_offset)
    found: dict[bytes, int] = {}
    while low < end:
        before = low
        for header, batch in iter_batches(await _read(observer, low, MAX_FETCH_BYTES)):
            low = header.last_offset + 1
            if header.is_control or header.max_timestamp < time_ms:
                continue
            for value in metadata_values(batch):
                if len(value) > 1 and value[1] in _KEYS:
                    record, _ = decode_record(value)
                    if isinstance(record, (RegisterBrokerRecord, RegisterControllerRecord)):
                        found.setdefault(record.incarnation_id, header.max_timestamp)
        if low == before:
            break
    return found


async def _read(observer: MetadataObserver, offset: int, max_bytes: int) -> bytes:
    found = await observer.fetch(offset, None, max_bytes=max_bytes)
    if found.snapshot is not None or found.diverging_end_offset is not None:
        raise MetadataError(f"the active controller no longer has offset {offset} of the metadata log")
    return found.records
