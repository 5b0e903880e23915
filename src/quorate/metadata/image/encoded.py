"""A partition as it stands in the log: the value of its PartitionRecord, of which parts are read at
fixed places.

Of a million partitions few are ever looked at. As bytes each takes 150 instead of 700, the collector
has nothing to visit in it, and loading it costs a third of decoding it. Only the usual form stays
encoded: no reassignment and no tagged field, which means recovered, without eligible leader replicas,
without fields that are unknown here. Its length and its counts are checked when it is taken; all that
is left are numbers and ids of which every value has a meaning, so that looking at it cannot fail.

Layout (KIP-746, KIP-858; versions 0 to 2): frame version, type and version; partition id, topic id;
replicas, ISR, removing and adding replicas, each with its length + 1 in front; leader, leader epoch,
partition epoch; from version 1 on directories; the number of tagged fields.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from quorate.metadata.image.partitions import MIGRATING_DIRECTORY, PartitionImage

FRAMES: Final = {bytes([1, 3, version]): version for version in range(3)}
"""How a value begins: frame version 1, type 3, version."""

_REPLICAS_AT: Final = 23
_MAX_COUNT: Final = 126  # what one byte holds of a length + 1
_EMPTY: Final = 1
_REMEMBERED: Final = 8_192
"""Partitions that were looked at last: most looks are at the same few."""


class Form(NamedTuple):
    """Where what is in a value of one version, with so many replicas and so large an ISR."""

    size: int
    removing_at: int
    directories_at: int
    """-1 before version 1."""
    head: Struct
    """From position 3: partition id, topic id, the replicas, the leader."""
    body: Struct
    """From position 24: the replicas, the ISR, leader, leader epoch, partition epoch, the directories."""
    replicas: int
    isr: int


_FORMS: dict[tuple[int, int, int], Form] = {}
"""At most three times 127 times 127; a cluster has a handful."""


def form_of(value: bytes) -> Form | None:
    """The form of a PartitionRecord's value, None when it is another record or not of the usual form."""
    version = FRAMES.get(value[:3])
    if version is None or len(value) <= _REPLICAS_AT:
        return None
    replicas = value[_REPLICAS_AT] - 1
    isr_at = _REPLICAS_AT + 1 + 4 * replicas
    if not 0 <= replicas <= _MAX_COUNT or len(value) <= isr_at:
        return None
    isr = value[isr_at] - 1
    form = _FORMS.get((version, replicas, isr))
    if form is None:
        if not 0 <= isr <= _MAX_COUNT:
            return None
        form = _FORMS[version, replicas, isr] = _form(version, replicas, isr)
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


def known_form(value: bytes) -> Form:
    """The form of a value that was found to have one."""
    replicas = value[_REPLICAS_AT] - 1
    return _FORMS[value[2], replicas, value[_REPLICAS_AT + 1 + 4 * replicas] - 1]


def _form(version: int, replicas: int, isr: int) -> Form:
    removing_at = _REPLICAS_AT + 1 + 4 * replicas + 1 + 4 * isr
    directories_at = removing_at + 2 + 12 if version else -1
    directories = "x" + "16s" * replicas if version else ""
    body = Struct(f">{replicas}ix{isr}ixxiii{directories}")
    head = Struct(f">i16sx{replicas}ix{4 * isr}xxxi")
    return Form(_REPLICAS_AT + 1 + body.size + 1, removing_at, directories_at, head, body, replicas, isr)


def decoded(entry: PartitionImage | bytes) -> PartitionImage:
    """What a table holds, as everybody else sees it."""
    return _decoded(entry) if isinstance(entry, bytes) else entry


@lru_cache(_REMEMBERED)
def _decoded(value: bytes) -> PartitionImage:
    form = known_form(value)
    fields = form.body.unpack_from(value, _REPLICAS_AT + 1)
    count = form.replicas
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
