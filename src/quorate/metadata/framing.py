"""The frame of a metadata record in a log: frame version, record type and record version as unsigned
varints before the body. KIP-595, KIP-746.

Records of Kafka 2.8 have frame version 0. They are rejected, as in Kafka.
"""

from __future__ import annotations

from quorate.metadata.errors import MetadataError
from quorate.metadata.records import RECORD_TYPES
from quorate.protocol.errors import DecodeError
from quorate.protocol.schema import Data

FRAME_VERSION = 1


def frame(record_type: int, version: int) -> bytes:
    """The first bytes of the value of such a record."""
    header = _HEADERS.get((record_type, version))
    if header is None:
        header = _HEADERS[record_type, version] = (
            bytes([FRAME_VERSION]) + _uvarint(record_type) + _uvarint(version)
        )
    return header


def encode_record(record: Data, version: int) -> bytes:
    """The value of a record in a batch. Raises EncodeError if a field is set that the version does not
    have."""
    return frame(record.KEY, version) + record.encode(version)


def decode_record(value: bytes | memoryview) -> tuple[Data, int]:
    """The record and its version. Raises MetadataError with the unknown frame version, record type or
    record version, or with the error in the body."""
    frame, position = read_uvarint(value, 0, "frame version")
    if frame == 0:
        raise MetadataError(
            "frame version 0 is that of Kafka 2.8's preview of KRaft, whose metadata cannot be used: format "
            "anew"
        )
    if frame != FRAME_VERSION:
        raise MetadataError(f"frame version {frame} is unknown: only {FRAME_VERSION} is read here")
    record_type, position = read_uvarint(value, position, "record type")
    version, position = read_uvarint(value, position, "record version")
    cls = RECORD_TYPES.get(record_type)
    if cls is None:
        raise MetadataError(f"record type {record_type} is unknown")
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise MetadataError(
            f"version {version} of {cls.__name__} (type {record_type}) is unknown: "
            f"{cls.MIN_VERSION} to {cls.MAX_VERSION} are read here"
        )
    try:
        return cls.decode(memoryview(value)[position:], version), version
    except DecodeError as error:
        raise MetadataError(f"{cls.__name__} version {version} does not decode: {error}") from error


_HEADERS: dict[tuple[int, int], bytes] = {}
"""The frames that were made so far, at most one for each record type and version."""


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(value: bytes | memoryview, position: int, what: str) -> tuple[int, int]:
    """An unsigned varint and the position after it. Raises MetadataError if it is incomplete or too
    long; `what` names the field in the message."""
    result = 0
    for shift in range(0, 35, 7):
        if position >= len(value):
            raise MetadataError(f"the record ends inside of its {what}")
        byte = value[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
    raise MetadataError(f"its {what} is longer than five bytes")
