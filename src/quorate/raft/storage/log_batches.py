"""Decodes batches of the metadata log."""

from __future__ import annotations

from collections.abc import Sequence

from quorate.raft.core.events import ControlRecord
from quorate.raft.types import CommittedBatch
from quorate.records.batch import BatchHeader, control_records
from quorate.records.control import CONTROL_RECORDS, ControlRecordType
from quorate.records.errors import InvalidRecordError

_KINDS = {int(kind): record for kind, record in CONTROL_RECORDS.items() if kind != ControlRecordType.UNKNOWN}


def committed_batch(header: BatchHeader, values: Sequence[memoryview]) -> CommittedBatch:
    return CommittedBatch(
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.base_timestamp,
        values,
        header.size_bytes,
    )


def control_values(base_offset: int, batch: memoryview) -> list[ControlRecord]:
    """The control records of one batch. Raises InvalidRecordError for a type that Raft does not use."""
    out: list[ControlRecord] = []
    for i, (kind, value) in enumerate(control_records(batch)):
        declared = _KINDS.get(kind)
        if declared is None:
            raise InvalidRecordError(f"control record of type {kind} at offset {base_offset + i}")
        out.append(ControlRecord(base_offset + i, kind, declared.decode(value, 0)))
    return out
