"""Reads an offsets partition back into a shard: in slices, so that a long log does not hold up the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from quorate.broker.coordinators.model import NO_PRODUCER_ID, OffsetRecord
from quorate.broker.coordinators.record_codec import UnknownRecordTypeError, decode_record
from quorate.broker.coordinators.shard import Shard
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.page_cache import resident_bytes
from quorate.protocol.regions import FileRegion

log = logging.getLogger("quorate.group")

SLICE_BYTES = 256 * 1024
"""Read and replayed between two turns of the loop: a few milliseconds of decoding."""


READ_AHEAD_ROUNDS = 8
"""An index leads to a batch header, which leads to the next one. What is not found by then is read in
the event loop."""


async def _read(source: Any, offset: int) -> bytes:
    """The batches at `offset`. What is not in the page cache is read in a thread: a broker that takes
    over from one that died has often not looked at these files for days."""
    loop = asyncio.get_running_loop()
    for _ in range(READ_AHEAD_ROUNDS):
        try:
            cold = source.cold_regions(offset)
            if not cold:
                break
            await loop.run_in_executor(None, _bytes_of, cold)
        except (OSError, EOFError):
            break  # a missing index is made anew by the read, which meets any other error again
    parts = source.read(offset, SLICE_BYTES).parts
    if all(
        resident_bytes(part.fd_owner.fileno(), part.position, part.length) == part.length for part in parts
    ):
        return _bytes_of(parts)
    return await loop.run_in_executor(None, _bytes_of, parts)


def _bytes_of(regions: Iterable[FileRegion]) -> bytes:
    return b"".join(region.read() for region in regions)


class ShardLoader:
    """Replays a log into `shard`. `records` counts what was replayed, `topics` are those of the offsets
    in it; `replayed` is told the end offset of every batch."""

    __slots__ = ("_replayed", "_unknown_types", "records", "shard", "topics")

    def __init__(self, shard: Shard, replayed: Callable[[int], None] | None = None) -> None:
        self.shard = shard
        self._replayed = replayed
        self.records = 0
        self.topics: set[str] = set()
        self._unknown_types: set[int] = set()

    async def load(self, source: Any) -> int:
        """Replays from the log's start to what was its end when the load began; that end. Raises
        KafkaError, DecodeError."""
        if source is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log is not here")
        end: int = source.log_end_offset
        offset: int = source.log_start_offset
        while offset < end:
            data = await _read(source, offset)
            if not data:
                break  # all that stood between here and the end was compacted away
            reached = self.replay_bytes(data, offset)
            if reached <= offset:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"nothing can be read at offset {offset}, the log ends at {end}",
                )
            offset = reached
            await asyncio.sleep(0)
        return end

    def replay_bytes(self, data: bytes, first_offset: int) -> int:
        """Replays whole batches from `first_offset` on; the offset after the last. Raises
        CORRUPT_MESSAGE for a damaged one."""
        from quorate.records.batch import decode_records, iter_batches, verify_crc

        reached = first_offset
        for header, batch in iter_batches(data):
            if not verify_crc(batch):
                # Better no coordinator for these groups than one that remembers wrongly.
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
            reached = header.next_offset
            if self._replayed is not None:
                self._replayed(reached)
        return reached

    def _replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        try:
            record = decode_record(key, value)
        except UnknownRecordTypeError as error:
            if error.record_type not in self._unknown_types:
                self._unknown_types.add(error.record_type)
                log.warning(
                    "[GroupCoordinator] Records of unknown type %d are left alone.", error.record_type
                )
            return
        self.shard.replay(record, offset, producer_id)
        self.records += 1
        if isinstance(record, OffsetRecord) and record.value is not None:
            self.topics.add(record.topic)

    def _replay_marker(self, batch: memoryview, producer_id: int) -> None:
        from quorate.records.batch import control_records
        from quorate.records.control import ControlRecordType

        for kind, _ in control_records(batch):
            if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
                self.shard.replay_end_transaction(producer_id, committed=kind == ControlRecordType.COMMIT)
