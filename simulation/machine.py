"""A state machine on the metadata log that knows exactly what it was given: the ids of all records, in order."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from quorate.raft.types import CommittedBatch, LeaderAndEpoch, OffsetEpoch
from quorate.records.batch import build_metadata_batch
from simulation.invariants import InvariantError

if TYPE_CHECKING:
    from simulation.life import Life

ID_BYTES = 8
RECORD_BYTES = 64 * ID_BYTES


class Machine:
    """Implements RaftListener."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.state = bytearray()  # ids, one after another
        self.digest = 0
        self.next_offset = 0
        self.epoch = 0  # of the last batch
        self.timestamp_ms = 0
        self.leader = LeaderAndEpoch(None, 0)
        self.hwm = 0
        self.mine: dict[int, int] = {}  # proposed here and not yet seen: id -> epoch

    def on_commit(self, batches: list[CommittedBatch]) -> None:
        process = self.life.process
        for batch in batches:
            if batch.base_offset != self.next_offset:
                raise InvariantError(f"applied state: n{process.id} is given offset {batch.base_offset} after {self.next_offset}")
            for value in batch.values:
                identity = int.from_bytes(value, "big")
                self.state += value
                self.digest = zlib.crc32(value, self.digest)
                epoch = self.mine.pop(identity, None)
                if epoch is not None and epoch == batch.epoch:
                    process.cluster.acknowledged.add(identity)
            self.next_offset = batch.last_offset + 1
            self.epoch, self.timestamp_ms = batch.epoch, batch.timestamp_ms
            process.cluster.history.applied_at(process.subject, self.next_offset, hash((len(self.state), self.digest)))

    def on_snapshot(self, snapshot_id: OffsetEpoch, batches: Iterator[CommittedBatch]) -> None:
        process = self.life.process
        process.cluster.history.loads_snapshot(process.subject, snapshot_id, leads=self.leader.leader_id == process.id)
        self.state.clear()
        for batch in batches:
            self.state += b"".join(batch.values)
            self.timestamp_ms = batch.timestamp_ms
        self.digest = zlib.crc32(self.state)
        self.next_offset, self.epoch = snapshot_id
        process.cluster.note(process, f"applies the snapshot {snapshot_id.offset}-{snapshot_id.epoch}")
        process.cluster.history.applied_at(process.subject, self.next_offset, hash((len(self.state), self.digest)))

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        if leader.epoch < self.leader.epoch:
            raise InvariantError(f"epoch: n{self.life.process.id} is told of {leader} after {self.leader}")
        self.leader = leader

    def on_high_watermark(self, hwm: int) -> None:
        if hwm < self.hwm:
            raise InvariantError(f"high watermark: n{self.life.process.id} is told {hwm} after {self.hwm}")
        self.hwm = hwm

    @property
    def ids(self) -> list[int]:
        return [int.from_bytes(self.state[at : at + ID_BYTES], "big") for at in range(0, len(self.state), ID_BYTES)]

    def snapshot_batches(self) -> list[bytes]:
        """The whole state as data batches."""
        state = bytes(self.state)
        values = [state[at : at + RECORD_BYTES] for at in range(0, len(state), RECORD_BYTES)]
        make: Callable[..., bytes] = build_metadata_batch
        return [
            bytes(make(values[at : at + 16], base_offset=0, leader_epoch=0, timestamp=self.timestamp_ms))
            for at in range(0, len(values), 16)
        ]
