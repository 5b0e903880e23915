"""The metrics of kafka.controller (`QuorumControllerMetrics` and `ControllerMetadataMetrics` in
Kafka, and those of KIP-631).

All numbers are read when a scraper asks for them, so that changes of the metadata cost nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from quorate.metadata.image import (
    EMPTY,
    NO_LEADER,
    MetadataDelta,
    MetadataImage,
    last_stable_offset,
    metadata_lag,
)
from quorate.metadata.metrics import loader_families
from quorate.metrics import UNKNOWN, Family, gauge, histogram, labels, meter

if TYPE_CHECKING:
    from quorate.controller.driver import QuorumController
    from quorate.metadata.image import BrokerRegistration, PartitionImage
    from quorate.metrics import Quantiles

FENCED, CONTROLLED_SHUTDOWN, ACTIVE = 10, 20, 30
"""The values of BrokerRegistrationState."""

PIECE = 500
"""Partitions that are compared without a pause."""
AT_MOST = 200_000
"""Partitions that are compared for one scraper. A cluster of more is counted after several scrapes."""


class PartitionCounts:
    """Counts the partitions whose leader is not their first replica, unclean elections, and those of eligible
    leader replicas (KIP-966).

    The image of each scrape is compared with that of the scrape before, in time proportional to the changes.
    Of several elections of one partition between two scrapes, only the last one is seen.
    """

    def __init__(self) -> None:
        self.imbalance = 0
        self.unclean_elections = 0
        self.elr_elections = 0
        self.is_complete = False
        """Whether all partitions have been counted once."""
        self._counted: MetadataImage = EMPTY
        self._rest: Iterator[None] | None = None

    def update(self, image: MetadataImage) -> Iterator[None]:
        """Counts the changes up to `image`. Yields where the work may be interrupted."""
        if self._rest is None:
            if image.topics is self._counted.topics:
                self.is_complete = True
                return
            self._rest = self._count(image)
        for _ in islice(self._rest, AT_MOST // PIECE):
            yield
        if self._counted is image:
            self.is_complete = True

    def _count(self, image: MetadataImage) -> Iterator[None]:
        changes = MetadataDelta(self._counted, image).partition_changes()
        while some := list(islice(changes, PIECE)):
            for change in some:
                self.imbalance += _is_imbalanced(change.new) - _is_imbalanced(change.old)
                self.unclean_elections += self.is_complete and _is_unclean(change.old, change.new)
                self.elr_elections += self.is_complete and _is_of_elr(change.old, change.new)
            if len(some) < PIECE:
                break
            yield
        self._counted = image
        self._rest = None


def _is_imbalanced(partition: PartitionImage | None) -> bool:
    return partition is not None and partition.leader != partition.preferred_replica


def _is_unclean(old: PartitionImage | None, new: PartitionImage | None) -> bool:
    """Whether a leader was elected that is neither in the ISR nor in the ELR (`electionWasClean` in
    Kafka)."""
    return (
        old is not None
        and new is not None
        and new.has_leader
        and new.leader != old.leader
        and new.leader not in old.isr
        and new.leader not in old.elr
    )


def _is_of_elr(old: PartitionImage | None, new: PartitionImage | None) -> bool:
    return old is not None and new is not None and new.leader != old.leader and new.leader in old.elr


class ControllerMetrics:
    """The metrics of one controller, active or standby."""

    def __init__(self, controller: QuorumController) -> None:
        self._controller = controller
        self._partitions = PartitionCounts()

    def families(self) -> Iterator[Family | None]:
        """Yields the families, and None where the work may be interrupted."""
        image = self._controller.state.image
        yield from self._partitions.update(image)
        yield from _cluster_families(image)
        yield from self._topic_families(image)
        yield from self._log_families(image)
        yield from self._term_families(image)

    def _topic_families(self, image: MetadataImage) -> Iterator[Family]:
        group, topics = "controller.KafkaController", image.topics
        yield gauge(f"{group}.GlobalTopicCount", "Topics.", len(topics.by_id))
        yield gauge(f"{group}.GlobalPartitionCount", "Partitions.", topics.partition_count)
        yield gauge(
            f"{group}.OfflinePartitionsCount", "Partitions without a leader.", topics.leader_count(NO_LEADER)
        )
        counts = self._partitions
        yield gauge(
            f"{group}.PreferredReplicaImbalanceCount",
            "Partitions whose leader is not their first replica.",
            counts.imbalance if counts.is_complete else UNKNOWN,
        )
        yield meter(
            "controller.ControllerStats.UncleanLeaderElectionsPerSec",
            "Leaders that were elected outside of the ISR, since the first scrape.",
            counts.unclean_elections,
        )
        yield meter(
            "controller.ControllerStats.ElectionFromEligibleLeaderReplicasPerSec",
            "Leaders that were elected among the eligible leader replicas, since the first scrape (KIP-966).",
            counts.elr_elections,
        )

    def _log_families(self, image: MetadataImage) -> Iterator[Family]:
        group, state = "controller.KafkaController", self._controller.state
        raft = state.raft
        applied = state.committed_offset
        yield gauge(f"{group}.LastAppliedRecordOffset", "The last offset that was applied.", applied)
        yield gauge(
            f"{group}.LastCommittedRecordOffset", "The last committed offset.", raft.high_watermark - 1
        )
        at_ms = image.provenance.timestamp_ms
        yield gauge(
            f"{group}.LastAppliedRecordTimestamp", "The append time of the last applied record.", at_ms
        )
        age_ms = 0 if state.is_active or at_ms < 0 else max(0, state.clock.now_ms() - at_ms)
        yield gauge(
            f"{group}.LastAppliedRecordLagMs", "The age of this record, in ms. 0 on the active one.", age_ms
        )
        yield gauge(
            f"{group}.MetadataLag",
            "Offsets from the last applied record to the last stable offset (KIP-631).",
            metadata_lag(image, raft.high_watermark, applied),
        )
        snapshot = raft.latest_snapshot()
        yield gauge(
            f"{group}.MetadataSnapshotOffsetLag",
            "Offsets from the last snapshot, or from 0, to the last stable offset (KIP-631).",
            last_stable_offset(image, raft.high_watermark) - (0 if snapshot is None else snapshot.offset),
        )
        yield meter(
            f"{group}.MetadataCommitRatePerSec",
            "Committed offsets of the log (KIP-631).",
            raft.high_watermark,
        )
        yield histogram(
            f"{group}.MetadataCommitLatencyMs",
            "Time from the append of a batch until its commit on this leader, in ms (KIP-631).",
            [("", raft.commit_latency_ms())],
        )

    def _term_families(self, image: MetadataImage) -> Iterator[Family]:
        group, state = "controller.KafkaController", self._controller.state
        sessions, now = state.broker_sessions, state.clock.now()
        yield gauge(f"{group}.ActiveControllerCount", "1 on the active controller.", state.is_active)
        yield gauge(
            f"{group}.NewActiveControllersCount",
            "Elections of a controller that this node has seen.",
            self._controller.new_active_controllers,
        )
        yield gauge(
            f"{group}.TimedOutBrokerHeartbeatCount",
            "Broker sessions that have expired on this controller.",
            sessions.expired_count,
        )
        contacts = sessions.contacts if state.is_active else {}
        yield gauge(
            f"{group}.TimeSinceLastHeartbeatReceivedMs",
            "Time since the last heartbeat of each broker with a session, in ms. Active controller only.",
            [
                (labels(broker=broker), max(0, round((now - at) * 1000)))
                for (broker, _epoch), at in sorted(contacts.items())
            ],
        )
        yield gauge(
            f"{group}.MetadataErrorCount", "1 if this controller cannot replay a record.", state.failed
        )
        yield gauge(
            f"{group}.EventQueueOperationsTimedOutCount",
            "Requests whose records were not committed within their timeout.",
            state.pending.expired_count + state.written.expired_count,
        )
        leader = state.raft.leader_and_epoch.leader_id
        yield from loader_families(image, leader, self._controller.snapshots, state.clock.now_ms())


def _cluster_families(image: MetadataImage) -> Iterator[Family]:
    group = "controller.KafkaController"
    states = {broker.id: _state_of(broker) for broker in image.cluster.brokers.values()}
    counted = list(states.values())
    yield gauge(
        f"{group}.ActiveBrokerCount", "Brokers that are neither fenced nor stopping.", counted.count(ACTIVE)
    )
    yield gauge(f"{group}.FencedBrokerCount", "Fenced brokers.", counted.count(FENCED))
    yield gauge(
        f"{group}.ControlledShutdownBrokerCount",
        "Brokers in controlled shutdown.",
        counted.count(CONTROLLED_SHUTDOWN),
    )
    yield gauge(
        f"{group}.BrokerRegistrationState",
        "The state of each broker: 10 fenced, 20 in controlled shutdown, 30 active.",
        [(labels(broker=broker), state) for broker, state in sorted(states.items())],
    )


def _state_of(broker: BrokerRegistration) -> int:
    if broker.fenced:
        return FENCED
    return CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else ACTIVE


def event_families(queued_ms: Quantiles, processing_ms: Quantiles) -> Iterator[Family]:
    """The metrics of kafka.controller:type=ControllerEventManager, from the requests to the controller."""
    group = "controller.ControllerEventManager"
    yield histogram(f"{group}.EventQueueTimeMs", "Time until a request is handled, in ms.", [("", queued_ms)])
    yield histogram(
        f"{group}.EventQueueProcessingTimeMs",
        "Time that the handler of a request takes, in ms.",
        [("", processing_ms)],
    )
    yield gauge(
        "controller.KafkaController.EventQueueOperationsStartedCount",
        "Requests that this controller has handled.",
        processing_ms.total,
    )
