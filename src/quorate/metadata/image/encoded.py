"""A partition in the form of its record in the log: the bytes of a PartitionRecord, read at fixed
positions.

Of a million partitions, few are ever read. An encoded partition takes 150 bytes instead of 700, the
garbage collector does not visit it, and loading it takes a third of the time of decoding it. Only the
usual form stays encoded. It has no reassignment and no tagged field: the partition is recovered, and it
has no eligible leader replicas and no unknown fields. The length and the counts of a value are checked
when it is loaded. The rest are numbers and ids of which every value is valid, so reading them cannot
fail.

Layout (KIP-746, KIP-858; versions 0 to 2): frame version, record type, record version; partition id,
topic id; replicas, ISR, removing and adding replicas, each with its length + 1 before it; leader, leader
epoch, partition epoch; from version 1 on the directories; the number of tagged fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from quorate.metadata.image.partitions import MIGRATING_DIRECTORY, PartitionImage
from quorate.records.record_runs import MIN_RUN

FRAMES: Final = {bytes([1, 3, version]): version for version in range(3)}
"""The first bytes of a value, frame version 1, record type 3 and record version, mapped to the record
version."""

FIELDS_AT: Final = 23
"""The end of header, partition id and topic id: in a PartitionRecord the replicas follow, in a
PartitionChangeRecord the tagged fields."""
_MAX_COUNT: Final = 126  # the largest length whose length + 1 fits into one byte
_EMPTY: Final = 1
_REMEMBERED: Final = 8_192
"""The number of decoded states that are cached. Most accesses are to the same few partitions, and new
partitions with the same replicas have the same state."""


class Form(NamedTuple):
    """The positions of the fields in a value of one version with this number of replicas and ISR
    members."""

    size: int
    removing_at: int
    directories_at: int
    """The position of the directories, or -1 in version 0."""
    head: Struct
    """The fields from position 3 on: partition id, topic id, the replicas, the leader."""
    body: Struct
    """The fields from position 24 on: the replicas, the ISR, leader, leader epoch, partition epoch, the
    directories."""
    replicas: int
    isr: int


_FORMS: dict[tuple[int, int, int], Form] = {}
"""The forms by version, number of replicas and number of ISR members. There are at most 3 * 127 * 127; a
cluster uses a few."""


def form_of(value: bytes) -> Form | None:
    """The form of a PartitionRecord's value, or None if it is another record or does not have the usual
    form."""
    version = FRAMES.get(value[:3])
    if version is None or len(value) <= FIELDS_AT:
        return None
    replicas = value[FIELDS_AT] - 1
    isr_at = FIELDS_AT + 1 + 4 * replicas
    if not 0 <= replicas <= _MAX_COUNT or len(value) <= isr_at:
        return None
    isr = value[isr_at] - 1
    if not 0 <= isr <= _MAX_COUNT:
        return None
    form = form_with(version, replicas, isr)
    removing_at = form.removing_at
    if (
        len(value) != form.size
        or value[removing_at] != _EMPTY
        or value[removing_at + 1] != _EMPTY
        or value[-1] != 0
        or (form.directories_at >= 0 and value[form.directories_at] != replicas + 1)
    ):
        return None
    return form


def form_with(version: int, replicas: int, isr: int) -> Form:
    """The form of a value with these numbers of replicas and ISR members, each at most 126."""
    form = _FORMS.get((version, replicas, isr))
    if form is None:
        form = _FORMS[version, replicas, isr] = _form(version, replicas, isr)
    return form


class EncodedRun(NamedTuple):
    """Encoded partitions: their ids, the ids of their topics, and their values."""

    partition_ids: tuple[int, ...]
    topic_ids: tuple[bytes, ...]
    values: list[bytes]


def run_of(values: Sequence[bytes | memoryview]) -> EncodedRun | None:
    """The partitions of values of one length, or None unless all of them have the form of the first.

    Columns of bytes are compared, as `records.record_runs` does.
    """
    form = form_of(bytes(values[0]))
    if form is None:
        return None
    data, size, count = b"".join(values), form.size, len(values)
    isr_at = FIELDS_AT + 1 + 4 * form.replicas
    fixed = [0, 1, 2, FIELDS_AT, isr_at, form.removing_at, form.removing_at + 1, size - 1]
    if form.directories_at >= 0:
        fixed.append(form.directories_at)
    for at in fixed:
        if data[at::size].count(data[at]) != count:
            return None
    partition_ids, topic_ids = zip(*_ids_of(size).iter_unpack(data), strict=True)
    return EncodedRun(partition_ids, topic_ids, [data[at : at + size] for at in range(0, len(data), size)])


@lru_cache
def _ids_of(size: int) -> Struct:
    """The partition id and the topic id of a value of this size."""
    return Struct(f">3xi16s{size - FIELDS_AT}x")


class BrokerColumns(NamedTuple):
    """The brokers of encoded partitions."""

    replicas: list[tuple[int, ...]]
    """The first replica of every partition, then the second of every partition, and so on."""
    leaders: tuple[int, ...]


def broker_columns(entries: Sequence[PartitionImage | bytes]) -> BrokerColumns | None:
    """The brokers of at least one partition, or None unless all are encoded and have one form."""
    joined = _joined(entries)
    if joined is None:
        return None
    form, data = joined
    brokers = _brokers_of(form.replicas, form.isr, form.size - form.removing_at - 6)
    *replicas, leaders = zip(*brokers.iter_unpack(data), strict=True)
    return BrokerColumns(replicas, leaders)


@lru_cache
def _brokers_of(replicas: int, isr: int, rest: int) -> Struct:
    """The replicas and the leader of a value with `rest` bytes after the leader."""
    return Struct(f">{FIELDS_AT + 1}x{replicas}ix{4 * isr}xxxi{rest}x")


def count_leaders(entries: Sequence[PartitionImage | bytes]) -> Counter[int]:
    """How many of these partitions each broker leads."""
    joined = _joined(entries) if len(entries) >= MIN_RUN else None
    if joined is None:
        return Counter(map(leader_of, entries))
    form, data = joined
    leader = Struct(f">{form.removing_at + 2}xi{form.size - form.removing_at - 6}x")
    return Counter([broker_id for (broker_id,) in leader.iter_unpack(data)])


def _joined(entries: Sequence[PartitionImage | bytes]) -> tuple[Form, bytes] | None:
    """The form of encoded partitions, and their values one after the other. None unless all have one form."""
    if set(map(type, entries)) != {bytes}:
        return None
    values: Sequence[bytes] = entries  # type: ignore[assignment]
    form, count = known_form(values[0]), len(values)
    if len(set(map(len, values))) != 1:
        return None
    data = b"".join(values)
    for at in (2, FIELDS_AT, FIELDS_AT + 1 + 4 * form.replicas):
        if data[at :: form.size].count(data[at]) != count:
            return None
    return form, data


def known_form(value: bytes) -> Form:
    """The form of a value that `form_of` has accepted before."""
    replicas = value[FIELDS_AT] - 1
    return _FORMS[value[2], replicas, value[FIELDS_AT + 1 + 4 * replicas] - 1]


def epochs_at(value: bytes) -> int:
    """The position of the leader epoch in an encoded partition. The leader is before it, the partition epoch
    after it. It is counted from the end, which needs no form."""
    return len(value) - 16 * value[FIELDS_AT] + 6 if value[2] else len(value) - 9


def leader_of(entry: PartitionImage | bytes) -> int:
    """The leader of the partition of a table entry."""
    if not isinstance(entry, bytes):
        return entry.leader
    at = epochs_at(entry)
    return int.from_bytes(entry[at - 4 : at], "big", signed=True)


def divide_by_leader(
    entries: Iterable[tuple[int, PartitionImage | bytes]], leaders: set[bytes]
) -> tuple[list[tuple[int, PartitionImage | bytes]], list[int]]:
    """Divides (partition id, entry) into those that one of the brokers leads, given by the four
    bytes of their ids, and the ids of the others."""
    led, others = [], []
    for pair in entries:
        entry = pair[1]
        if not isinstance(entry, bytes):
            leader = entry.leader.to_bytes(4, "big", signed=True)
        elif entry[2]:
            end = 6 - 16 * entry[FIELDS_AT]  # epochs_at
            leader = entry[end - 4 : end]
        else:
            leader = entry[-13:-9]
        if leader in leaders:
            led.append(pair)
        else:
            others.append(pair[0])
    return led, others


def _form(version: int, replicas: int, isr: int) -> Form:
    removing_at = FIELDS_AT + 1 + 4 * replicas + 1 + 4 * isr
    directories_at = removing_at + 2 + 12 if version else -1
    directories = "x" + "16s" * replicas if version else ""
    body = Struct(f">{replicas}ix{isr}ixxiii{directories}")
    head = Struct(f">i16sx{replicas}ix{4 * isr}xxxi")
    return Form(FIELDS_AT + 1 + body.size + 1, removing_at, directories_at, head, body, replicas, isr)


def decoded(entry: PartitionImage | bytes) -> PartitionImage:
    """The partition of a table entry. Partitions in the same state share their PartitionImage as long as
    it is cached."""
    return _decoded(entry[FIELDS_AT:]) if isinstance(entry, bytes) else entry


@lru_cache(_REMEMBERED)
def _decoded(state: bytes) -> PartitionImage:
    """`state` is a value without the header and the ids of partition and topic."""
    form = _form_of_state(state)
    count = form.replicas
    fields = form.body.unpack_from(state, 1)
    replicas, isr = fields[:count], fields[count : count + form.isr]
    leader, leader_epoch, partition_epoch = fields[count + form.isr : count + form.isr + 3]
    return PartitionImage(
        replicas,
        fields[count + form.isr + 3 :] or (MIGRATING_DIRECTORY,) * count,
        replicas if isr == replicas else isr,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
    )


def _form_of_state(state: bytes) -> Form:
    count = state[0] - 1
    isr = state[1 + 4 * count] - 1
    for version in FRAMES.values():
        form = _FORMS.get((version, count, isr))
        if form is not None and form.size == FIELDS_AT + len(state):
            return form
    raise AssertionError("the form of an encoded partition is known")
