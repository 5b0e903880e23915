"""PartitionChangeRecords that exist as bytes.

The failure of brokers changes very many partitions, most of which are encoded in the image. Their changes are
bytes from the decision to the log. A handler still returns records, so such a change is a record as well.
"""

from __future__ import annotations

from typing import Any

from quorate.controller.changes.record_versions import version_of
from quorate.metadata.framing import decode_record, encode_record
from quorate.metadata.records import PartitionChangeRecord
from quorate.protocol.schema import Data, FieldSpec


class EncodedPartitionChange(PartitionChangeRecord):
    """A PartitionChangeRecord that is decoded when one of its fields is read."""

    value: bytes = b""
    """The value of the record in a batch: frame and body."""

    @classmethod
    def fields(cls) -> tuple[FieldSpec, ...]:
        """Those of a PartitionChangeRecord: `value` is not a field of the message."""
        return PartitionChangeRecord.fields()

    def __getattr__(self, name: str) -> Any:
        """Decodes the record. Called for a field that has no value yet."""
        if name not in PartitionChangeRecord._declared and name != "_tags":
            raise AttributeError(name)
        record, _ = decode_record(self.value)
        for field in (*PartitionChangeRecord._declared, "_tags"):
            setattr(self, field, getattr(record, field))
        return getattr(self, name)


_new = EncodedPartitionChange.__new__


def partition_change(value: bytes) -> PartitionChangeRecord:
    """The PartitionChangeRecord with this value."""
    record: EncodedPartitionChange = _new(EncodedPartitionChange)
    record.value = value
    return record


def value_of(record: Data, metadata_version: int) -> bytes:
    """The value of a record in a batch."""
    if type(record) is EncodedPartitionChange:
        return record.value
    return encode_record(record, version_of(record, metadata_version))
