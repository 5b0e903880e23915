"""Replays the records of topics and partitions.

During the replay of a batch, each changed part is copied only once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from quorate.metadata.errors import MetadataError
from quorate.metadata.image.encoded import (
    FIELDS_AT,
    broker_columns,
    decoded,
    form_of,
    known_form,
    run_of,
)
from quorate.metadata.image.encoded_changes import FRAMES as CHANGE_FRAMES
from quorate.metadata.image.encoded_changes import (
    changed,
    have_same_replicas,
    leader_move,
)
from quorate.metadata.image.partition_table import EMPTY_TABLE, MAX_PARTITION_ID, Entry, PartitionTable
from quorate.metadata.image.partitions import (
    MIGRATING_DIRECTORY,
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    PartitionImage,
)
from quorate.metadata.image.topics import (
    BITMASK_LIMIT,
    NO_LEADER_BYTES,
    LeadersBuilder,
    ReplicaIndexBuilder,
    TopicImage,
    TopicsImage,
)
from quorate.protocol.uuids import uuid_text
from quorate.records.record_runs import MIN_RUN

if TYPE_CHECKING:
    from quorate.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord

_NO_RECOVERY_CHANGE: Final = -1
_place: Final = Struct(">3si16s").unpack_from
"""The frame, the partition id and the topic id of a PartitionChangeRecord's value."""


class _ChangedTopic:
    """A topic that this batch changes: its state before the batch (for a new topic, one without partitions),
    and the partitions that have changed since."""

    __slots__ = ("base", "changes", "moved")

    def __init__(self, base: TopicImage) -> None:
        self.base = base
        self.changes: dict[int, Entry] = {}
        self.moved: list[bytes] | None = None
        """The leaders before and after each encoded change that moved a leadership (see `changed`),
        as long as there are only encoded changes, one for each partition. Otherwise None: old and
        new states are compared."""

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
        """Replays the values of PartitionChangeRecords from position `first` on without decoding
        them. Returns the position of the first one that must be decoded or is another record."""
        current = b""
        for at in range(first, len(values)):
            value = values[at]
            if type(value) is not bytes:
                value = bytes(value)
            if len(value) < FIELDS_AT:
                return at
            frame, partition_id, topic_id = _place(value)
            if frame not in CHANGE_FRAMES:
                return at
            if topic_id != current:
                opened = self._open.get(topic_id)
                if opened is None:
                    opened = self._existing(topic_id)
                    if opened is None:
                        return at
                    opened.moved = []
                current, topic = topic_id, opened
                changes, entry_of = topic.changes, topic.base.partitions.entry
            before = changes.get(partition_id)
            if before is None:
                entry = entry_of(partition_id)
            else:
                entry, topic.moved = before, None
            if not isinstance(entry, bytes):
                return at
            after = changed(entry, value)
            if after is None:
                return at
            changes[partition_id], moved = after
            if moved is not None and topic.moved is not None:
                if NO_LEADER_BYTES in moved:
                    topic.moved = None  # the partitions without a leader are indexed
                else:
                    topic.moved.append(moved)
        return len(values)

    def _existing(self, topic_id: bytes) -> _ChangedTopic | None:
        """The topic to change, or None if it does not exist."""
        topic = self._open.get(topic_id)
        if topic is not None:
            topic.moved = None
        else:
            base = self._base.by_id.get(topic_id)
            if base is None or topic_id in self._removed:
                return None
            topic = self._open[topic_id] = _ChangedTopic(base)
        return topic

    def replay_partition(self, record: PartitionRecord) -> None:
        """Creates a partition, or replaces its whole state. Raises MetadataError for an invalid record."""
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
        """Changes the fields of a partition that the record has.

        Raises MetadataError for an invalid record.
        """
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
        if topic is not None:
            topic.moved = None
        else:
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
        replicas, leaders = ReplicaIndexBuilder(base.replica_index), LeadersBuilder(base)
        for topic_id, removed in self._removed.items():
            del by_id[topic_id]
            del by_name[removed.name]
            count -= len(removed.partitions)
            if base.indexed:
                replicas.drop_topic(removed)
                leaders.drop_topic(removed)
        for topic_id, topic in self._open.items():
            if not topic.changes and topic.base is by_id.get(topic_id):
                continue
            before = topic.base.partitions
            if topic.moved is not None:
                if base.indexed:
                    leaders.move_all(topic.moved)
                image = TopicImage(topic.base.name, topic_id, before.replaced(topic.changes))
                by_id[topic_id] = by_name[image.name] = image
                continue
            others = _index_encoded(topic, before, replicas, leaders) if base.indexed else ()
            for partition_id, new in others:
                old = before.get(partition_id)
                if old is None:
                    for broker_id in new.replicas:
                        replicas.of(broker_id).add(topic_id, partition_id)
                    leaders.add(new.leader, topic_id, partition_id)
                    continue
                if old.replicas != new.replicas:
                    for broker_id in old.replicas:
                        if broker_id not in new.replicas:
                            replicas.of(broker_id).discard(topic_id, partition_id)
                    for broker_id in new.replicas:
                        if broker_id not in old.replicas:
                            replicas.of(broker_id).add(topic_id, partition_id)
                if old.leader != new.leader:
                    leaders.discard(old.leader, topic_id, partition_id)
                    leaders.add(new.leader, topic_id, partition_id)
            after = before.updated(topic.changes)
            count += len(after) - len(before)
            image = TopicImage(topic.base.name, topic_id, after)
            by_id[topic_id] = image
            by_name[image.name] = image
        return TopicsImage(
            by_id.finish(),
            by_name.finish(),
            count,
            replicas.finish(),
            *leaders.finish(),
            indexed=base.indexed,
        )


def _index_encoded(
    topic: _ChangedTopic, before: PartitionTable, replicas: ReplicaIndexBuilder, leaders: LeadersBuilder
) -> list[tuple[int, PartitionImage]]:
    """Indexes the new partitions that are encoded, with one bit mask for each broker, and the
    encoded changes of leaders. Returns all other changes in decoded form."""
    others: list[tuple[int, PartitionImage]] = []
    masks: defaultdict[int, int] = defaultdict(int)
    topic_id = topic.base.id
    first = min(topic.changes, default=0)
    empty = first >= before.end_id
    columns = None
    if empty and len(topic.changes) >= MIN_RUN and max(topic.changes) - first < BITMASK_LIMIT:
        columns = broker_columns(list(topic.changes.values()))
    if columns is not None:
        bits = [1 << partition_id - first for partition_id in topic.changes]
        for column in columns.replicas:
            for broker_id, bit in zip(column, bits, strict=True):
                masks[broker_id] |= bit
        leaders.add_all(columns.leaders, topic_id, topic.changes)
    for partition_id, entry in topic.changes.items() if columns is None else ():
        old = None if empty else before.entry(partition_id)
        if isinstance(entry, bytes) and isinstance(old, bytes) and have_same_replicas(old, entry):
            moved = leader_move(old, entry)
            if moved is not None:
                leaders.move(moved, topic_id, partition_id)
            continue
        if not isinstance(entry, bytes) or partition_id - first >= BITMASK_LIMIT or old is not None:
            others.append((partition_id, decoded(entry)))
            continue
        _, _, *brokers, leader = known_form(entry).head.unpack_from(entry, 3)
        leaders.add(leader, topic_id, partition_id)
        if len(topic.changes) == 1:  # most new topics: masks would take longer
            for broker_id in brokers:
                replicas.of(broker_id).add(topic_id, partition_id)
            break
        bit = 1 << partition_id - first
        for broker_id in brokers:
            masks[broker_id] |= bit
    for broker_id, mask in masks.items():
        replicas.of(broker_id).add_mask(topic_id, mask << first)
    return others


def _directories(directories: tuple[bytes, ...], replicas: int) -> tuple[bytes, ...]:
    """The directory ids of the replicas. If all of them are MIGRATING, or none is given, the result is
    MIGRATING once for each replica."""
    for directory in directories:
        if directory != MIGRATING_DIRECTORY:
            return directories
    return (MIGRATING_DIRECTORY,) * replicas
