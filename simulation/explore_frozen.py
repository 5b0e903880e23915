"""A replica as bytes, and back, as itself or as another node."""

from __future__ import annotations

import io
import pickle
from typing import Any

from quorate.raft.types import RaftParams
from quorate.raft.voters import VoterSet
from simulation.explore_replica import FIRST_ID, Recorder, Scene, nodes
from simulation.explore_values import Middle
from simulation.trail import Batch
from simulation.world import address, directory

SHARED = (Batch, VoterSet, RaftParams, Scene, Recorder, Middle, frozenset)
Renaming = tuple[int, ...]  # by place: who was n-th is then at this place


class Shared:
    """Values that never change, and the scene: frozen replicas name them by number. Node ids, and what is made of them, stand
    apart, so that a replica may be thawed as another node."""

    def __init__(self, voters: int) -> None:
        self.values: list[object] = []
        self._numbers: dict[int, int] = {}
        self._renamed: dict[tuple[Renaming, int], object] = {}
        self._batches: dict[int, Batch] = {}
        self._digests: dict[tuple[Renaming, int], int] = {}
        self.atoms: dict[object, int] = {}
        self.atom_list: list[object] = []
        self.voters = voters
        for i in nodes(voters):
            for atom in (i, address(i)[0], address(i)[1], directory(i)):
                self.atoms[atom] = -1 - len(self.atom_list)
                self.atom_list.append(atom)

    def number(self, value: object) -> int:
        found = self._numbers.get(id(value))
        if found is None:
            found = self._numbers[id(value)] = len(self.values)
            self.values.append(value)
            if isinstance(value, Batch):
                self._batches.setdefault(value.digest, value)
        return found

    def freeze(self, value: object) -> bytes:
        out = io.BytesIO()
        pickler = _Pickler(out, 5)
        pickler.shared = self
        pickler.dump(value)
        return out.getvalue()

    def thaw(self, data: bytes, renaming: Renaming | None = None) -> Any:
        unpickler = _Unpickler(io.BytesIO(data))
        unpickler.shared = self
        unpickler.renaming = renaming
        return unpickler.load()

    def atom(self, number: int, renaming: Renaming | None) -> object:
        at = -1 - number
        if renaming is None:
            return self.atom_list[at]
        node, which = divmod(at, 4)
        return self.atom_list[4 * renaming[node] + which]

    def value(self, number: int, renaming: Renaming | None) -> object:
        value = self.values[number]
        if renaming is None:
            return value
        if isinstance(value, Batch):
            return self.rename_batch(renaming, value)
        if isinstance(value, RaftParams):
            scene = next(v for v in self.values if isinstance(v, Scene))
            return scene.params[FIRST_ID + renaming[value.me.id - FIRST_ID]]
        return value  # a set of all voters is the same set

    def writer(self, batch: Batch) -> int:
        """Which node wrote it: the digest covers that."""
        base, end = batch.base, batch.end
        return next(i for i in nodes(self.voters) if hash((batch.before, base, batch.epoch, end, i)) == batch.digest)

    def rename_batch(self, renaming: Renaming, batch: Batch) -> Batch:
        return self._batches[self.rename_digest(renaming, batch.digest)]

    def rename_digest(self, renaming: Renaming, digest: int) -> int:
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
    shared: Shared

    def persistent_id(self, obj: Any) -> int | None:
        kind = type(obj)
        if kind in (int, str, bytes):
            return self.shared.atoms.get(obj)
        return self.shared.number(obj) if kind in SHARED else None


class _Unpickler(pickle.Unpickler):
    shared: Shared
    renaming: Renaming | None

    def persistent_load(self, pid: Any) -> object:
        return self.shared.value(pid, self.renaming) if pid >= 0 else self.shared.atom(pid, self.renaming)
