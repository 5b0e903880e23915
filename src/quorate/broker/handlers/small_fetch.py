"""Fetch requests of consumers for one partition without a session, and their responses, at fixed positions.

librdkafka never uses sessions, and a consumer of one partition for each broker sends only such requests. To
decode and to encode them takes longer than to read a small batch. Versions 12 (flexible) to 18; without
forgotten topics and without tagged fields.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from quorate.broker.handlers.small_requests import ONE, read_topic, version_and_client_id
from quorate.broker.replication.log_reader import ReadResult
from quorate.protocol.errors import DecodeError
from quorate.protocol.primitives import write_compact_length

_FIRST_VERSION, _TOPIC_IDS_SINCE, _LAST_VERSION = 12, 13, 18
_REPLICA_STATE_SINCE = 15
"""From this version on, the id of a follower is in a tagged field instead of the first field."""

_AFTER_CLIENT_ID = Struct(">biiibiib")
"""No tags; maximum wait, minimum and maximum bytes, isolation level, session id and epoch, topics + 1."""
_AFTER_CLIENT_ID_WITH_REPLICA = Struct(">biiiibiib")
"""The same with the replica id after the tags."""
_PARTITION = Struct(">biiqiqi4s")
"""Partitions + 1, index, leader epoch, offset, epoch of the last record, log start offset, maximum bytes;
no tags of the partition and the topic, no forgotten topics, an empty rack."""
_CONSUMER, _NO_SESSION, _NO_EPOCH = -1, 0, -1

_RESPONSE = Struct(">i4sbihib")  # size, correlation id, no tags, throttle time, error, session id, topics + 1
_RESPONSE_PARTITION = Struct(">bihqqqbi")
"""Partitions + 1, index, error code, high watermark, last stable offset, log start offset, aborted
transactions (null), preferred read replica."""
_NO_TAGS = b"\0\0\0"
"""No tags of the partition, the topic and the response."""


class SmallFetch(NamedTuple):
    """The fields of a request that the read and the response need."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    name: str
    """Empty from version 13 on."""
    topic_id: bytes
    """Zeros in version 12."""
    topic: bytes
    """The encoded name or id."""
    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int
    partition_max_bytes: int


def parse(frame: memoryview) -> SmallFetch | None:
    """Returns None for a request of another form, and for a malformed one."""
    try:
        version, at = version_and_client_id(frame)
        if not _FIRST_VERSION <= version <= _LAST_VERSION:
            return None
        replica = _CONSUMER
        if version < _REPLICA_STATE_SINCE:
            head = _AFTER_CLIENT_ID_WITH_REPLICA
            zero, replica, wait, low, high, isolation, session, epoch, topics = head.unpack_from(frame, at)
        else:
            head = _AFTER_CLIENT_ID
            zero, wait, low, high, isolation, session, epoch, topics = head.unpack_from(frame, at)
        if zero or isolation or (replica, session, epoch, topics) != (_CONSUMER, _NO_SESSION, _NO_EPOCH, ONE):
            return None
        at += head.size
        name, topic_id, topic, at = read_topic(frame, at, by_id=version >= _TOPIC_IDS_SINCE)
        count, index, leader_epoch, offset, last_epoch, start, size, rest = _PARTITION.unpack_from(frame, at)
        if count != ONE or rest != b"\0\0\1\1" or bytes(frame[at + _PARTITION.size :]) != b"\0":
            return None
    except (struct_error, IndexError, UnicodeDecodeError, DecodeError):
        return None
    return SmallFetch(
        wait, low, high, name, topic_id, topic, index, leader_epoch, offset, last_epoch, start, size
    )


def response(frame: memoryview, request: SmallFetch, result: ReadResult, records: bytes) -> bytes:
    """The complete response with the records that were read, without an error."""
    topic, prefix = request.topic, bytearray()
    write_compact_length(prefix, len(records))
    size = _RESPONSE.size - 4 + len(topic) + _RESPONSE_PARTITION.size + len(prefix) + len(records)
    return b"".join(
        (
            _RESPONSE.pack(size + len(_NO_TAGS), frame[4:8].tobytes(), 0, 0, 0, _NO_SESSION, ONE),
            topic,
            _RESPONSE_PARTITION.pack(
                ONE,
                request.partition,
                0,
                result.high_watermark,
                result.last_stable_offset,
                result.log_start_offset,
                0,
                result.preferred_read_replica,
            ),
            prefix,
            records,
            _NO_TAGS,
        )
    )
