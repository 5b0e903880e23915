"""What a broker's coming and going does to partitions: ISR, ELR and leaders, in work proportional to its replicas.

Each function appends the records to a list, in Kafka's order: fencing writes partition changes first,
then the registration change; unfencing the other way round, because it makes the broker electable.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from quorate.controller.context import View
from quorate.controller.partition_change import Election, PartitionChange, without
from quorate.metadata.image.cluster import sorted_directories
from quorate.metadata.image.partitions import NO_LEADER, RECOVERING, PartitionImage
from quorate.metadata.image.topics import TopicImage
from quorate.metadata.records import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from quorate.protocol.schema import Data

log = logging.getLogger(__name__)

FENCE = 1
UNFENCE = -1
NOBODY = -1

Located = tuple[TopicImage, int, PartitionImage]


def partitions_with(view: View, broker_id: int) -> Iterator[Located]:
    """The partitions that have a replica on this broker."""
    topics = view.image.topics
    topic: TopicImage | None = None
    for topic_id, partition_id in topics.partitions_of(broker_id):
        if topic is None or topic.id != topic_id:
            topic = topics.by_id[topic_id]
        yield topic, partition_id, topic.partitions[partition_id]


def in_isr(view: View, broker_id: int) -> Iterator[Located]:
    return (found for found in partitions_with(view, broker_id) if broker_id in found[2].isr)


def in_elr(view: View, broker_id: int) -> Iterator[Located]:
    return (found for found in partitions_with(view, broker_id) if broker_id in found[2].elr)


def update_partitions(
    view: View,
    records: list[Data],
    partitions: Iterable[Located],
    *,
    removed: int = NOBODY,
    added: int = NOBODY,
    unclean: int = NOBODY,
) -> None:
    """Takes `removed` out of ISR and leadership, `unclean` out of the ELR too; `added` counts as active already.

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
    if len(records) > before:
        log.info(
            "Changing %d partition(s)%s%s.",
            len(records) - before,
            "".join(
                f", {what} broker {broker_id}"
                for what, broker_id in (("without", removed), ("with", added), ("after an unclean shutdown of", unclean))
                if broker_id != NOBODY
            ),
            f"; {lossy} of them with an unclean election, which may lose records" if lossy else "",
        )


def fence(view: View, broker_id: int, records: list[Data]) -> None:
    """The broker leaves every ISR; then its registration is fenced."""
    registration = view.image.cluster.brokers[broker_id]
    update_partitions(view, records, in_isr(view, broker_id), removed=broker_id)
    records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=registration.epoch, fenced=FENCE))


def unfence(view: View, broker_id: int, records: list[Data]) -> None:
    """The registration is unfenced; then partitions without a leader that have a replica here elect one."""
    registration = view.image.cluster.brokers[broker_id]
    records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=registration.epoch, fenced=UNFENCE))
    leaderless = (found for found in partitions_with(view, broker_id) if found[2].leader == NO_LEADER)
    update_partitions(view, records, leaderless, added=broker_id)


def unregister(view: View, broker_id: int, records: list[Data]) -> None:
    """Out of every ISR and ELR, then out of the cluster."""
    registration = view.image.cluster.brokers[broker_id]
    _leave_isr_and_elr(view, broker_id, records, clean=True)
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=registration.epoch))


def begin_controlled_shutdown(view: View, broker_id: int, records: list[Data]) -> None:
    """Marks the broker, then moves its leaderships and ISR memberships away."""
    registration = view.image.cluster.brokers[broker_id]
    if not registration.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=registration.epoch, in_controlled_shutdown=1)
        )
    update_partitions(view, records, in_isr(view, broker_id), removed=broker_id)


def clean_up_incarnation(view: View, broker_id: int, clean: bool, records: list[Data]) -> None:
    """An older incarnation of a registering broker is gone; clean: it had shut down in good order.

    With ELR an unclean one has lost what it had not written to disk, so that it leaves the ELR as well.
    """
    if view.elr_enabled and not clean:
        _leave_isr_and_elr(view, broker_id, records, clean=False)
    else:
        update_partitions(view, records, in_isr(view, broker_id), removed=broker_id)


def _leave_isr_and_elr(view: View, broker_id: int, records: list[Data], clean: bool) -> None:
    removed, unclean = (broker_id, NOBODY) if clean else (NOBODY, broker_id)
    update_partitions(view, records, in_isr(view, broker_id), removed=removed, unclean=unclean)
    update_partitions(view, records, in_elr(view, broker_id), removed=removed, unclean=unclean)


def take_directories_offline(view: View, broker_id: int, offline: Iterable[bytes], records: list[Data]) -> None:
    """Directories that the broker newly reports as failed: their replicas leave the ISR, the rest stays registered."""
    registration = view.image.cluster.brokers[broker_id]
    reported = set(offline)
    newly = [d for d in registration.log_dirs if d in reported]
    if not newly:
        return
    for directory in newly:
        update_partitions(view, records, in_directory(view, broker_id, directory), removed=broker_id)
    remaining = [d for d in registration.log_dirs if d not in reported]
    records.append(
        BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=registration.epoch, log_dirs=list(sorted_directories(remaining))
        )
    )


def in_directory(view: View, broker_id: int, directory: bytes) -> Iterator[Located]:
    for found in partitions_with(view, broker_id):
        partition = found[2]
        index = partition.replicas.index(broker_id)
        if index < len(partition.directories) and partition.directories[index] == directory:
            yield found
