"""Replays the log of a partition into a shard, in slices that do not block the event loop
(`CoordinatorLoader` in Kafka)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from quorate.broker.coordinators.shard import NO_PRODUCER_ID, CoordinatorShard, UnknownRecordTypeError
from quorate.log.errors import DiskAccess, LogDirFailure
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.file_region import READ_AHEAD_ROUNDS, ReadAhead
from quorate.protocol.page_cache import resident_bytes
from quorate.records.batch import control_records, decode_records, iter_batches, verify_crc
from quorate.records.control import ControlRecordType

logger = logging.getLogger("quorate.group")

SLICE_BYTES = 256 * 1024
"""Bytes that are read at once."""


async def _read(source: Any, offset: int) -> bytes:
    """Reads the batches at `offset`, or at the start of the log if that is later. Pages that are not in the
    page cache are read in a thread: a broker that takes over from a failed one has often not used these
    files for days. Raises LogDirFailure."""
    loop = asyncio.get_running_loop()
    for _ in range(READ_AHEAD_ROUNDS):
        try:
            cold = source.cold_regions(offset)
            if not cold:
                break
            await loop.run_in_executor(None, _bytes_of, cold)
        except (OSError, EOFError):
            break  # the read below rebuilds a missing index and raises any other error again
    # Retention may have deleted what was to come next.
    parts = source.read(max(offset, source.log_start_offset), SLICE_BYTES).parts
    with DiskAccess(str(source.dir.parent), source.dir.name, "loading"):
        if all(
            resident_bytes(part.fd_owner.fileno(), part.position, part.length) == part.length
            for part in parts
        ):
            return _bytes_of(parts)
        return await loop.run_in_executor(None, _bytes_of, parts)


def _bytes_of(regions: Iterable[ReadAhead]) -> bytes:
    return b"".join(region.read() for region in regions)


def _present(log: Any) -> Any:
    if log is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log is not here")
    return log


RECORDS_AT_ONCE = 250
"""Records that are replayed in one turn of the event loop, in some milliseconds."""


class CoordinatorLoader:
    """Replays a log into a shard and counts the `records`."""

    __slots__ = ("_decode_record", "_name", "_replayed", "_unknown_types", "records", "shard")

    def __init__(
        self,
        name: str,
        shard: CoordinatorShard,
        decode_record: Callable[[bytes, bytes | None], Any],
        replayed: Callable[[int], None] | None = None,
    ) -> None:
        """`name` is for the log. `replayed` is called with the end offset of every batch."""
        self._name = name
        self.shard = shard
        self._decode_record = decode_record
        self._replayed = replayed
        self.records = 0
        self._unknown_types: set[int] = set()

    async def load(self, current_log: Callable[[], Any]) -> int:
        """Replays the log from its start to its present end.

        Returns that end. `current_log` returns the log, or None if it is not here. It is called
        before each read, because the log may move to another directory meanwhile, and the files in
        the old one are then removed.

        Raises KafkaError (LogDirFailure if the log cannot be read), DecodeError.
        """
        source = _present(current_log())
        end: int = source.log_end_offset
        offset: int = source.log_start_offset
        while offset < end:
            source = _present(current_log())
            try:
                data = await _read(source, offset)
            except LogDirFailure:
                if current_log() is source:
                    raise
                continue
            if not data:
                break  # all records from here to the end were compacted away
            reached = offset
            for end_of_batch in self._replaying(data, offset):
                reached = end_of_batch
                await asyncio.sleep(0)
            if reached <= offset:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"nothing can be read at offset {offset}, the log ends at {end}",
                )
            offset = reached
        return end

    def replay_bytes(self, data: bytes, first_offset: int) -> int:
        """Replays complete batches from `first_offset` on. Returns the offset after the last one. Raises
        CORRUPT_MESSAGE if a batch is damaged."""
        *_, reached = self._replaying(data, first_offset)
        return reached

    def _replaying(self, data: bytes, first_offset: int) -> Iterator[int]:
        """Does the same for RECORDS_AT_ONCE records with each step. Yields the offset after the
        last complete batch."""
        reached = first_offset
        count = 0
        for header, batch in iter_batches(data):
            if not verify_crc(batch):
                # Without its coordinator a group is unavailable, with a wrong state it would lose data.
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"the batch at offset {header.base_offset} has a wrong checksum",
                )
            if header.is_control:
                self._replay_marker(batch, header.producer_id)
            else:
                producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
                for record in decode_records(batch):
                    if record.offset >= first_offset and record.key is not None:
                        self._replay(record.key, record.value, record.offset, producer_id)
                    count += 1
                    if not count % RECORDS_AT_ONCE:
                        yield reached
            reached = header.next_offset
            if self._replayed is not None:
                self._replayed(reached)
        yield reached

    def _replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        try:
            record = self._decode_record(key, value)
        except UnknownRecordTypeError as error:
            if error.record_type not in self._unknown_types:
                self._unknown_types.add(error.record_type)
                logger.warning(
                    "[%s] Records of unknown type %d are left alone.", self._name, error.record_type
                )
            return
        self.shard.replay(record, offset, producer_id)
        self.records += 1

    def _replay_marker(self, batch: memoryview, producer_id: int) -> None:
        for kind, _ in control_records(batch):
            if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
                self.shard.replay_end_transaction(producer_id, committed=kind == ControlRecordType.COMMIT)
