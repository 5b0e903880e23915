"""Produce requests of one batch for one partition, and their responses without an error, at fixed positions.

Producers that send each record at once, and those of few partitions, send only such requests. To decode and
to encode them takes a third of the time of an append. Versions 9 (flexible) to 13; without a transactional
id and without tagged fields.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from quorate.protocol.errors import DecodeError
from quorate.protocol.primitives import read_compact_records
from quorate.protocol.uuids import ZERO_UUID

_FIRST_VERSION, _TOPIC_IDS_SINCE, _LAST_VERSION = 9, 13, 13
_CLIENT_ID = 8
_VERSION_AND_CLIENT_ID = Struct(">h4xh")  # from byte 2 on, with the correlation id between them
_AFTER_CLIENT_ID = Struct(">hhib")  # no tags and no transactional id; acks, timeout, topics + 1
_PARTITION = Struct(">bi")  # partitions + 1, index
_UUID_BYTES = 16

_ONE = 2
"""The length of an array with one element."""

_SHORT_NAME = 0x7F
"""Above this, the length of a name takes two bytes."""

_RESPONSE = Struct(">i4sbb")  # size, correlation id, no tags, topics + 1
_RESPONSE_TOPIC_ON = Struct(">bihqqqbbbbib")
"""Partitions + 1, index, error code, base offset, append time, log start offset, record errors + 1, error
message (null), the tags of the partition and of the topic, throttle time, the tags of the response."""


class SmallProduce(NamedTuple):
    """The fields of a request that the response and the append need."""

    version: int
    acks: int
    name: str
    """Empty from version 13 on."""
    topic_id: bytes
    """Zeros up to version 12."""
    topic: bytes
    """The encoded name or id."""
    partition: int
    records: memoryview | None


def parse(frame: memoryview) -> SmallProduce | None:
    """Returns None for a request of another form, and for a malformed one."""
    try:
        version, client_id_length = _VERSION_AND_CLIENT_ID.unpack_from(frame, 2)
        if not _FIRST_VERSION <= version <= _LAST_VERSION or client_id_length < -1:
            return None
        at = _CLIENT_ID + 2 + max(client_id_length, 0)
        if not bytes(frame[_CLIENT_ID + 2 : at]).isascii():  # may be malformed
            return None
        zeros, acks, _, topics = _AFTER_CLIENT_ID.unpack_from(frame, at)
        if zeros or topics != _ONE:
            return None
        at += _AFTER_CLIENT_ID.size
        name, topic_id = "", ZERO_UUID
        if version >= _TOPIC_IDS_SINCE:
            topic = topic_id = bytes(frame[at : at + _UUID_BYTES])
            at += _UUID_BYTES
        else:
            length = frame[at]
            if not 1 < length <= _SHORT_NAME:
                return None
            topic = bytes(frame[at : at + length])
            name = topic[1:].decode()
            at += length
        partitions, index = _PARTITION.unpack_from(frame, at)
        if partitions != _ONE:
            return None
        records, at = read_compact_records(frame, at + _PARTITION.size, len(frame))
        if bytes(frame[at:]) != b"\0\0\0":  # no tags of the partition, the topic and the request
            return None
    except (struct_error, IndexError, UnicodeDecodeError, DecodeError):
        return None
    return SmallProduce(version, acks, name, topic_id, topic, index, records)


def response(
    frame: memoryview, request: SmallProduce, base_offset: int, append_time_ms: int, log_start_offset: int
) -> bytes:
    """The complete response after an append."""
    topic = request.topic
    return b"".join(
        (
            _RESPONSE.pack(
                _RESPONSE.size - 4 + len(topic) + _RESPONSE_TOPIC_ON.size, frame[4:8].tobytes(), 0, _ONE
            ),
            topic,
            _RESPONSE_TOPIC_ON.pack(
                _ONE, request.partition, 0, base_offset, append_time_ms, log_start_offset, 1, 0, 0, 0, 0, 0
            ),
        )
    )
