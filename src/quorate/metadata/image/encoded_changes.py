"""Changes of encoded partitions: a PartitionChangeRecord is applied to the bytes of a PartitionRecord.

The failure of a broker changes the ISR and the leader of all its partitions. Such a record has only these two
fields. Applied to the bytes, it takes two microseconds instead of twenty, and the partition stays encoded (see
`encoded`). The same few combinations of ISR and leader occur in thousands of records, so the tagged fields of a
record are parsed once.

Layout (KIP-746, versions 0 to 2): frame version, record type, record version; partition id, topic id; the
number of tagged fields, and for each of them its tag, its size and its value. Tag 0 is the ISR, tag 1 the leader.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from quorate.metadata.image.encoded import FIELDS_AT, form_of, known_form
from quorate.metadata.image.partitions import NO_LEADER_CHANGE

FRAMES: Final = frozenset(bytes([1, 5, version]) for version in range(3))
"""The first bytes of a value: frame version 1, record type 5 and record version."""

_ISR_TAG, _LEADER_TAG = 0, 1
_LEADER_SIZE: Final = 4
_MAX_COUNT: Final = 30
"""The members of the largest ISR whose field has a size of one byte."""
_EPOCHS: Final = Struct(">ii")
_NO_CHANGE: Final = struct.pack(">i", NO_LEADER_CHANGE)
_place: Final = Struct(">i16s").unpack_from


class _Fields(NamedTuple):
    """The fields of a change: the ISR with its length + 1 before it, and the leader. None is no change."""

    isr: bytes | None
    leader: bytes | None


def place_of(change: bytes) -> tuple[int, bytes]:
    """The partition id and the topic id of a PartitionChangeRecord's value, which begins with one of
    `FRAMES`. Raises struct.error if it is too short."""
    partition_id, topic_id = _place(change, 3)
    return partition_id, topic_id


def changed(value: bytes, change: bytes) -> tuple[bytes, bool] | None:
    """An encoded partition after the value of a PartitionChangeRecord, and whether the record names a leader.
    None if the record must be decoded: it has other fields than ISR and leader."""
    fields = _parsed(change[FIELDS_AT:])
    if fields is None:
        return None
    isr, leader = fields
    isr_at = FIELDS_AT + 4 * value[FIELDS_AT] - 3
    removing_at = known_form(value).removing_at
    leader_epoch, partition_epoch = _EPOCHS.unpack_from(value, removing_at + 6)
    try:
        epochs = _EPOCHS.pack(leader_epoch + (leader is not None), partition_epoch + 1)
    except struct.error:
        return None
    moved = leader is not None
    if leader is None:
        leader = value[removing_at + 2 : removing_at + 6]
    if isr is None:
        return value[: removing_at + 2] + leader + epochs + value[removing_at + 14 :], True
    after = value[:isr_at] + isr + b"\1\1" + leader + epochs + value[removing_at + 14 :]
    form = (value[2], value[FIELDS_AT], isr[0])
    if form not in _known_forms:
        if form_of(after) is None:
            return None
        _known_forms.add(form)
    return after, moved


_known_forms: set[tuple[int, int, int]] = set()
"""Version, number of replicas + 1 and number of ISR members + 1 of the results so far. They are at most as many as
the forms of encoded partitions."""


@lru_cache(16_384)
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
    """An encoded partition without its ids and epochs. The next leader and ISR depend on nothing else of it."""
    epochs_at = known_form(value).removing_at + 6
    return value[FIELDS_AT:epochs_at] + value[epochs_at + 8 :]


def replica_count(value: bytes) -> int:
    """The number of replicas of an encoded partition."""
    return value[FIELDS_AT] - 1


def may_have_replica(value: bytes, broker: bytes) -> bool:
    """Whether an encoded partition may have a replica on a broker, given by the four bytes of its id. It is not
    certain, because the bytes may belong to two ids. If they are missing, there is certainly no such replica."""
    return broker in value[FIELDS_AT : FIELDS_AT - 3 + 4 * value[FIELDS_AT]]


def leader_move(before: bytes, after: bytes) -> tuple[int, int] | None:
    """The leaders of two encoded states of one partition if they differ, or None. Both must have the same
    replicas."""
    at, now_at = known_form(before).removing_at + 2, known_form(after).removing_at + 2
    old, new = before[at : at + 4], after[now_at : now_at + 4]
    if old == new:
        return None
    return int.from_bytes(old, "big", signed=True), int.from_bytes(new, "big", signed=True)


def have_same_replicas(before: bytes, after: bytes) -> bool:
    """Whether two encoded states of one partition have the same replicas in the same order."""
    end = FIELDS_AT - 3 + 4 * before[FIELDS_AT]
    return before[FIELDS_AT:end] == after[FIELDS_AT:end]
