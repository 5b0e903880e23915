"""Validation of batches before they are appended (Kafka's UnifiedLog.analyzeAndValidateRecords)."""

from __future__ import annotations

import logging
import struct

from quorate.log.partition.local_log import LocalLog
from quorate.log.partition.producer_state import AppendOrigin
from quorate.log.partition.results import AppendInfo, CheckedBatch, NewBatch, UnexpectedAppendOffset
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records.batch import (
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    compute_crc,
    iter_batches,
    parse_header,
    verify_crc,
)
from quorate.records.errors import CorruptRecordError, InvalidRecordError
from quorate.records.validate import check_size, validate_produced

logger = logging.getLogger(__name__)

_PREFIX = struct.Struct(">qii")  # base offset, length, leader epoch: the fields that a leader sets

Buffer = bytes | bytearray | memoryview

ValidatedAppend = tuple[list[Buffer], list[BatchHeader], list[memoryview], AppendInfo]
"""The bytes to write, and for each batch its header and its view."""


def validate_new_batch(
    log: LocalLog, batches: NewBatch, leader_epoch: int, log_start: int, now_ms: int, origin: AppendOrigin
) -> ValidatedAppend:
    """Checks the single batch of a client or coordinator and gives it offsets from the log end on.

    Raises KafkaError (CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE,
    RECORD_LIST_TOO_LARGE).
    """
    config, name, log_end = log.config, log.name, log.end_offset
    header, batch = _only_batch(batches, name)
    if origin is AppendOrigin.CLIENT and header.base_offset != 0:
        raise InvalidRecordError(
            f"The baseOffset of the record batch in the append to {name} should be 0, but it is "
            f"{header.base_offset}"
        )
    check_size(header.size_bytes, config.max_message_bytes, name)
    if compute_crc(batch) != header.crc:
        raise CorruptRecordError(f"Record is corrupt (stored crc = {header.crc}) in topic partition {name}.")
    valid = validate_produced(batch, header, config, now_ms, from_client=origin is AppendOrigin.CLIENT)
    if valid.changed:
        header = parse_header(valid.data)
        check_size(header.size_bytes, config.max_message_bytes, name)
    header.base_offset, header.leader_epoch = log_end, leader_epoch
    info = AppendInfo(
        log_end,
        header.last_offset,
        valid.max_timestamp,
        valid.log_append_time_ms,
        log_start,
        leader_epoch,
        False,
        header.size_bytes,
    )
    _check_fits_segment(log, header.size_bytes)
    prefix = _PREFIX.pack(log_end, header.size_bytes - LOG_OVERHEAD, leader_epoch)
    view = memoryview(valid.data)
    return [prefix, view[_PREFIX.size :]], [header], [view], info


def _only_batch(batches: NewBatch, name: str) -> CheckedBatch:
    """The header and the bytes of the only batch. Raises InvalidRecordError, CorruptRecordError."""
    if isinstance(batches, tuple):
        return batches
    view = memoryview(batches)
    if len(view) >= BATCH_OVERHEAD:
        header = parse_header(view)
        if header.size_bytes == len(view):
            return header, view
    found = list(iter_batches(view))
    if len(found) != 1:
        raise InvalidRecordError(f"An append to {name} holds exactly one complete batch, not {len(found)}")
    return found[0]


def validate_raft_batches(log: LocalLog, batches: Buffer, epoch: int, log_start: int) -> ValidatedAppend:
    """Checks the batches of the Raft leader, which have their offsets already and must be of one leader
    epoch. Raises UnexpectedAppendOffset, KafkaError."""
    valid = validate_placed_batches(log, batches, epoch, log_start, True)
    _check_fits_segment(log, valid[3].size_bytes)
    return valid


def validate_placed_batches(
    log: LocalLog,
    batches: Buffer,
    epoch: int | None,
    log_start: int,
    contiguous: bool,
    max_epoch: int | None = None,
) -> ValidatedAppend:
    """Checks batches that have their offsets already. An incomplete last batch is ignored.

    epoch: the leader epoch that each batch must have, or None. contiguous: whether gaps between offsets
    are an error. max_epoch: batches are ignored from the first one of a later leader epoch on. A leader
    that has lost its role may send such batches, which it has copied meanwhile to the place in its file that
    it had answered with. The records before them may differ from those of this log (KAFKA-18723).

    Raises UnexpectedAppendOffset, InvalidRecordError, CorruptRecordError.
    """
    name, log_end = log.name, log.end_offset
    headers: list[BatchHeader] = []
    views: list[memoryview] = []
    size, expected, max_timestamp = 0, log_end, NO_TIMESTAMP
    for header, batch in iter_batches(batches):
        if epoch is not None and header.leader_epoch != epoch:
            raise InvalidRecordError(
                f"Append from Raft leader did not set the batch epoch correctly, expected {epoch} but "
                f"the batch has {header.leader_epoch}"
            )
        if max_epoch is not None and header.leader_epoch > max_epoch:
            logger.info(
                "[PartitionLog %s] Skipping batches from offset %d on: their leader epoch %d is later than "
                "the "
                "current one, %d",
                name,
                header.base_offset,
                header.leader_epoch,
                max_epoch,
            )
            break
        if header.base_offset < expected or (contiguous and header.base_offset != expected):
            last = header.last_offset
            raise UnexpectedAppendOffset(
                f"Unexpected offset in append to {name}. Batch [{header.base_offset}, {last}], "
                f"expected offset {expected}, log start offset {log_start}",
                header.base_offset,
                last,
            )
        if header.last_offset_delta < 0 or not verify_crc(batch):
            raise CorruptRecordError(
                f"Record is corrupt (stored crc = {header.crc}) in topic partition {name}."
            )
        expected = header.next_offset
        max_timestamp = max(max_timestamp, header.max_timestamp)
        headers.append(header)
        views.append(batch)
        size += header.size_bytes
    if not headers:
        no_epoch = epoch if epoch is not None else -1
        return [], [], [], AppendInfo(log_end, log_end - 1, NO_TIMESTAMP, NO_TIMESTAMP, log_start, no_epoch)
    info = AppendInfo(
        headers[0].base_offset,
        expected - 1,
        max_timestamp,
        NO_TIMESTAMP,
        log_start,
        headers[-1].leader_epoch,
        False,
        size,
    )
    return [memoryview(batches)[:size]], headers, views, info


def _check_fits_segment(log: LocalLog, size_bytes: int) -> None:
    if size_bytes > log.config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {size_bytes} bytes in append to partition {log.name}, which "
            f"exceeds the maximum configured segment size of {log.config.segment_bytes}.",
        )
