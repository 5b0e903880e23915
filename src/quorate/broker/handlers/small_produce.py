"""Produce requests of one batch for one partition, and their responses without an error, at fixed positions.

Producers that send each record at once, and those of few partitions, send only such requests. To decode and
to encode them takes a third of the time of an append. Versions 9 (flexible) to 13; without a transactional
id and without tagged fields.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from quorate.broker.handlers.small_requests import ONE, read_topic, version_and_client_id
from quorate.protocol.errors import DecodeError
from quorate.protocol.primitives import read_compact_records

_FIRST_VERSION, _TOPIC_IDS_SINCE, _LAST_VERSION = 9, 13, 13
_AFTER_CLIENT_ID = Struct(">hhib")  # no tags and no transactional id; acks, timeout, topics + 1
_PARTITION = Struct(">bi")  # partitions + 1, index

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
        version, at = version_and_client_id(frame)
        if not _FIRST_VERSION <= version <= _LAST_VERSION:
            return None
        zeros, acks, _, topics = _AFTER_CLIENT_ID.unpack_from(frame, at)
        if zeros or topics != ONE:
            return None
        at += _AFTER_CLIENT_ID.size
        name, topic_id, topic, at = read_topic(frame, at, by_id=version >= _TOPIC_IDS_SINCE)
        partitions, index = _PARTITION.unpack_from(frame, at)
        if partitions != ONE:
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
                _RESPONSE.size - 4 + len(topic) + _RESPONSE_TOPIC_ON.size, frame[4:8].tobytes(), 0, ONE
            ),
            topic,
            _RESPONSE_TOPIC_ON.pack(
                ONE, request.partition, 0, base_offset, append_time_ms, log_start_offset, 1, 0, 0, 0, 0, 0
            ),
        )
    )
