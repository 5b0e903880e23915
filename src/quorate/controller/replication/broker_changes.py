"""Changes of ISR, ELR and leaders when a broker comes or goes, in time proportional to its replicas.

Each function appends its records to a list, in Kafka's order. Fencing writes the partition changes
before the registration change. Unfencing writes the registration change first, because it makes the
broker eligible as a leader.

Changes of very many partitions are made in portions, one in each turn of the event loop. A `ChangeBatch`
limits one portion. The function is called again with a newer view and the continuation of the portion
before, until nothing remains. All portions together visit the partitions that existed in the first one,
each in its current state. No partition needs a second visit: as long as a broker is leaving or a
directory is failing, this controller assigns nothing to it (`View.is_active`,
`View.has_online_directory`). A broker that is being unfenced is eligible as a leader from the first
portion on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from quorate.controller.context import View
from quorate.controller.replication.encoded_records import partition_change
from quorate.controller.replication.partition_change import Election, PartitionChangeBuilder, without
from quorate.metadata.features import record_version
from quorate.metadata.framing import encode_record, frame
from quorate.metadata.image.cluster import sorted_directories
from quorate.metadata.image.encoded import FIELDS_AT, decoded, divide_by_leader
from quorate.metadata.image.encoded_changes import state_of
from quorate.metadata.image.partition_table import Entry
from quorate.metadata.image.partitions import NO_LEADER, RECOVERING, PartitionImage
from quorate.metadata.image.topics import PAUSE_TOPICS, TopicImage, bits_of, few_bits_of
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)
from quorate.protocol.schema import Data

logger = logging.getLogger(__name__)

FENCE = 1
UNFENCE = -1
NOBODY = -1

CHANGES_PER_TURN = 500
"""The partitions that are changed in one turn of the event loop, which takes about 5 ms from the decision
to the log."""
VISITS_PER_TURN = 4_000
"""The partitions that are visited in one turn, changed or not, which takes about 3 ms."""
_MAX_OUTCOMES = 50_000
"""The outcomes that are kept for one change: about 10 MB."""
_DECISION_VISITS = 60
"""A new outcome counts as this many visits: it takes about 50 microseconds."""

_GROUP = 64
"""The partitions of a topic that are looked up at once."""

_PAUSE_VISITS = PAUSE_TOPICS // 2
"""Topics that are skipped count as this many visits."""
_NO_IDS: Iterator[int] = iter(())

Topics = Iterator[tuple[bytes, int]] | Iterator[tuple[bytes, Sequence[int]]]
"""Topic ids, each with the bit set or the ids of partitions."""
Located = tuple[TopicImage, int, PartitionImage]
"""A topic, a partition id, and the partition."""
Stored = tuple[TopicImage, int, Entry]
"""A topic, a partition id, and the partition in its stored form."""
_Outcome = tuple[bytes, bool] | None
"""The fields of a PartitionChangeRecord and whether it is an unclean election, or None if nothing changes."""
_UNKNOWN: _Outcome = (b"", False)
_Outcomes = dict[bytes, _Outcome]
"""The outcomes by the state of an encoded partition."""


class Cursor:
    """The partitions that a change has still to visit, and its outcomes so far.

    Partitions with the same replicas, ISR and leader have the same outcome, whatever their epochs are. Of a
    million partitions, only thousands differ, so most outcomes are known.
    """

    __slots__ = (
        "_first",
        "_group",
        "_ids",
        "_later",
        "_later_ids",
        "_later_topics",
        "_outcomes",
        "_topic_id",
        "_topics",
        "_view",
    )

    def __init__(self, topics: Topics, first: Iterable[int] = ()) -> None:
        """The partitions of `topics`. Those that the brokers `first` lead are visited before the others."""
        self._topics = topics
        self._first = {broker_id.to_bytes(4, "big", signed=True) for broker_id in first}
        self._topic_id = b""
        self._group: tuple[int, ...] = ()
        self._ids = _NO_IDS
        """The remaining partitions of this topic, after those of the group."""
        self._later_ids: list[int] = []
        """The partitions of this topic that are not visited first."""
        self._later_topics: list[bytes] = []
        self._later: list[Sequence[int]] = []
        """The topics before it, and the same of each of them. Most are bytes: the garbage collector
        would visit a hundred thousand tuples."""
        self._view: View | None = None
        self._outcomes: dict[tuple[int, bool], _Outcomes] = {}

    def outcomes(self, view: View) -> dict[tuple[int, bool], _Outcomes]:
        """The known outcomes by the settings of the topic. They are dropped when brokers or settings have
        changed."""
        if self._view is None or not view.has_same_brokers_and_settings(self._view):
            self._outcomes = {}
        self._view = view
        return self._outcomes

    def visit(self, view: View, batch: ChangeBatch) -> Iterator[Stored]:
        """The next partitions up to the limits of the batch, in their current state."""
        by_id = view.image.topics.by_id
        while batch.visits > 0 and batch.changes > 0:
            if not self._group and not self._next_group():
                batch.end()
                return
            ids, self._group = self._group[: batch.visits], self._group[batch.visits :]
            batch.visits -= len(ids) or _PAUSE_VISITS
            topic = by_id.get(self._topic_id)
            if topic is None:
                self._ids, self._group = _NO_IDS, ()
                continue
            found = topic.partitions.entries_of(ids)
            if self._first:
                found, others = divide_by_leader(found, self._first)
                self._later_ids += others
            for position, (partition_id, entry) in enumerate(found, 1):
                yield topic, partition_id, entry
                if batch.changes <= 0 or batch.visits < 0:
                    self._group = (*[place[0] for place in found[position:]], *self._group)
                    return

    def _next_group(self) -> bool:
        """Takes the next partitions of the topic, or the first ones of the next topic, which may be
        none. Returns False if nothing remains."""
        self._group = tuple(islice(self._ids, _GROUP))
        if self._group:
            return True
        if self._later_ids:
            self._later_topics.append(self._topic_id)
            self._later.append((bytes if max(self._later_ids) < 256 else tuple)(self._later_ids))
            self._later_ids = []
        found = next(self._topics, None)
        if found is None and self._later:
            self._topics = zip(self._later_topics, self._later, strict=True)
            self._later_topics, self._later, self._first = [], [], set()
            found = next(self._topics)
        if found is None:
            return False
        self._topic_id, ids = found
        if isinstance(ids, int):
            if ids < 1 << _GROUP:
                self._group = few_bits_of(ids)
                return True
            self._ids = bits_of(ids)
        else:
            self._ids = iter(ids)
        self._group = tuple(islice(self._ids, _GROUP))
        return True


class ChangeBatch:
    """The limits of one portion of the changes of one broker, and the continuation of the next portion."""

    __slots__ = ("_left", "changes", "cursor", "resumed", "visits")

    def __init__(
        self,
        continuation: Cursor | None = None,
        changes: int = CHANGES_PER_TURN,
        visits: int = VISITS_PER_TURN,
    ) -> None:
        """`continuation` is what remained after the previous portion, or None for the first one."""
        self._left = continuation
        self.cursor = continuation
        """The cursor of this portion, even if nothing remains after it."""
        self.resumed = continuation is not None
        self.changes = changes
        self.visits = visits

    @property
    def continuation(self) -> Cursor | None:
        """The partitions that remain for the next portion, or None if this portion was the last one."""
        return self._left

    def end(self) -> None:
        """Drops the remaining partitions."""
        self._left = None

    def partitions(
        self, view: View, topics: Callable[[], Topics], first: Iterable[int] = ()
    ) -> Iterator[Stored]:
        """The partitions from the end of the previous portion to the limits of this one, in their current
        state.

        `topics` returns all partitions of the change. It is called in the first portion. Those that the
        brokers `first` lead come first.
        """
        if self._left is None:
            self._left = self.cursor = Cursor(topics(), first)
        return self._left.visit(view, self)

    def partitions_of(self, view: View, *broker_ids: int) -> Iterator[Stored]:
        """The partitions with a replica on these brokers. Those that they lead come first, because nobody
        can write to them."""
        topics = view.image.topics
        leading = [broker_id for broker_id in broker_ids if topics.leads_any(broker_id)]
        return self.partitions(view, lambda: topics.topics_of(broker_ids), leading)


def update_partitions(
    view: View,
    records: list[Data],
    partitions: Iterable[Stored],
    *,
    concerned: Callable[[PartitionImage], bool] = lambda _partition: True,
    batch: ChangeBatch | None = None,
    removed: tuple[int, ...] = (),
    added: int = NOBODY,
    unclean: int = NOBODY,
) -> None:
    """Removes the brokers `removed` from ISR and leadership, and `unclean` also from the ELR. `added`
    counts as active.

    The image still shows the state before the change, so these three override its state of the brokers.
    Only partitions that are `concerned` change. `batch` is the portion that they belong to; without it, all
    partitions change in this turn.
    """
    is_active = view.is_active
    leaving = frozenset((*removed, unclean))
    before = len(records)
    lossy = 0

    def acceptable(broker_id: int) -> bool:
        return broker_id not in leaving and (broker_id == added or is_active(broker_id))

    def change_of(topic: TopicImage, partition_id: int, entry: Entry) -> PartitionChangeRecord | None:
        partition = decoded(entry)
        if not concerned(partition):
            return None
        change = PartitionChangeBuilder(
            view,
            topic.id,
            partition_id,
            partition,
            acceptable=acceptable,
            min_isr=settings[0],
            election=Election.UNCLEAN if settings[1] else Election.ONLINE,
        )
        if unclean != NOBODY:
            change.uncleanly_stopped_broker = unclean
        change.isr = without(partition.isr, *leaving)
        return change.build()

    seen: TopicImage | None = None
    settings = (1, False)
    outcomes: _Outcomes = {}
    known: dict[tuple[int, bool], _Outcomes] | None = None
    version = record_version(PartitionChangeRecord.KEY, view.metadata_version)
    begin = frame(PartitionChangeRecord.KEY, version)
    for topic, partition_id, entry in partitions:
        if topic is not seen:
            seen = topic
            settings = view.topic_settings(topic.name, topic.partitions.replication_factor)
            if known is None:
                known = batch.cursor.outcomes(view) if batch is not None and batch.cursor is not None else {}
            outcomes = known.setdefault(settings, {})
        if isinstance(entry, bytes):
            state = state_of(entry)
            outcome = outcomes.get(state, _UNKNOWN)
            if outcome is _UNKNOWN:
                if len(outcomes) >= _MAX_OUTCOMES:
                    outcomes.clear()
                record = change_of(topic, partition_id, entry)
                outcome = outcomes[state] = None if record is None else _outcome(record, version)
                if batch is not None:
                    batch.visits -= _DECISION_VISITS
            if outcome is None:
                continue
            records.append(partition_change(begin + entry[3:FIELDS_AT] + outcome[0]))
            lossy += outcome[1]
        else:
            record = change_of(topic, partition_id, entry)
            if record is None:
                continue
            records.append(record)
            lossy += record.leader_recovery_state == RECOVERING
        if batch is not None:
            batch.changes -= 1
    if len(records) > before:
        logger.info(
            "Changing %d partition(s)%s%s.",
            len(records) - before,
            "".join(
                f", {what} broker {', '.join(map(str, brokers))}"
                for what, brokers in (
                    ("without", removed),
                    ("with", (added,)),
                    ("after an unclean shutdown of", (unclean,)),
                )
                if brokers and brokers != (NOBODY,)
            ),
            f"; {lossy} of them with an unclean election, which may lose records" if lossy else "",
        )


def _outcome(record: PartitionChangeRecord, version: int) -> _Outcome:
    """The outcome that is written by this record."""
    return encode_record(record, version)[FIELDS_AT:], record.leader_recovery_state == RECOVERING


def _leave_isr(view: View, broker_ids: tuple[int, ...], records: list[Data], batch: ChangeBatch) -> None:
    """Removes the brokers from every ISR."""
    leaving = frozenset(broker_ids)
    update_partitions(
        view,
        records,
        batch.partitions_of(view, *broker_ids),
        concerned=lambda partition: not leaving.isdisjoint(partition.isr),
        batch=batch,
        removed=broker_ids,
    )


def fence(view: View, broker_ids: tuple[int, ...], records: list[Data], batch: ChangeBatch) -> None:
    """Removes the brokers from every ISR, then fences their registrations.

    Brokers that fail together are fenced together. A partition of several of them changes once, and none of
    them becomes the leader of a partition of another.
    """
    _leave_isr(view, broker_ids, records, batch)
    if batch.continuation is not None:
        return
    for broker_id in broker_ids:
        registration = view.image.cluster.brokers[broker_id]
        if not (batch.resumed and registration.fenced):
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker_id, broker_epoch=registration.epoch, fenced=FENCE
                )
            )


def unfence(view: View, broker_id: int, records: list[Data], batch: ChangeBatch) -> None:
    """Unfences the registration, then elects leaders of the broker's partitions that have none."""
    registration = view.image.cluster.brokers[broker_id]
    added = NOBODY
    if not batch.resumed:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=registration.epoch, fenced=UNFENCE
            )
        )
        added = broker_id
    update_partitions(
        view,
        records,
        batch.partitions(view, lambda: iter(view.image.topics.leaderless_index.items())),
        concerned=lambda partition: partition.leader == NO_LEADER and broker_id in partition.replicas,
        batch=batch,
        added=added,
    )


def unregister(
    view: View, broker_id: int, broker_epoch: int, records: list[Data], batch: ChangeBatch
) -> None:
    """Removes the broker from every ISR and ELR, then removes its registration. A registration with another
    broker epoch is newer than the change and stays."""
    registration = view.image.cluster.brokers[broker_id]
    _leave_isr_and_elr(view, broker_id, records, batch, clean=True)
    if batch.continuation is None and registration.epoch == broker_epoch:
        records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=registration.epoch))


def begin_controlled_shutdown(view: View, broker_id: int, records: list[Data], batch: ChangeBatch) -> None:
    """Marks the registration, then moves the broker's leaderships and removes it from every ISR."""
    registration = view.image.cluster.brokers[broker_id]
    if not registration.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=registration.epoch, in_controlled_shutdown=1
            )
        )
    _leave_isr(view, (broker_id,), records, batch)


def clean_up_incarnation(
    view: View, broker_id: int, clean: bool, records: list[Data], batch: ChangeBatch
) -> None:
    """Removes the previous incarnation of a registering broker from every ISR. `clean` means that it had
    shut down cleanly.

    An unclean incarnation has lost the records that were not on disk. If ELR is enabled, it is also
    removed from every ELR.
    """
    if view.elr_enabled and not clean:
        _leave_isr_and_elr(view, broker_id, records, batch, clean=False)
    else:
        _leave_isr(view, (broker_id,), records, batch)


def _leave_isr_and_elr(
    view: View, broker_id: int, records: list[Data], batch: ChangeBatch, clean: bool
) -> None:
    """Removes the broker from every ISR and ELR."""
    update_partitions(
        view,
        records,
        batch.partitions_of(view, broker_id),
        concerned=lambda partition: broker_id in partition.isr or broker_id in partition.elr,
        batch=batch,
        removed=(broker_id,) if clean else (),
        unclean=NOBODY if clean else broker_id,
    )


def take_directories_offline(
    view: View, broker_id: int, offline: Iterable[bytes], records: list[Data], batch: ChangeBatch
) -> None:
    """Removes the replicas in newly failed directories from the ISR, then registers the remaining
    directories."""
    registration = view.image.cluster.brokers[broker_id]
    reported = set(offline)
    newly = [d for d in registration.log_dirs if d in reported]
    if not newly:
        return
    update_partitions(
        view,
        records,
        batch.partitions_of(view, broker_id),
        concerned=lambda partition: _directory_in(partition, broker_id) in newly,
        batch=batch,
        removed=(broker_id,),
    )
    if batch.continuation is not None:
        return
    remaining = [d for d in registration.log_dirs if d not in reported]
    records.append(
        BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=registration.epoch, log_dirs=list(sorted_directories(remaining))
        )
    )


def _directory_in(partition: PartitionImage, broker_id: int) -> bytes | None:
    """The directory of the broker's replica, or None if it has no replica or no directory."""
    if broker_id not in partition.replicas:
        return None
    index = partition.replicas.index(broker_id)
    return partition.directories[index] if index < len(partition.directories) else None
