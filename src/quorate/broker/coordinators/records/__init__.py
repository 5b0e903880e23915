"""The records that coordinators keep in internal topics, and how keys and values are framed.

A key is an int16, the type of the record (KEY of its class), then the key's fields. A value is an
int16, its version, then the fields; no value (a tombstone) removes what the key names.
"""

from __future__ import annotations

from struct import Struct as Packing
from typing import Final

from quorate.broker.coordinators.records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from quorate.broker.coordinators.records.offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from quorate.broker.coordinators.records.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from quorate.broker.coordinators.records.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from quorate.broker.coordinators.records.streams_groups import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from quorate.broker.coordinators.records.transactions import TransactionLogKey, TransactionLogValue
from quorate.protocol.errors import DecodeError, ErrorCode
from quorate.protocol.primitives import Buffer
from quorate.protocol.schema import Data

__all__ = [
    "GROUP_RECORDS",
    "SHARE_RECORDS",
    "TRANSACTION_RECORDS",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "LegacyOffsetCommitKey",
    "LegacyOffsetCommitValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
    "ShareSnapshotKey",
    "ShareSnapshotValue",
    "ShareUpdateKey",
    "ShareUpdateValue",
    "StreamsGroupCurrentMemberAssignmentKey",
    "StreamsGroupCurrentMemberAssignmentValue",
    "StreamsGroupMemberMetadataKey",
    "StreamsGroupMemberMetadataValue",
    "StreamsGroupMetadataKey",
    "StreamsGroupMetadataValue",
    "StreamsGroupTargetAssignmentMemberKey",
    "StreamsGroupTargetAssignmentMemberValue",
    "StreamsGroupTargetAssignmentMetadataKey",
    "StreamsGroupTargetAssignmentMetadataValue",
    "StreamsGroupTopologyKey",
    "StreamsGroupTopologyValue",
    "TransactionLogKey",
    "TransactionLogValue",
    "decode_key",
    "decode_value",
    "encode_key",
    "encode_value",
]

GROUP_RECORDS: Final[dict[int, tuple[type[Data], type[Data]]]] = {
    key.KEY: (key, value)
    for key, value in (
        (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
        (OffsetCommitKey, OffsetCommitValue),
        (GroupMetadataKey, GroupMetadataValue),
        (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
        (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        (ShareGroupMetadataKey, ShareGroupMetadataValue),
        (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
        (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
        (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
        (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
        (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
        (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
        (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
    )
}
"""Of `__consumer_offsets`: key and value classes by type."""

TRANSACTION_RECORDS: Final[dict[int, tuple[type[Data], type[Data]]]] = {
    key.KEY: (key, value) for key, value in ((TransactionLogKey, TransactionLogValue),)
}
"""Of `__transaction_state`."""

SHARE_RECORDS: Final[dict[int, tuple[type[Data], type[Data]]]] = {
    key.KEY: (key, value)
    for key, value in (
        (ShareSnapshotKey, ShareSnapshotValue),
        (ShareUpdateKey, ShareUpdateValue),
    )
}
"""Of `__share_group_state`."""

_VERSION: Final = Packing(">h")


def encode_key(key: Data) -> bytes:
    """The bytes of a record's key. Raises EncodeError."""
    return _VERSION.pack(key.KEY) + key.encode(0)


def encode_value(value: Data, version: int) -> bytes:
    """The bytes of a record's value. Raises EncodeError."""
    return _VERSION.pack(version) + value.encode(version)


def _prefix(data: Buffer, what: str) -> int:
    if len(data) < 2:
        raise DecodeError(f"a {what} of {len(data)} bytes has no version", ErrorCode.CORRUPT_MESSAGE)
    prefix: int = _VERSION.unpack_from(data)[0]
    return prefix


def decode_key(data: Buffer, registry: dict[int, tuple[type[Data], type[Data]]]) -> Data | None:
    """The key of a record; None for a type that the registry lacks, which readers skip. Raises
    DecodeError."""
    classes = registry.get(_prefix(data, "key"))
    return None if classes is None else classes[0].read(data, 2, 0)[0]


def decode_value(data: Buffer, key: Data, registry: dict[int, tuple[type[Data], type[Data]]]) -> Data:
    """The value that belongs to `key`. Raises DecodeError, also for a version that is not known."""
    value = registry[key.KEY][1]
    version = _prefix(data, "value")
    if not value.MIN_VERSION <= version <= value.MAX_VERSION:
        raise DecodeError(f"{value.__name__} has no version {version}", ErrorCode.UNSUPPORTED_VERSION)
    return value.read(data, 2, version)[0]
