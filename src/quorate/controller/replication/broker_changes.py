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
from collections.abc import Container, Iterable, Iterator

from quorate.controller.context import View
from quorate.controller.replication.partition_change import Election, PartitionChangeBuilder, without
from quorate.metadata.image.cluster import sorted_directories
from quorate.metadata.image.partitions import NO_LEADER, RECOVERING, PartitionImage
from quorate.metadata.image.topics import TopicImage
from quorate.metadata.records import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from quorate.protocol.schema import Data

logger = logging.getLogger(__name__)

FENCE = 1
UNFENCE = -1
NOBODY = -1

CHANGES_PER_TURN = 500
"""The partitions that are changed in one turn of the event loop, which takes about 10 ms from the
decision to the log."""
VISITS_PER_TURN = 10_000
"""The partitions that are visited in one turn, changed or not, which takes about 15 ms."""

Cursor = Iterator[tuple[bytes, int]]
"""(topic id, partition id) of the partitions that are still to be visited."""
Located = tuple[TopicImage, int, PartitionImage]
"""A topic, a partition id, and the partition."""


class ChangeBatch:
    """The limits of one portion of the changes of one broker, and the continuation of the next portion."""

    __slots__ = ("_left", "changes", "resumed", "visits")

    def __init__(
        self,
        continuation: Cursor | None = None,
        changes: int = CHANGES_PER_TURN,
        visits: int = VISITS_PER_TURN,
    ) -> None:
        """`continuation` is what remained after the previous portion, or None for the first one."""
        self._left = continuation
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

    def replicas_on(self, view: View, broker_id: int, begin: Cursor | None = None) -> Iterator[Located]:
        """The partitions with a replica on this broker, from the end of the previous portion to the
        limits of this one.

        `begin` are the partitions of the first portion. They must include all relevant ones. By default
        they are all partitions of the broker.
        """
        if self._left is None:
            self._left = view.image.topics.partitions_of(broker_id) if begin is None else begin
        by_id = view.image.topics.by_id
        topic: TopicImage | None = None
        while self.visits and self.changes:
            place = next(self._left, None)
            if place is None:
                self._left = None
                return
            self.visits -= 1
            topic_id, partition_id = place
            if topic is None or topic.id != topic_id:
                topic = by_id.get(topic_id)
            partition = None if topic is None else topic.partitions.get(partition_id)
            if topic is not None and partition is not None and broker_id in partition.replicas:
                yield topic, partition_id, partition

    def in_isr(self, view: View, broker_id: int) -> Iterator[Located]:
        """The partitions that have the broker in their ISR."""
        return (found for found in self.replicas_on(view, broker_id) if broker_id in found[2].isr)

    def in_isr_or_elr(self, view: View, broker_id: int) -> Iterator[Located]:
        """The partitions that have the broker in their ISR or ELR."""
        partitions = self.replicas_on(view, broker_id)
        return (found for found in partitions if broker_id in found[2].isr or broker_id in found[2].elr)

    def leaderless(self, view: View, broker_id: int) -> Iterator[Located]:
        """The partitions of the broker that have no leader."""
        partitions = self.replicas_on(view, broker_id, view.image.topics.leaderless())
        return (found for found in partitions if found[2].leader == NO_LEADER)

    def in_directories(self, view: View, broker_id: int, directories: Container[bytes]) -> Iterator[Located]:
        """The partitions whose replica on the broker is in one of these directories."""
        for found in self.replicas_on(view, broker_id):
            partition = found[2]
            index = partition.replicas.index(broker_id)
            if index < len(partition.directories) and partition.directories[index] in directories:
                yield found


def update_partitions(
    view: View,
    records: list[Data],
    partitions: Iterable[Located],
    *,
    batch: ChangeBatch | None = None,
    removed: int = NOBODY,
    added: int = NOBODY,
    unclean: int = NOBODY,
) -> None:
    """Removes the broker `removed` from ISR and leadership, and `unclean` also from the ELR. `added`
    counts as active.

    The image still shows the state before the change, so these three override its state of the brokers.
    `batch` is the portion that the partitions belong to; without it, all partitions change in this turn.
    """
    is_active = view.is_active
    before = len(records)
    lossy = 0

    def acceptable(broker_id: int) -> bool:
        return broker_id not in (removed, unclean) and (broker_id == added or is_active(broker_id))

    seen: TopicImage | None = None
    min_isr, unclean_allowed = 1, False
    for topic, partition_id, partition in partitions:
        if topic is not seen:
            seen = topic
            min_isr, unclean_allowed = view.topic_settings(topic.name, len(topic.partitions[0].replicas))
        change = PartitionChangeBuilder(
            view,
            topic.id,
            partition_id,
            partition,
            acceptable=acceptable,
            min_isr=min_isr,
            election=Election.UNCLEAN if unclean_allowed else Election.ONLINE,
        )
        if unclean != NOBODY:
            change.uncleanly_stopped_broker = unclean
        change.isr = without(partition.isr, removed, unclean)
        record = change.build()
        if record is not None:
            records.append(record)
            lossy += record.leader_recovery_state == RECOVERING
            if batch is not None:
                batch.changes -= 1
    if len(records) > before:
        logger.info(
            "Changing %d partition(s)%s%s.",
            len(records) - before,
            "".join(
                f", {what} broker {broker_id}"
                for what, broker_id in (
                    ("without", removed),
                    ("with", added),
                    ("after an unclean shutdown of", unclean),
                )
                if broker_id != NOBODY
            ),
            f"; {lossy} of them with an unclean election, which may lose records" if lossy else "",
        )


def fence(view: View, broker_id: int, records: list[Data], batch: ChangeBatch) -> None:
    """Removes the broker from every ISR, then fences its registration."""
    registration = view.image.cluster.brokers[broker_id]
    update_partitions(view, records, batch.in_isr(view, broker_id), batch=batch, removed=broker_id)
    if batch.continuation is None and not (batch.resumed and registration.fenced):
        records.append(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=registration.epoch, fenced=FENCE)
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
    update_partitions(view, records, batch.leaderless(view, broker_id), batch=batch, added=added)


def unregister(view: View, broker_id: int, records: list[Data], batch: ChangeBatch) -> None:
    """Removes the broker from every ISR and ELR, then removes its registration."""
    registration = view.image.cluster.brokers[broker_id]
    _leave_isr_and_elr(view, broker_id, records, batch, clean=True)
    if batch.continuation is None:
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
    update_partitions(view, records, batch.in_isr(view, broker_id), batch=batch, removed=broker_id)


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
        update_partitions(view, records, batch.in_isr(view, broker_id), batch=batch, removed=broker_id)


def _leave_isr_and_elr(
    view: View, broker_id: int, records: list[Data], batch: ChangeBatch, clean: bool
) -> None:
    """Removes the broker from every ISR and ELR."""
    removed, unclean = (broker_id, NOBODY) if clean else (NOBODY, broker_id)
    partitions = batch.in_isr_or_elr(view, broker_id)
    update_partitions(view, records, partitions, batch=batch, removed=removed, unclean=unclean)


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
    lost = batch.in_directories(view, broker_id, set(newly))
    update_partitions(view, records, lost, batch=batch, removed=broker_id)
    if batch.continuation is not None:
        return
    remaining = [d for d in registration.log_dirs if d not in reported]
    records.append(
        BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=registration.epoch, log_dirs=list(sorted_directories(remaining))
        )
    )
