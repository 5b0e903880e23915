"""What a broker's coming and going does to partitions: ISR, ELR and leaders, in work proportional to
its replicas.

Each function appends the records to a list, in Kafka's order: fencing writes partition changes first,
then the registration change; unfencing the other way round, because it makes the broker electable.

What touches very many partitions takes several turns, each with a `Portion`: then the functions are
called again, with a newer view and what the portion left over, until it leaves nothing. The partitions
are those of the first turn, each looked at as it is by then. Nothing has to be looked at twice: while a
broker is on its way out, or a directory of its, no decision of this controller gives it anything
(`View.is_active`, `View.has_online_directory`); a broker on its way in is electable from the first turn
on.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator

from quorate.controller.context import View
from quorate.controller.replication.partition_change import Election, PartitionChange, without
from quorate.metadata.image.cluster import sorted_directories
from quorate.metadata.image.partitions import NO_LEADER, RECOVERING, PartitionImage
from quorate.metadata.image.topics import TopicImage
from quorate.metadata.records import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from quorate.protocol.schema import Data

log = logging.getLogger(__name__)

FENCE = 1
UNFENCE = -1
NOBODY = -1

CHANGES_PER_TURN = 500
"""Partitions that are changed in one turn of the loop: some 10 ms from the decision to the log."""
LOOKS_PER_TURN = 10_000
"""Partitions that are looked at in one turn, changed or not: some 15 ms."""

Cursor = Iterator[tuple[bytes, int]]
"""(topic id, partition id) of partitions that are still to be looked at."""
Located = tuple[TopicImage, int, PartitionImage]


class ChangeBatch:
    """What one turn may still do to one broker's partitions, and where the next turn goes on."""

    __slots__ = ("_left", "changes", "looks", "resumed")

    def __init__(
        self, continuation: Cursor | None = None, changes: int = CHANGES_PER_TURN, looks: int = LOOKS_PER_TURN
    ) -> None:
        """rest: what the turn before left over; None in the first."""
        self._left = continuation
        self.resumed = continuation is not None
        self.changes = changes
        self.looks = looks

    @property
    def continuation(self) -> Cursor | None:
        """Where the next turn goes on; None when this one came to the end."""
        return self._left

    def end(self) -> None:
        """There is no more to do, wherever the last turn stopped."""
        self._left = None

    def replicas_on(self, view: View, broker_id: int, begin: Cursor | None = None) -> Iterator[Located]:
        """The partitions that have a replica on this broker, from where the last turn stopped until
        enough is done for this one.

        begin: of the first turn, ids that have all that matters among them; else it is all that the
        broker has.
        """
        if self._left is None:
            self._left = view.image.topics.partitions_of(broker_id) if begin is None else begin
        by_id = view.image.topics.by_id
        topic: TopicImage | None = None
        while self.looks and self.changes:
            place = next(self._left, None)
            if place is None:
                self._left = None
                return
            self.looks -= 1
            topic_id, partition_id = place
            if topic is None or topic.id != topic_id:
                topic = by_id.get(topic_id)
            partition = None if topic is None else topic.partitions.get(partition_id)
            if topic is not None and partition is not None and broker_id in partition.replicas:
                yield topic, partition_id, partition

    def in_isr(self, view: View, broker_id: int) -> Iterator[Located]:
        return (found for found in self.replicas_on(view, broker_id) if broker_id in found[2].isr)

    def in_isr_or_elr(self, view: View, broker_id: int) -> Iterator[Located]:
        partitions = self.replicas_on(view, broker_id)
        return (found for found in partitions if broker_id in found[2].isr or broker_id in found[2].elr)

    def leaderless(self, view: View, broker_id: int) -> Iterator[Located]:
        partitions = self.replicas_on(view, broker_id, view.image.topics.leaderless())
        return (found for found in partitions if found[2].leader == NO_LEADER)

    def in_directories(self, view: View, broker_id: int, directories: Container[bytes]) -> Iterator[Located]:
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
    """Takes `removed` out of ISR and leadership, `unclean` out of the ELR too; `added` counts as active
    already.

    portion: that `partitions` come from; without one there is no end to what is done in this turn.
    The image still shows the state before; so those three overrule what it says about who may lead.
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
        change = PartitionChange(
            view,
            topic.id,
            partition_id,
            partition,
            acceptable=acceptable,
            min_isr=min_isr,
            election=Election.UNCLEAN if unclean_allowed else Election.ONLINE,
        )
        if unclean != NOBODY:
            change.unclean_shutdown = unclean
        change.isr = without(partition.isr, removed, unclean)
        record = change.build()
        if record is not None:
            records.append(record)
            lossy += record.leader_recovery_state == RECOVERING
            if batch is not None:
                batch.changes -= 1
    if len(records) > before:
        log.info(
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
    """The broker leaves every ISR; then its registration is fenced."""
    registration = view.image.cluster.brokers[broker_id]
    update_partitions(view, records, batch.in_isr(view, broker_id), batch=batch, removed=broker_id)
    if batch.continuation is None and not (batch.resumed and registration.fenced):
        records.append(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=registration.epoch, fenced=FENCE)
        )


def unfence(view: View, broker_id: int, records: list[Data], batch: ChangeBatch) -> None:
    """The registration is unfenced; then partitions without a leader that have a replica here elect one."""
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
    """Out of every ISR and ELR, then out of the cluster."""
    registration = view.image.cluster.brokers[broker_id]
    _leave_isr_and_elr(view, broker_id, records, batch, clean=True)
    if batch.continuation is None:
        records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=registration.epoch))


def begin_controlled_shutdown(view: View, broker_id: int, records: list[Data], batch: ChangeBatch) -> None:
    """Marks the broker, then moves its leaderships and ISR memberships away."""
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
    """An older incarnation of a registering broker is gone; clean: it had shut down in good order.

    With ELR an unclean one has lost what it had not written to disk, so that it leaves the ELR as well.
    """
    if view.elr_enabled and not clean:
        _leave_isr_and_elr(view, broker_id, records, batch, clean=False)
    else:
        update_partitions(view, records, batch.in_isr(view, broker_id), batch=batch, removed=broker_id)


def _leave_isr_and_elr(
    view: View, broker_id: int, records: list[Data], batch: ChangeBatch, clean: bool
) -> None:
    removed, unclean = (broker_id, NOBODY) if clean else (NOBODY, broker_id)
    partitions = batch.in_isr_or_elr(view, broker_id)
    update_partitions(view, records, partitions, batch=batch, removed=removed, unclean=unclean)


def take_directories_offline(
    view: View, broker_id: int, offline: Iterable[bytes], records: list[Data], batch: ChangeBatch
) -> None:
    """Directories that the broker newly reports as failed: their replicas leave the ISR, the rest stays
    registered."""
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
