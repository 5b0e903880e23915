"""Encodes and decodes the records of `__consumer_offsets` (`GroupCoordinatorRecordSerde` in Kafka). A key
starts with the record type as int16, a value with its version as int16. A record without value deletes.

Types 0 to 2 are offsets and classic groups. The other types belong to groups that this coordinator does
not serve (KIP-848, KIP-932, KIP-1071). Of their records only the group id, with which all keys begin, and
the member id are decoded.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from quorate.broker.coordinators.group.model import (
    GroupRecord,
    OffsetAndMetadata,
    OffsetRecord,
    OffsetTombstone,
    Record,
    StoredGroup,
    StoredMember,
    UnsupportedGroupRecord,
    UnsupportedGroupType,
)
from quorate.broker.coordinators.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from quorate.broker.coordinators.shard import UnknownRecordTypeError
from quorate.protocol.errors import DecodeError
from quorate.protocol.primitives import text, write_compact_string
from quorate.protocol.uuids import ZERO_UUID

LEGACY_OFFSET_COMMIT: Final = 0
OFFSET_COMMIT: Final = 1
GROUP_METADATA: Final = 2

GROUP_VALUE_VERSION: Final = 3
"""The version that Apache Kafka 4.1 writes. Version 4 is read, too."""
OFFSET_VALUE_VERSION: Final = 4
EXPIRING_OFFSET_VALUE_VERSION: Final = 1
"""The only version with an expire timestamp, for requests that give a retention time."""

UNSUPPORTED_RECORD_TYPES: Final[dict[int, UnsupportedGroupType]] = (
    dict.fromkeys((3, 4, 5, 6, 7, 8, 16), UnsupportedGroupType.CONSUMER)
    | dict.fromkeys((10, 11, 12, 13, 14, 15), UnsupportedGroupType.SHARE)
    | dict.fromkeys((17, 19, 20, 21, 22, 23), UnsupportedGroupType.STREAMS)
)
_MEMBER_TYPES: Final = frozenset({5, 10, 19})

_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_OFFSET_VALUE = struct.Struct(">hqi")  # version, offset, leader epoch; then metadata and timestamp
_OFFSET_VALUE_WITHOUT_METADATA = struct.Struct(">hqibq")
_EMPTY = 1
"""The length of an empty string in the flexible encoding."""
_NO_TAGS, _TOPIC_ID_TAG = b"\0", b"\1\0\x10"
"""A value without tagged fields, and the head of one with a topic id: one field, tag 0, 16 bytes."""


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Encodes a record to (key, value)."""
    match record:
        case OffsetRecord():
            group_id, topic, partition, offset = record
            return _offset_key(group_id, topic, partition), None if offset is None else _encode_offset(offset)
        case OffsetTombstone(key=key):
            return key, None
        case GroupRecord(group_id=group_id, value=group):
            key = _INT16.pack(GROUP_METADATA) + GroupMetadataKey(group=group_id).encode(0)
            return key, None if group is None else _encode_group(group)
        case UnsupportedGroupRecord(key=key, value=value):
            return key, value


@lru_cache(maxsize=4096)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of an offset. A consumer commits the same partitions again and again."""
    return _INT16.pack(OFFSET_COMMIT) + OffsetCommitKey(
        group=group_id, topic=topic, partition=partition
    ).encode(0)


def _encode_offset(value: OffsetAndMetadata) -> bytes:
    """Encodes the value of an offset. Version 4 is not encoded by its schema, which takes three times as
    long."""
    offset, leader_epoch, metadata, timestamp_ms, expire_timestamp_ms, topic_id, _ = value
    if expire_timestamp_ms is not None:
        version = EXPIRING_OFFSET_VALUE_VERSION
        message = OffsetCommitValue(
            offset=offset,
            metadata=metadata,
            commit_timestamp=timestamp_ms,
            expire_timestamp=expire_timestamp_ms,
        )
        return _INT16.pack(version) + message.encode(version)
    tags = _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id
    version = OFFSET_VALUE_VERSION
    if not metadata:
        return _OFFSET_VALUE_WITHOUT_METADATA.pack(version, offset, leader_epoch, _EMPTY, timestamp_ms) + tags
    out = bytearray(_OFFSET_VALUE.pack(version, offset, leader_epoch))
    write_compact_string(out, metadata)
    return bytes(out) + _INT64.pack(timestamp_ms) + tags


def _encode_group(value: StoredGroup) -> bytes:
    message = GroupMetadataValue(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        current_state_timestamp=value.state_timestamp_ms,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in value.members
        ],
    )
    return _INT16.pack(GROUP_VALUE_VERSION) + message.encode(GROUP_VALUE_VERSION)


def decode_record(key: bytes, value: bytes | None) -> Record:
    """Decodes a record. Raises UnknownRecordTypeError, DecodeError."""
    if len(key) < 2:
        raise DecodeError("a coordinator record's key has no type")
    record_type = _INT16.unpack_from(key)[0]
    if record_type == OFFSET_COMMIT:
        offset_key, _ = OffsetCommitKey.read(key, 2, 0)
        return OffsetRecord(offset_key.group, offset_key.topic, offset_key.partition, _decode_offset(value))
    if record_type == GROUP_METADATA:
        group_key, _ = GroupMetadataKey.read(key, 2, 0)
        return GroupRecord(group_key.group, _decode_group(value))
    if record_type == LEGACY_OFFSET_COMMIT:
        legacy_key, _ = LegacyOffsetCommitKey.read(key, 2, 0)
        return OffsetRecord(
            legacy_key.group, legacy_key.topic, legacy_key.partition, _decode_legacy_offset(value)
        )
    group_type = UNSUPPORTED_RECORD_TYPES.get(record_type)
    if group_type is None:
        raise UnknownRecordTypeError(record_type)
    group_id, pos = _read_string(key, 2)
    member_id = _read_string(key, pos)[0] if record_type in _MEMBER_TYPES else None
    return UnsupportedGroupRecord(group_id, group_type, record_type, key, value, member_id)


def _value_version(value: bytes, highest: int, name: str) -> int:
    if len(value) < 2:
        raise DecodeError(f"{name} has no version")
    version: int = _INT16.unpack_from(value)[0]
    if not 0 <= version <= highest:
        raise DecodeError(f"{name} has version {version}, known are 0 to {highest}")
    return version


def _decode_offset(value: bytes | None) -> OffsetAndMetadata | None:
    if value is None:
        return None
    version = _value_version(value, 4, "OffsetCommitValue")
    message, _ = OffsetCommitValue.read(value, 2, version)
    return OffsetAndMetadata(
        offset=message.offset,
        leader_epoch=message.leader_epoch,
        metadata=message.metadata,
        commit_timestamp_ms=message.commit_timestamp,
        expire_timestamp_ms=None if message.expire_timestamp == -1 else message.expire_timestamp,
        topic_id=message.topic_id,
    )


def _decode_legacy_offset(value: bytes | None) -> OffsetAndMetadata | None:
    if value is None:
        return None
    version = _value_version(value, 0, "LegacyOffsetCommitValue")
    message, _ = LegacyOffsetCommitValue.read(value, 2, version)
    return OffsetAndMetadata(
        offset=message.offset, metadata=message.metadata, commit_timestamp_ms=message.commit_timestamp
    )


def _decode_group(value: bytes | None) -> StoredGroup | None:
    if value is None:
        return None
    version = _value_version(value, 4, "GroupMetadataValue")
    message, _ = GroupMetadataValue.read(value, 2, version)
    return StoredGroup(
        protocol_type=message.protocol_type,
        generation=message.generation,
        protocol=message.protocol,
        leader=message.leader,
        state_timestamp_ms=message.current_state_timestamp,
        members=tuple(
            StoredMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout,
                session_timeout_ms=member.session_timeout,
                subscription=bytes(member.subscription),
                assignment=bytes(member.assignment),
            )
            for member in message.members
        ),
    )


def _read_string(key: bytes, pos: int) -> tuple[str, int]:
    if pos + 2 > len(key):
        raise DecodeError("a coordinator record's key is truncated")
    length = _INT16.unpack_from(key, pos)[0]
    end = pos + 2 + length
    if length < 0 or end > len(key):
        raise DecodeError("a coordinator record's key is truncated")
    return text(key[pos + 2 : end]), end
