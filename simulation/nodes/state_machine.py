"""A state machine whose state is the list of the ids of all records that it was given, in order."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from quorate.raft.types import CommittedBatch, LeaderAndEpoch, OffsetEpoch
from quorate.records.batch import build_metadata_batch
from simulation.checker.invariants import InvariantError, ReplicaModel
from simulation.nodes.environment import Environment

ID_BYTES = 8
RECORD_BYTES = 64 * ID_BYTES


class RecordingStateMachine:
    """Implements RaftListener. Every record is a unique id, so a lost or repeated record shows in the state.

    The checker compares the digests of the states of all processes at equal offsets.
    """

    def __init__(self, environment: Environment, node_id: int, model: Callable[[], ReplicaModel]) -> None:
        self.environment = environment
        self.node_id = node_id
        self.model = model  # of the process; a start replaces it
        self.state = bytearray()  # ids, one after another
        self.digest = 0
        self.next_offset = 0
        self.epoch = 0  # of the last batch
        self.timestamp_ms = 0
        self.leader = LeaderAndEpoch(None, 0)
        self.hwm = 0
        self.proposed: dict[int, int] = {}  # ids of records proposed here and not applied yet -> epoch

    def on_commit(self, batches: list[CommittedBatch]) -> None:
        for batch in batches:
            if batch.base_offset != self.next_offset:
                raise InvariantError(
                    f"applied state: n{self.node_id} is given offset {batch.base_offset} after "
                    f"{self.next_offset}"
                )
            for value in batch.values:
                identity = int.from_bytes(value, "big")
                self.state += value
                self.digest = zlib.crc32(value, self.digest)
                epoch = self.proposed.pop(identity, None)
                if epoch is not None and epoch == batch.epoch:
                    self.environment.acknowledged.add(identity)
            self.next_offset = batch.last_offset + 1
            self.epoch, self.timestamp_ms = batch.epoch, batch.timestamp_ms
            self.environment.checker.state_applied(
                self.model(), self.next_offset, hash((len(self.state), self.digest))
            )

    def on_snapshot(self, snapshot_id: OffsetEpoch, batches: Iterator[CommittedBatch]) -> None:
        self.environment.checker.snapshot_loaded(
            self.model(), snapshot_id, leads=self.leader.leader_id == self.node_id
        )
        self.state.clear()
        for batch in batches:
            self.state += b"".join(batch.values)
            self.timestamp_ms = batch.timestamp_ms
        self.digest = zlib.crc32(self.state)
        self.next_offset, self.epoch = snapshot_id
        self.environment.trace(self.node_id, f"applies the snapshot {snapshot_id.offset}-{snapshot_id.epoch}")
        self.environment.checker.state_applied(
            self.model(), self.next_offset, hash((len(self.state), self.digest))
        )

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        if leader.epoch < self.leader.epoch:
            raise InvariantError(f"epoch: n{self.node_id} is told of {leader} after {self.leader}")
        self.leader = leader

    def on_high_watermark(self, hwm: int) -> None:
        if hwm < self.hwm:
            raise InvariantError(f"high watermark: n{self.node_id} is told {hwm} after {self.hwm}")
        self.hwm = hwm

    @property
    def ids(self) -> list[int]:
        return [
            int.from_bytes(self.state[at : at + ID_BYTES], "big")
            for at in range(0, len(self.state), ID_BYTES)
        ]

    def snapshot_batches(self) -> list[bytes]:
        """Returns the whole state as the data batches of a snapshot."""
        state = bytes(self.state)
        values = [state[at : at + RECORD_BYTES] for at in range(0, len(state), RECORD_BYTES)]
        make: Callable[..., bytes] = build_metadata_batch
        return [
            bytes(make(values[at : at + 16], base_offset=0, leader_epoch=0, timestamp=self.timestamp_ms))
            for at in range(0, len(values), 16)
        ]
