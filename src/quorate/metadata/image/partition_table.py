"""The persistent table of a topic's partitions. As many partitions as possible are stored in encoded
form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import eq

from quorate.metadata.image.encoded import decoded
from quorate.metadata.image.encoded_changes import may_have_replica, replica_count
from quorate.metadata.image.partitions import PartitionImage
from quorate.records.record_runs import MIN_RUN

_CHUNK_BITS = 6
_CHUNK = 1 << _CHUNK_BITS
MAX_PARTITION_ID = (1 << 24) - 1
"""The largest partition id. With a larger one, a single record of a few bytes could allocate a spine of
more than 2 MiB."""

Entry = PartitionImage | bytes
"""A partition, or the value of its record (see `encoded`)."""

_Chunk = tuple[Entry | None, ...]


class PartitionTable:
    """An immutable table from partition id to PartitionImage, in chunks of 64 partitions. A change
    copies only one chunk and the spine.

    An encoded partition is decoded on access, which takes two to three microseconds. Iteration is in the
    order of ids. The ids run from 0 without a gap, except while a log with gaps is replayed.
    """

    __slots__ = ("_chunks", "_count")

    def __init__(self, chunks: tuple[_Chunk, ...] = (), count: int = 0) -> None:
        self._chunks = chunks
        self._count = count

    def get(self, partition_id: int) -> PartitionImage | None:
        """The partition, or None if there is none with this id."""
        entry = self.entry(partition_id)
        return None if entry is None else decoded(entry)

    def entry(self, partition_id: int) -> Entry | None:
        """The partition in its stored form, or None if there is none with this id."""
        if partition_id < 0:
            return None
        number = partition_id >> _CHUNK_BITS
        if number >= len(self._chunks):
            return None
        chunk = self._chunks[number]
        position = partition_id & (_CHUNK - 1)
        return chunk[position] if position < len(chunk) else None

    def entries_of(self, partition_ids: Iterable[int]) -> list[tuple[int, Entry]]:
        """Pairs of partition id and partition in its stored form, of those ids that there are."""
        chunks, found = self._chunks, []
        for partition_id in partition_ids:
            try:
                entry = chunks[partition_id >> _CHUNK_BITS][partition_id & _CHUNK - 1]
            except IndexError:
                continue
            if entry is not None:
                found.append((partition_id, entry))
        return found

    def __getitem__(self, partition_id: int) -> PartitionImage:
        found = self.get(partition_id)
        if found is None:
            raise IndexError(partition_id)
        return found

    def __contains__(self, partition_id: object) -> bool:
        return isinstance(partition_id, int) and self.entry(partition_id) is not None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[PartitionImage]:
        for chunk in self._chunks:
            for partition in chunk:
                if partition is not None:
                    yield decoded(partition)

    def items(self) -> Iterator[tuple[int, PartitionImage]]:
        """Pairs of partition id and partition, in the order of ids."""
        return ((partition_id, decoded(entry)) for partition_id, entry in self.entries())

    def items_of(self, broker_id: int) -> list[tuple[int, PartitionImage]]:
        """The pairs of `items` whose partition has a replica on the broker.

        Of the others, few are decoded.
        """
        wanted = broker_id.to_bytes(4, "big", signed=True)
        found = []
        for number, chunk in enumerate(self._chunks):
            for position, entry in enumerate(chunk, number << _CHUNK_BITS):
                if entry is not None and _may_be_on(entry, wanted):
                    partition = decoded(entry)
                    if broker_id in partition.replicas:
                        found.append((position, partition))
        return found

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """Pairs of partition id and partition in its stored form, in the order of ids."""
        for number, chunk in enumerate(self._chunks):
            for position, partition in enumerate(chunk, number << _CHUNK_BITS):
                if partition is not None:
                    yield position, partition

    def ids(self) -> Iterator[int]:
        """The partition ids in ascending order."""
        return (pair[0] for pair in self.entries())

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, PartitionTable) or self._count != other._count:
            return False
        return self._chunks == other._chunks or next(self.changes_since(other), None) is None

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PartitionTable({dict(self.items())!r})"

    def updated(self, changes: Mapping[int, Entry]) -> PartitionTable:
        """A table with these partitions added or replaced. Their ids must be in 0..MAX_PARTITION_ID."""
        if not changes:
            return self
        if len(changes) == 1 and not self._chunks and 0 in changes:  # most new topics
            return PartitionTable(((changes[0],),), 1)
        spine: list[_Chunk | list[Entry | None]] = list(self._chunks)
        count = self._count
        first = next(iter(changes)) if len(changes) >= MIN_RUN else -1
        if first == self.end_id == count and all(map(eq, changes, range(first, first + len(changes)))):
            return self._extended(list(changes.values()))
        for partition_id, partition in changes.items():
            number = partition_id >> _CHUNK_BITS
            position = partition_id & (_CHUNK - 1)
            if number >= len(spine):
                spine.extend([()] * (number + 1 - len(spine)))
            chunk = spine[number]
            if isinstance(chunk, tuple):
                chunk = list(chunk)
                spine[number] = chunk
            if position >= len(chunk):
                chunk.extend([None] * (position + 1 - len(chunk)))
            if chunk[position] is None:
                count += 1
            chunk[position] = partition
        return PartitionTable(tuple([tuple(chunk) for chunk in spine]), count)

    def replaced(self, changes: Mapping[int, Entry]) -> PartitionTable:
        """A table with these partitions replaced. All of them must exist."""
        if len(self._chunks) > 1:
            return self.updated(changes)
        chunk = list(self._chunks[0])
        for partition_id, partition in changes.items():
            chunk[partition_id] = partition
        return PartitionTable((tuple(chunk),), self._count)

    @property
    def replication_factor(self) -> int:
        """The number of replicas of partition 0. Raises IndexError if there is none."""
        entry = self.entry(0)
        if entry is None:
            raise IndexError(0)
        return replica_count(entry) if isinstance(entry, bytes) else len(entry.replicas)

    @property
    def end_id(self) -> int:
        """The id after the last one. It is the number of partitions if there are no gaps."""
        chunks = self._chunks
        return ((len(chunks) - 1) << _CHUNK_BITS) + len(chunks[-1]) if chunks else 0

    def _extended(self, added: Sequence[Entry | None]) -> PartitionTable:
        """A table without gaps, with these partitions after its last one."""
        whole, rest = divmod(self._count, _CHUNK)
        if rest:
            added = [*self._chunks[whole], *added]
        chunks = [tuple(added[at : at + _CHUNK]) for at in range(0, len(added), _CHUNK)]
        return PartitionTable((*self._chunks[:whole], *chunks), self._count + len(added) - rest)

    def changes_since(
        self, older: PartitionTable
    ) -> Iterator[tuple[int, PartitionImage | None, PartitionImage | None]]:
        """(id, old, new) of each partition that differs from an older table. Chunks that both tables
        share are skipped."""
        for partition_id, before, after in self._changed_entries(older):
            was = None if before is None else decoded(before)
            now = None if after is None else decoded(after)
            if was != now:
                yield partition_id, was, now

    def changes_of(
        self, older: PartitionTable, broker_id: int
    ) -> Iterator[tuple[int, PartitionImage | None, PartitionImage | None]]:
        """Yields the changes of partitions that have a replica on the broker, before or after the
        change. Of the others, few are decoded."""
        wanted = broker_id.to_bytes(4, "big", signed=True)
        for partition_id, before, after in self._changed_entries(older):
            if not (_may_be_on(before, wanted) or _may_be_on(after, wanted)):
                continue
            was = None if before is None else decoded(before)
            now = None if after is None else decoded(after)
            if was != now and any(p is not None and broker_id in p.replicas for p in (was, now)):
                yield partition_id, was, now

    def _changed_entries(self, older: PartitionTable) -> Iterator[tuple[int, Entry | None, Entry | None]]:
        """(id, old, new) of the partitions whose stored form differs from an older table."""
        ours, theirs = self._chunks, older._chunks
        for number in range(max(len(ours), len(theirs))):
            new = ours[number] if number < len(ours) else ()
            old = theirs[number] if number < len(theirs) else ()
            if new is old:
                continue
            base = number << _CHUNK_BITS
            for position in range(max(len(new), len(old))):
                after = new[position] if position < len(new) else None
                before = old[position] if position < len(old) else None
                if after is before or after == before:
                    continue
                yield base + position, before, after


def _may_be_on(entry: Entry | None, broker: bytes) -> bool:
    """Whether a partition may have a replica on a broker, given by the four bytes of its id."""
    if entry is None:
        return False
    return not isinstance(entry, bytes) or may_have_replica(entry, broker)


EMPTY_TABLE = PartitionTable()
