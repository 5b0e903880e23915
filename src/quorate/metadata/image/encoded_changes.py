"""Changes of encoded partitions: a PartitionChangeRecord is applied to the bytes of a PartitionRecord.

The failure of a broker changes the ISR and the leader of all its partitions. Such a record has only
these two fields. Applied to the bytes, it takes one microsecond instead of twenty, and the
partition stays encoded (see `encoded`). The same few combinations of ISR and leader occur in
thousands of records, so it is computed once how each of them changes partitions of one form.

Layout (KIP-746, versions 0 to 2): frame version, record type, record version; partition id, topic
id; the number of tagged fields, and for each of them its tag, its size and its value. Tag 0 is the
ISR, tag 1 the leader.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from quorate.metadata.image.encoded import FIELDS_AT, epochs_at, form_with
from quorate.metadata.image.partitions import NO_LEADER_CHANGE

FRAMES: Final = frozenset(bytes([1, 5, version]) for version in range(3))
"""The first bytes of a value: frame version 1, record type 5 and record version."""

_ISR_TAG, _LEADER_TAG = 0, 1
_LEADER_SIZE: Final = 4
_MAX_COUNT: Final = 30
"""The members of the largest ISR whose field has a size of one byte."""
_state: Final = Struct(">4sii").pack
"""Leader, leader epoch and partition epoch."""
_NO_CHANGE: Final = struct.pack(">i", NO_LEADER_CHANGE)


class _Fields(NamedTuple):
    """The fields of a change: the ISR with its length + 1 before it, and the leader. None is no change."""

    isr: bytes | None
    leader: bytes | None


class _Step(NamedTuple):
    """How a change is applied to encoded partitions of one form."""

    divide: Callable[[bytes], tuple[bytes, bytes, int, int, bytes]]
    """The bytes before the ISR, or before the leader if the ISR stays; leader, leader epoch and
    partition epoch; the bytes after them."""
    middle: bytes
    """The ISR and what is between it and the leader. Empty if the ISR stays."""
    leader: bytes | None


def changed(value: bytes, change: bytes) -> tuple[bytes, bytes | None] | None:
    """An encoded partition after the value of a PartitionChangeRecord, and the bytes of the leaders
    before and after it if they differ. None if the record must be decoded: it has other fields than
    ISR and leader."""
    step = _step_of(change[FIELDS_AT:], value[2], value[FIELDS_AT], len(value))
    if step is None:
        return None
    divide, middle, leader = step
    before, old, leader_epoch, partition_epoch, after = divide(value)
    try:
        if leader is None:
            return before + middle + _state(old, leader_epoch, partition_epoch + 1) + after, None
        state = _state(leader, leader_epoch + 1, partition_epoch + 1)
    except struct.error:  # an epoch has its largest value
        return None
    return before + middle + state + after, None if leader == old else old + leader


@lru_cache(16_384)
def _step_of(fields: bytes, version: int, replicas: int, size: int) -> _Step | None:
    """How these tagged fields change encoded partitions of one version, number of replicas + 1, and
    size. None if they must be decoded."""
    parsed = _parsed(fields)
    if parsed is None:
        return None
    isr_at = FIELDS_AT + 4 * replicas - 3
    leader_at = size - 16 * replicas + 2 if version else size - 13
    if parsed.isr is None:
        return _Step(_division(leader_at, leader_at, size), b"", parsed.leader)
    form_with(version, replicas - 1, parsed.isr[0] - 1)  # is known from now on
    return _Step(_division(isr_at, leader_at, size), parsed.isr + b"\1\1", parsed.leader)


@lru_cache
def _division(
    kept: int, leader_at: int, size: int
) -> Callable[[bytes], tuple[bytes, bytes, int, int, bytes]]:
    return Struct(f">{kept}s{leader_at - kept}x4sii{size - leader_at - 12}s").unpack


def _parsed(data: bytes) -> _Fields | None:
    """The tagged fields of a PartitionChangeRecord, or None unless they are ISR, leader or both."""
    isr = leader = None
    if not data or not 1 <= data[0] <= 2:
        return None
    at, last = 1, -1
    for _ in range(data[0]):
        if at + 2 > len(data):
            return None
        tag, size = data[at], data[at + 1]
        found = data[at + 2 : at + 2 + size]
        at += 2 + size
        if len(found) != size or tag <= last:
            return None
        last = tag
        if tag == _ISR_TAG and size and 1 <= found[0] <= _MAX_COUNT + 1 and size == 4 * found[0] - 3:
            isr = found
        elif tag == _LEADER_TAG and size == _LEADER_SIZE and found != _NO_CHANGE:
            leader = found
        else:
            return None
    return _Fields(isr, leader) if at == len(data) else None


def state_of(value: bytes) -> bytes:
    """An encoded partition without its ids and epochs.

    The next leader and ISR depend on nothing else of it.
    """
    at = 6 - 16 * value[FIELDS_AT] if value[2] else -9  # epochs_at
    return value[FIELDS_AT:at] + value[at + 8 :]


def replica_count(value: bytes) -> int:
    """The number of replicas of an encoded partition."""
    return value[FIELDS_AT] - 1


def may_have_replica(value: bytes, broker: bytes) -> bool:
    """Whether an encoded partition may have a replica on a broker, given by the four bytes of its id.

    It is not certain, because the bytes may belong to two ids. If they are missing, there is
    certainly no such replica.
    """
    return broker in value[FIELDS_AT : FIELDS_AT - 3 + 4 * value[FIELDS_AT]]


def leader_move(before: bytes, after: bytes) -> bytes | None:
    """The bytes of the leaders of two encoded states of one partition if they differ, or None."""
    at, now_at = epochs_at(before), epochs_at(after)
    old, new = before[at - 4 : at], after[now_at - 4 : now_at]
    return None if old == new else old + new


def have_same_replicas(before: bytes, after: bytes) -> bool:
    """Whether two encoded states of one partition have the same replicas in the same order."""
    end = FIELDS_AT - 3 + 4 * before[FIELDS_AT]
    return before[FIELDS_AT:end] == after[FIELDS_AT:end]
