"""The header of a record batch v2 (magic 2): KIP-98, KIP-32, KIP-320.

====== ==== ====================== ==================================================================
offset size field                  meaning
====== ==== ====================== ==================================================================
0      8    base offset            offset of the first record
8      4    length                 size of the complete batch less 12
12     4    partition leader epoch assigned by the leader; not covered by the checksum
16     1    magic                  2
17     4    checksum               CRC-32C of byte 21 to the end
21     2    attributes             bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control,
                                   6 base timestamp is the delete horizon
23     4    last offset delta      last offset less base offset (compaction may leave it above count - 1)
27     8    base timestamp         timestamp of the first record, in ms
35     8    max timestamp          the largest timestamp of a record, in ms
43     8    producer id            -1 without a producer id
51     2    producer epoch
53     4    base sequence
57     4    record count
61           records               compressed as a whole if there is a codec
====== ==== ====================== ==================================================================
"""

from __future__ import annotations

import struct
from enum import IntEnum

from quorate.dataclass import dataclass
from quorate.records.compression import Compression
from quorate.records.errors import CorruptRecordError, InvalidRecordError
from quorate.records.varint import Buffer

BASE_OFFSET = 0
LENGTH = 8
LEADER_EPOCH = 12
MAGIC = 16
CRC = 17
ATTRIBUTES = 21
LAST_OFFSET_DELTA = 23
BASE_TIMESTAMP = 27
MAX_TIMESTAMP = 35
PRODUCER_ID = 43
PRODUCER_EPOCH = 51
BASE_SEQUENCE = 53
RECORDS_COUNT = 57
BATCH_OVERHEAD = 61
LOG_OVERHEAD = 12
"""The size of base offset and length, which the length field does not include."""

CURRENT_MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
MAX_INT32 = 0x7FFFFFFF

COMPRESSION_MASK = 0x07
BIT_LOG_APPEND_TIME = 0x08
BIT_TRANSACTIONAL = 0x10
BIT_CONTROL = 0x20
BIT_DELETE_HORIZON = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CODECS = {int(codec): codec for codec in Compression}


class TimestampType(IntEnum):
    """Whether the timestamps of a batch are set by the producer or by the broker."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(slots=True)
class BatchHeader:
    """The header of a batch. `size_bytes` is the size of the complete batch, including its first 12 bytes."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def length(self) -> int:
        """The same as `size_bytes`."""
        return self.size_bytes

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The codec of the records. Raises InvalidRecordError for an unknown one."""
        codec = _CODECS.get(self.attributes & COMPRESSION_MASK)
        if codec is None:
            raise InvalidRecordError(f"Unknown compression type id: {self.attributes & COMPRESSION_MASK}")
        return codec

    @property
    def is_control(self) -> bool:
        """Whether the batch has control records."""
        return bool(self.attributes & BIT_CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self.attributes & BIT_TRANSACTIONAL)

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the timestamps are the producer's or the broker's."""
        return (
            TimestampType.LOG_APPEND_TIME
            if self.attributes & BIT_LOG_APPEND_TIME
            else TimestampType.CREATE_TIME
        )

    @property
    def delete_horizon(self) -> int | None:
        """The time in ms from which compaction may delete the tombstones of this batch, or None if it is
        not set (KIP-534)."""
        return self.base_timestamp if self.attributes & BIT_DELETE_HORIZON else None

    @property
    def has_producer_id(self) -> bool:
        """Whether the producer is idempotent or transactional."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record. Sequence numbers wrap from 2^31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_INT32


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Reads the header at `pos`. The records after it may lie outside of the buffer.

    Raises CorruptRecordError if the header is incomplete, its magic is not 2, or its length is too small.
    """
    if len(buf) - pos < BATCH_OVERHEAD:
        raise CorruptRecordError(f"Batch header needs {BATCH_OVERHEAD} bytes, {len(buf) - pos} are left")
    fields = _HEADER.unpack_from(buf, pos)
    if fields[3] != CURRENT_MAGIC:
        raise CorruptRecordError(
            f"Batch at byte {pos} has magic {fields[3]}; only record batches with magic 2 are supported"
        )
    if fields[1] < BATCH_OVERHEAD - LOG_OVERHEAD:
        raise CorruptRecordError(f"Batch at byte {pos} has length {fields[1]}, less than its header")
    return BatchHeader(fields[0], fields[1] + LOG_OVERHEAD, *fields[2:])
