"""Control records: the records of Raft and of transactions about the log itself.

The key of a control record is two int16: version (0) and type. The values of Raft's types are flexible
messages whose first field is their version, so that they have no version prefix.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct as Packing
from typing import Final

from quorate.protocol import our_tags
from quorate.protocol.errors import DecodeError, ErrorCode
from quorate.protocol.primitives import Buffer
from quorate.protocol.schema import ZERO_UUID, Data, Struct, field, int16, int32, int64, uint16, uuid


class LeaderChangeMessage(Data, versions="0-1", flexible="0+"):
    """Announces an elected leader. It is always written in schema version 0, because Java peers read no
    other version. Directory ids, which a dynamic voter set has, are in a tagged field that is not Kafka's."""

    class Voter(Struct):
        voter_id: int32 = 0
        voter_directory_id: uuid = field(default=ZERO_UUID, versions="1+")
        directory_id: uuid = field(default=ZERO_UUID, tag=our_tags.VOTER_DIRECTORY_ID, ignorable=True)

    version: int16 = 0
    leader_id: int32 = 0
    voters: list[Voter] = field(default_factory=list)
    granting_voters: list[Voter] = field(default_factory=list)


class SnapshotHeaderRecord(Data, versions="0", flexible="0+"):
    """The first record of a snapshot. It has the time of the last batch that the snapshot contains, in
    ms since 1970."""

    version: int16 = 0
    last_contained_log_timestamp: int64 = 0


class SnapshotFooterRecord(Data, versions="0", flexible="0+"):
    """The last record of a snapshot. A file without it is incomplete."""

    version: int16 = 0


class KRaftVersionRecord(Data, versions="0", flexible="0+"):
    """Sets the level of kraft.version (KIP-853)."""

    version: int16 = 0
    kraft_version: int16 = field(default=0, json_name="kRaftVersion")


class VotersRecord(Data, versions="0", flexible="0+"):
    """Sets the voter set. KIP-853."""

    class Endpoint(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0

    class KRaftVersionFeature(Struct):
        min_supported_version: int16 = 0
        max_supported_version: int16 = 0

    class Voter(Struct):
        voter_id: int32 = 0
        voter_directory_id: uuid = ZERO_UUID
        endpoints: list[VotersRecord.Endpoint] = field(default_factory=list)
        kraft_version_feature: VotersRecord.KRaftVersionFeature = field(
            default_factory=lambda: VotersRecord.KRaftVersionFeature(),  # noqa: PLW0108 - evaluated later
            json_name="kRaftVersionFeature",
        )

    version: int16 = 0
    voters: list[Voter] = field(default_factory=list)


class EndTxnMarker(Data, versions="0"):
    """The end of a transaction in a data partition: a version prefix of 0 and the epoch of the
    transaction coordinator."""

    coordinator_epoch: int32 = 0


class ControlRecordType(IntEnum):
    """The type in the key of a control record."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


CONTROL_RECORDS: Final[dict[ControlRecordType, type[Data]]] = {
    ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: VotersRecord,
}
"""The values of Raft's control records. ABORT and COMMIT are not in it, because their value is an
EndTxnMarker after a version."""

_TYPES: Final = {record: kind for kind, record in CONTROL_RECORDS.items()}
_KEY: Final = Packing(">hh")


def encode_control_key(kind: ControlRecordType) -> bytes:
    """The key of a control record."""
    return _KEY.pack(0, kind)


def decode_control_key(key: Buffer) -> ControlRecordType:
    """The type in the key of a control record, or UNKNOWN for an unknown type. Raises DecodeError if the
    key is incomplete.

    The key of a later version may be longer, but begins with the same two fields.
    """
    if len(key) < 4:
        raise DecodeError(
            f"a control record's key has at least 4 bytes, not {len(key)}", ErrorCode.CORRUPT_MESSAGE
        )
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise DecodeError(f"a control record's key has version {version}", ErrorCode.CORRUPT_MESSAGE)
    try:
        return ControlRecordType(kind)
    except ValueError:
        return ControlRecordType.UNKNOWN


def encode_control(record: Data) -> tuple[bytes, bytes]:
    """The key and the value of one of Raft's control records."""
    return encode_control_key(_TYPES[type(record)]), record.encode(0)


def decode_control(key: Buffer, value: Buffer) -> Data | None:
    """The record of a control record's key and value: one of Raft's records, an EndTxnMarker, or None
    for an unknown type.

    Raises DecodeError for malformed bytes.
    """
    kind = decode_control_key(key)
    if kind is ControlRecordType.UNKNOWN:
        return None
    if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return decode_end_txn_marker(value)
    # The value of a later version may have more fields at its end. It is read as version 0.
    record, _ = CONTROL_RECORDS[kind].read(value, 0, 0)
    return record


def encode_end_txn_marker(marker: EndTxnMarker) -> bytes:
    """The value of an ABORT or COMMIT record."""
    return b"\0\0" + marker.encode(0)


def decode_end_txn_marker(value: Buffer) -> EndTxnMarker:
    """The marker of such a value. Raises DecodeError."""
    if len(value) < 6:
        raise DecodeError(
            f"an end-of-transaction marker has 6 bytes, not {len(value)}", ErrorCode.CORRUPT_MESSAGE
        )
    return EndTxnMarker.read(value, 2, 0)[0]
