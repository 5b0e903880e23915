"""Replays the records of topics and partitions.

During the replay of a batch, each changed part is copied only once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from immutables import Map

from quorate.metadata.errors import MetadataError
from quorate.metadata.image.encoded import FIELDS_AT, broker_columns, decoded, form_of, known_form, run_of
from quorate.metadata.image.encoded_changes import FRAMES as CHANGE_FRAMES
from quorate.metadata.image.encoded_changes import (
    changed,
    have_same_replicas,
    leader_move,
    place_of,
)
from quorate.metadata.image.partition_table import EMPTY_TABLE, MAX_PARTITION_ID, Entry, PartitionTable
from quorate.metadata.image.partitions import (
    MIGRATING_DIRECTORY,
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    PartitionImage,
)
from quorate.metadata.image.topics import BrokerIndex, TopicImage, TopicsImage
from quorate.protocol.uuids import uuid_text
from quorate.records.record_runs import MIN_RUN

if TYPE_CHECKING:
    from quorate.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord

_NO_RECOVERY_CHANGE: Final = -1


class _ChangedTopic:
    """A topic that this batch changes: its state before the batch (for a new topic, one without partitions),
    and the partitions that have changed since."""

    __slots__ = ("base", "changed_once", "changes")

    def __init__(self, base: TopicImage) -> None:
        self.base = base
        self.changes: dict[int, Entry] = {}
        self.changed_once: dict[int, tuple[bytes, bytes | None]] = {}
        """Partition id -> the new state of an encoded partition, and its old state if the leader may have
        changed. An entry counts only as long as `changes` has the same new state: a second change of the
        partition does not update it."""

    def partition(self, partition_id: int) -> PartitionImage | None:
        """The current state of a partition, or None if it does not exist."""
        entry = self.changes.get(partition_id) or self.base.partitions.entry(partition_id)
        return None if entry is None else decoded(entry)


class TopicsBuilder:
    """Replays records onto a topics image. It must not be used after a failed replay."""

    def __init__(self, base: TopicsImage) -> None:
        self._base = base
        self._open: dict[bytes, _ChangedTopic] = {}
        self._new_names: dict[str, bytes] = {}
        self._removed: dict[bytes, TopicImage] = {}
        self._removed_names: set[str] = set()

    @property
    def touched(self) -> Iterable[bytes]:
        """The ids of the topics that may differ from the base."""
        return self._open.keys() | self._removed.keys()

    def replay_topic(self, record: TopicRecord) -> None:
        """Replays a TopicRecord: a new topic."""
        name, topic_id = record.name, record.topic_id
        if self._id_of(name) is not None:
            raise MetadataError(f"topic {name} exists already")
        if topic_id in self._open or (topic_id in self._base.by_id and topic_id not in self._removed):
            raise MetadataError(f"topic id {uuid_text(topic_id)} exists already")
        self._open[topic_id] = _ChangedTopic(TopicImage(name, topic_id, EMPTY_TABLE))
        self._new_names[name] = topic_id

    def remove(self, topic_id: bytes) -> TopicImage:
        """Removes a topic. Returns its state before this batch, of which the caller needs only the name."""
        opened = self._open.pop(topic_id, None)
        before = self._base.by_id.get(topic_id) if topic_id not in self._removed else None
        if opened is None and before is None:
            raise MetadataError(f"there is no topic with id {uuid_text(topic_id)} to remove")
        if before is not None:
            self._removed[topic_id] = before
            self._removed_names.add(before.name)
            return before
        assert opened is not None
        self._new_names.pop(opened.base.name, None)
        return opened.base

    def replay_encoded_partition(self, value: bytes) -> bool:
        """Stores the value of a PartitionRecord without decoding it. Returns False and changes nothing
        if the value must be decoded."""
        form = form_of(value)
        if form is None:
            return False
        partition_id, topic_id, *_ = form.head.unpack_from(value, 3)
        if not 0 <= partition_id <= MAX_PARTITION_ID:
            return False
        topic = self._existing(topic_id)
        if topic is None:
            return False
        topic.changes[partition_id] = value
        return True

    def replay_encoded_run(self, values: Sequence[bytes | memoryview]) -> bool:
        """Does the same for values of one length. Returns False and changes nothing if any of them must
        be decoded."""
        run = run_of(values)
        if run is None or min(run.partition_ids) < 0 or max(run.partition_ids) > MAX_PARTITION_ID:
            return False
        topics = {}
        for topic_id in set(run.topic_ids):
            topic = self._existing(topic_id)
            if topic is None:
                return False
            topics[topic_id] = topic
        if len(topics) == 1:
            topics[run.topic_ids[0]].changes.update(zip(run.partition_ids, run.values, strict=True))
        else:
            for partition_id, topic_id, value in zip(*run, strict=True):
                topics[topic_id].changes[partition_id] = value
        return True

    def replay_encoded_changes(self, values: Sequence[bytes | memoryview], first: int) -> int:
        """Replays the values of PartitionChangeRecords from position `first` on without decoding them. Returns
        the position of the first one that must be decoded or is another record."""
        for at in range(first, len(values)):
            value = bytes(values[at])
            if value[:3] not in CHANGE_FRAMES or len(value) < FIELDS_AT:
                return at
            partition_id, topic_id = place_of(value)
            topic = self._open.get(topic_id) or self._existing(topic_id)
            if topic is None:
                return at
            changes = topic.changes
            entry = changes.get(partition_id)
            again = entry is not None
            if entry is None:
                entry = topic.base.partitions.entry(partition_id)
            if not isinstance(entry, bytes):
                return at
            after = changed(entry, value)
            if after is None:
                return at
            changes[partition_id] = after[0]
            if not again:
                topic.changed_once[partition_id] = after[0], entry if after[1] else None
        return len(values)

    def _existing(self, topic_id: bytes) -> _ChangedTopic | None:
        """The topic to change, or None if it does not exist."""
        topic = self._open.get(topic_id)
        if topic is None:
            base = self._base.by_id.get(topic_id)
            if base is None or topic_id in self._removed:
                return None
            topic = self._open[topic_id] = _ChangedTopic(base)
        return topic

    def replay_partition(self, record: PartitionRecord) -> None:
        """Replays a PartitionRecord."""
        partition_id = record.partition_id
        if not 0 <= partition_id <= MAX_PARTITION_ID:
            raise MetadataError(f"partition id {partition_id} is outside of 0..{MAX_PARTITION_ID}")
        topic = self._topic(record.topic_id)
        replicas = tuple(record.replicas)
        given = record.directories
        if given and len(given) != len(replicas):
            raise MetadataError(f"{len(given)} directories for {len(replicas)} replicas")
        if record.leader_recovery_state not in (RECOVERED, RECOVERING):
            raise MetadataError(f"leader recovery state {record.leader_recovery_state} is unknown")
        isr = tuple(record.isr)
        topic.changes[partition_id] = PartitionImage(
            replicas,
            _directories(tuple(given or ()), len(replicas)),
            replicas if isr == replicas else isr,
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            record.leader,
            record.leader_recovery_state,
            record.leader_epoch,
            record.partition_epoch,
        )

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """Replays a PartitionChangeRecord."""
        topic = self._topic(record.topic_id)
        old = topic.partition(record.partition_id)
        if old is None:
            raise MetadataError(f"topic {topic.base.name} has no partition {record.partition_id}")
        replicas = old.replicas if record.replicas is None else tuple(record.replicas)
        directories = old.directories
        if record.directories is not None:
            directories = tuple(record.directories)
            if record.replicas is not None and directories and len(directories) != len(replicas):
                raise MetadataError(f"{len(directories)} directories for {len(replicas)} replicas")
        directories = _directories(directories, len(replicas))
        if len(directories) != len(replicas):
            raise MetadataError(f"{len(directories)} directories for {len(replicas)} replicas")
        recovery = record.leader_recovery_state
        if recovery == _NO_RECOVERY_CHANGE:
            recovery = old.leader_recovery_state
        elif recovery not in (RECOVERED, RECOVERING):
            raise MetadataError(f"leader recovery state {recovery} is unknown")
        moved = record.leader != NO_LEADER_CHANGE
        topic.changes[record.partition_id] = PartitionImage(
            replicas,
            directories,
            old.isr if record.isr is None else tuple(record.isr),
            old.removing_replicas if record.removing_replicas is None else tuple(record.removing_replicas),
            old.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
            old.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
            old.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
            record.leader if moved else old.leader,
            recovery,
            old.leader_epoch + 1 if moved else old.leader_epoch,
            old.partition_epoch + 1,
        )

    def clear_elr(self, topic_name: str) -> None:
        """Clears the ELR and the last known ELR of one topic, or of all topics if the name is empty.
        Only the partitions that had one get a new partition epoch."""
        if topic_name:
            topic_id = self._id_of(topic_name)
            if topic_id is None:
                raise MetadataError(f"there is no topic {topic_name} whose ELR could be cleared")
            self._clear_elr(topic_id)
            return
        everything = [topic_id for topic_id in self._base.by_id if topic_id not in self._removed]
        everything += [
            topic_id
            for topic_id in self._open
            if topic_id not in self._base.by_id or topic_id in self._removed
        ]
        for topic_id in everything:
            self._clear_elr(topic_id)

    def _clear_elr(self, topic_id: bytes) -> None:
        """Clears the ELR of one topic."""
        opened = self._open.get(topic_id)
        table = opened.base.partitions if opened is not None else self._base.by_id[topic_id].partitions
        changed = dict(opened.changes) if opened is not None else {}
        for partition_id, partition in [
            *changed.items(),
            *((i, p) for i, p in table.entries() if i not in changed),
        ]:
            if not isinstance(partition, bytes) and (partition.elr or partition.last_known_elr):
                self._topic(topic_id).changes[partition_id] = partition._replace(
                    elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                )

    def _id_of(self, name: str) -> bytes | None:
        """The id of the topic with this name, or None."""
        new = self._new_names.get(name)
        if new is not None:
            return new
        topic = self._base.by_name.get(name)
        return None if topic is None or topic.id in self._removed else topic.id

    def _topic(self, topic_id: bytes) -> _ChangedTopic:
        """The topic with this id, opened for changes."""
        topic = self._open.get(topic_id)
        if topic is None:
            base = self._base.by_id.get(topic_id)
            if base is None or topic_id in self._removed:
                raise MetadataError(f"there is no topic with id {uuid_text(topic_id)}")
            topic = self._open[topic_id] = _ChangedTopic(base)
        return topic

    def finish(self) -> TopicsImage:
        """The image after all replayed records."""
        base = self._base
        if not self._open and not self._removed:
            return base
        by_id = base.by_id.mutate()
        by_name = base.by_name.mutate()
        count = base.partition_count
        replicas, leaders = _BrokerIndexBuilder(base.replica_index), _BrokerIndexBuilder(base.leader_index)
        for topic_id, removed in self._removed.items():
            del by_id[topic_id]
            del by_name[removed.name]
            count -= len(removed.partitions)
            if len(removed.partitions) > len(base.replica_index):
                for edit, index in ((replicas, base.replica_index), (leaders, base.leader_index)):
                    for broker_id, topics in index.items():
                        if topic_id in topics:
                            edit.drop_topic(broker_id, topic_id)
                continue
            for partition in removed.partitions:
                for broker_id in partition.replicas:
                    replicas.drop_topic(broker_id, topic_id)
                leaders.drop_topic(partition.leader, topic_id)
        for topic_id, topic in self._open.items():
            if not topic.changes and topic.base is by_id.get(topic_id):
                continue
            before = topic.base.partitions
            for partition_id, new in _index_encoded(topic, before, replicas, leaders):
                old = before.get(partition_id)
                if old is None:
                    for broker_id in new.replicas:
                        replicas.add(broker_id, topic_id, partition_id)
                    leaders.add(new.leader, topic_id, partition_id)
                    continue
                if old.replicas != new.replicas:
                    for broker_id in old.replicas:
                        if broker_id not in new.replicas:
                            replicas.discard(broker_id, topic_id, partition_id)
                    for broker_id in new.replicas:
                        if broker_id not in old.replicas:
                            replicas.add(broker_id, topic_id, partition_id)
                if old.leader != new.leader:
                    leaders.discard(old.leader, topic_id, partition_id)
                    leaders.add(new.leader, topic_id, partition_id)
            after = before.updated(topic.changes)
            count += len(after) - len(before)
            image = TopicImage(topic.base.name, topic_id, after)
            by_id[topic_id] = image
            by_name[image.name] = image
        return TopicsImage(by_id.finish(), by_name.finish(), count, replicas.finish(), leaders.finish())


def _index_encoded(
    topic: _ChangedTopic, before: PartitionTable, replicas: _BrokerIndexBuilder, leaders: _BrokerIndexBuilder
) -> list[tuple[int, PartitionImage]]:
    """Indexes the new partitions that are encoded, with one bit mask for each broker, and the encoded changes of
    leaders. Returns all other changes in decoded form."""
    others: list[tuple[int, PartitionImage]] = []
    replica_masks: defaultdict[int, int] = defaultdict(int)
    leader_masks: defaultdict[int, int] = defaultdict(int)
    first = min(topic.changes, default=0)
    empty = first >= before.end_id
    columns = None
    if empty and len(topic.changes) >= MIN_RUN and max(topic.changes) - first < _BITMASK_LIMIT:
        columns = broker_columns(list(topic.changes.values()))
    if columns is not None:
        bits = [1 << partition_id - first for partition_id in topic.changes]
        for column in columns.replicas:
            for broker_id, bit in zip(column, bits, strict=True):
                replica_masks[broker_id] |= bit
        for broker_id, bit in zip(columns.leaders, bits, strict=True):
            leader_masks[broker_id] |= bit
    topic_id = topic.base.id
    for partition_id, entry in topic.changes.items() if columns is None else ():
        once = topic.changed_once.get(partition_id)
        old: Entry | None
        if once is not None and once[0] is entry:
            old = once[1]
            if old is None:
                continue
        else:
            old = None if empty else before.entry(partition_id)
        if isinstance(entry, bytes) and isinstance(old, bytes) and have_same_replicas(old, entry):
            moved = leader_move(old, entry)
            if moved is not None:
                leaders.discard(moved[0], topic_id, partition_id)
                leaders.add(moved[1], topic_id, partition_id)
            continue
        if not isinstance(entry, bytes) or partition_id - first >= _BITMASK_LIMIT or old is not None:
            others.append((partition_id, decoded(entry)))
            continue
        _, _, *brokers, leader = known_form(entry).head.unpack_from(entry, 3)
        if len(topic.changes) == 1:  # most new topics: masks would take longer
            for broker_id in brokers:
                replicas.add(broker_id, topic_id, partition_id)
            leaders.add(leader, topic_id, partition_id)
            break
        bit = 1 << partition_id - first
        for broker_id in brokers:
            replica_masks[broker_id] |= bit
        leader_masks[leader] |= bit
    for edit, masks in ((replicas, replica_masks), (leaders, leader_masks)):
        for broker_id, mask in masks.items():
            edit.add_mask(broker_id, topic_id, mask << first)
    return others


def _directories(directories: tuple[bytes, ...], replicas: int) -> tuple[bytes, ...]:
    """The directory ids of the replicas. If all of them are MIGRATING, or none is given, the result is
    MIGRATING once for each replica."""
    for directory in directories:
        if directory != MIGRATING_DIRECTORY:
            return directories
    return (MIGRATING_DIRECTORY,) * replicas


_BITMASK_LIMIT = 2048
"""Changes of partitions are collected as bits of an int if they are in a range of this length. Setting a bit
copies the int, which is at most 256 bytes long here. Other ids are collected in a set."""


class _BrokerIndexBuilder:
    """Collects the changes of a broker index (broker id to topic id to bit mask of partitions), and applies
    the changes of each broker and topic at once as two bit masks."""

    __slots__ = ("_added", "_base", "_dropped", "_large_added", "_large_removed", "_removed")

    def __init__(self, base: BrokerIndex) -> None:
        self._base = base
        self._dropped: set[tuple[int, bytes]] = set()
        # Ints in dicts rather than sets: the garbage collector does not track them.
        self._added: dict[int, dict[bytes, int]] = {}
        self._removed: dict[int, dict[bytes, int]] = {}
        self._large_added: dict[tuple[int, bytes], set[int]] = {}
        self._large_removed: dict[tuple[int, bytes], set[int]] = {}

    def add(self, broker_id: int, topic_id: bytes, partition_id: int) -> None:
        """Adds a partition to a broker."""
        topics = self._added.get(broker_id)
        if topics is None:
            topics = self._added[broker_id] = {}
        if partition_id < _BITMASK_LIMIT:
            topics[topic_id] = topics.get(topic_id, 0) | 1 << partition_id
        else:
            topics.setdefault(topic_id, 0)
            self._large_added.setdefault((broker_id, topic_id), set()).add(partition_id)

    def add_mask(self, broker_id: int, topic_id: bytes, mask: int) -> None:
        """Adds the partitions of a bit mask to a broker."""
        topics = self._added.setdefault(broker_id, {})
        topics[topic_id] = topics.get(topic_id, 0) | mask

    def discard(self, broker_id: int, topic_id: bytes, partition_id: int) -> None:
        """Removes a partition from a broker."""
        topics = self._removed.get(broker_id)
        if topics is None:
            topics = self._removed[broker_id] = {}
        if partition_id < _BITMASK_LIMIT:
            topics[topic_id] = topics.get(topic_id, 0) | 1 << partition_id
        else:
            topics.setdefault(topic_id, 0)
            self._large_removed.setdefault((broker_id, topic_id), set()).add(partition_id)

    def drop_topic(self, broker_id: int, topic_id: bytes) -> None:
        """Removes all partitions of a topic from a broker."""
        self._dropped.add((broker_id, topic_id))
        self._removed.setdefault(broker_id, {}).setdefault(topic_id, 0)

    def finish(self) -> BrokerIndex:
        """The index after all changes."""
        if not self._added and not self._removed:
            return self._base
        index = self._base.mutate()
        empty: Map[bytes, int] = Map()
        nothing: dict[bytes, int] = {}
        for broker_id in self._added.keys() | self._removed.keys():
            mutation = index.get(broker_id, empty).mutate()
            for topic_id, mask in self._removed.get(broker_id, nothing).items():
                key = (broker_id, topic_id)
                if key in self._large_removed:
                    mask |= _mask(self._large_removed[key])
                bits = 0 if key in self._dropped else mutation.get(topic_id, 0) & ~mask
                if bits:
                    mutation[topic_id] = bits
                elif topic_id in mutation:
                    del mutation[topic_id]
            for topic_id, mask in self._added.get(broker_id, nothing).items():
                if self._large_added and (broker_id, topic_id) in self._large_added:
                    mask |= _mask(self._large_added[broker_id, topic_id])
                mutation[topic_id] = mutation.get(topic_id, 0) | mask
            if len(mutation):
                index[broker_id] = mutation.finish()
            elif broker_id in index:
                del index[broker_id]
        return index.finish()


def _mask(positions: set[int]) -> int:
    """The bit mask of a set of partition ids."""
    room = bytearray(max(positions) // 8 + 1)
    for position in positions:
        room[position >> 3] |= 1 << (position & 7)
    return int.from_bytes(room, "little")
