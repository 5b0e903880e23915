"""Reads the replicas of a partition from the disks of the brokers: all must have the same batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from quorate.records.batch import CorruptRecordError, iter_batches, verify_crc

Batches = dict[int, tuple[int, int, bytes]]
"""Base offset -> last offset, producer epoch, and the bytes from the CRC on, which all replicas share."""
_CRC = 17
"""The position of the CRC in a batch: the bytes before it are the leader's and the follower's own."""


def read_replica(directory: Path) -> Batches:
    """Reads the batches of a replica whose broker appends nothing now.

    Raises CorruptRecordError for a wrong CRC.
    """
    found: Batches = {}
    for segment in sorted(directory.glob("*.log")):
        for header, data in iter_batches(segment.read_bytes()):
            if not verify_crc(data):
                raise CorruptRecordError(f"{segment}: the CRC of the batch at {header.base_offset} is wrong")
            found[header.base_offset] = (header.last_offset, header.producer_epoch, bytes(data[_CRC:]))
    return found


def differences(replicas: Mapping[int, Batches]) -> Iterator[str]:
    """Yields where replicas differ, from the largest of their log starts on."""
    start = max(min(batches, default=0) for batches in replicas.values())
    (first, expected), *others = (
        (broker, {base: batch for base, batch in batches.items() if base >= start})
        for broker, batches in sorted(replicas.items())
    )
    for broker, batches in others:
        for base in sorted(expected.keys() | batches.keys()):
            if expected.get(base) != batches.get(base):
                yield f"differs at {base} on the brokers {first} and {broker}"
                break


def producer_epochs(batches: Batches) -> dict[int, int]:
    """Returns the producer epoch of each offset that is not of epoch 0."""
    return {
        offset: epoch
        for base, (last, epoch, _) in batches.items()
        if epoch > 0
        for offset in range(base, last + 1)
    }
