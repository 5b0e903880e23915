"""Replicas as bytes, and back, as themselves or as another node."""

from __future__ import annotations

import io
import pickle
from typing import Any

from quorate.raft.core.voters import VoterSet
from quorate.raft.types import RaftParams
from simulation.checker.log_model import Batch
from simulation.explorer.canonical_form import MidpointRandom
from simulation.explorer.replica import FIRST_ID, FactRecorder, RecordingEnvironment, nodes
from simulation.identifiers import address, directory_id

# Instances of these classes are shared by all replicas.
SHARED = (Batch, VoterSet, RaftParams, RecordingEnvironment, FactRecorder, MidpointRandom, frozenset)
Renaming = tuple[int, ...]  # the new place of the node that was n-th


class StateSerializer:
    """Serializes replicas by pickle. Values that never change, and the environment, are referred to by
    number.

    Node ids and what is derived from them have numbers of their own, so that a replica can be deserialized
    as another node.
    """

    def __init__(self, voters: int) -> None:
        self.values: list[object] = []
        self._numbers: dict[int, int] = {}
        self._renamed: dict[tuple[Renaming, int], object] = {}
        self._batches: dict[int, Batch] = {}
        self._digests: dict[tuple[Renaming, int], int] = {}
        self.node_values: dict[object, int] = {}
        self.node_value_list: list[object] = []
        self.voters = voters
        for i in nodes(voters):
            for node_value in (i, address(i)[0], address(i)[1], directory_id(i)):
                self.node_values[node_value] = -1 - len(self.node_value_list)
                self.node_value_list.append(node_value)

    def number(self, value: object) -> int:
        """Returns the number of a shared value."""
        found = self._numbers.get(id(value))
        if found is None:
            found = self._numbers[id(value)] = len(self.values)
            self.values.append(value)
            if isinstance(value, Batch):
                self._batches.setdefault(value.digest, value)
        return found

    def serialize(self, value: object) -> bytes:
        """Returns a replica or a message as bytes."""
        out = io.BytesIO()
        pickler = _Pickler(out, 5)
        pickler.serializer = self
        pickler.dump(value)
        return out.getvalue()

    def deserialize(self, data: bytes, renaming: Renaming | None = None) -> Any:
        """Returns the value that was serialized, with renamed nodes if there is a renaming."""
        unpickler = _Unpickler(io.BytesIO(data))
        unpickler.serializer = self
        unpickler.renaming = renaming
        return unpickler.load()

    def node_value(self, number: int, renaming: Renaming | None) -> object:
        """Returns the id, host, port or directory id with this number, or that of the node renamed to."""
        at = -1 - number
        if renaming is None:
            return self.node_value_list[at]
        node, which = divmod(at, 4)
        return self.node_value_list[4 * renaming[node] + which]

    def value(self, number: int, renaming: Renaming | None) -> object:
        """Returns the shared value with this number, or its counterpart under the renaming."""
        value = self.values[number]
        if renaming is None:
            return value
        if isinstance(value, Batch):
            return self.rename_batch(renaming, value)
        if isinstance(value, RaftParams):
            environment = next(v for v in self.values if isinstance(v, RecordingEnvironment))
            return environment.params[FIRST_ID + renaming[value.me.id - FIRST_ID]]
        return value  # a set of all voters stays the same set

    def writer(self, batch: Batch) -> int:
        """Returns the id of the node that wrote a batch: the one for which its digest is right."""
        base, end = batch.base, batch.end
        return next(
            i for i in nodes(self.voters) if hash((batch.before, base, batch.epoch, end, i)) == batch.digest
        )

    def rename_batch(self, renaming: Renaming, batch: Batch) -> Batch:
        return self._batches[self.rename_digest(renaming, batch.digest)]

    def rename_digest(self, renaming: Renaming, digest: int) -> int:
        """Returns the digest of the log whose batches the renamed nodes wrote."""
        found = self._digests.get((renaming, digest))
        if found is None:
            batch = self._batches[digest] if digest else None
            if batch is None:
                return 0
            writer = FIRST_ID + renaming[self.writer(batch) - FIRST_ID]
            before = self.rename_digest(renaming, batch.before)
            new = Batch(before, batch.base, batch.epoch, batch.values, batch.controls, writer)
            found = self._digests[renaming, digest] = new.digest
            if new.digest not in self._batches:
                self.number(new)
        return found


class _Pickler(pickle.Pickler):
    serializer: StateSerializer

    def persistent_id(self, obj: Any) -> int | None:
        kind = type(obj)
        if kind in (int, str, bytes):
            return self.serializer.node_values.get(obj)
        return self.serializer.number(obj) if kind in SHARED else None


class _Unpickler(pickle.Unpickler):
    serializer: StateSerializer
    renaming: Renaming | None

    def persistent_load(self, pid: Any) -> object:
        return (
            self.serializer.value(pid, self.renaming)
            if pid >= 0
            else self.serializer.node_value(pid, self.renaming)
        )
