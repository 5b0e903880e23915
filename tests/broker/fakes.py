"""Stand-ins for the neighbours of a partition: a log that is a list, a clock that is set by hand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace

from immutables import Map

from quorate.broker.metadata_cache import MetadataCache
from quorate.broker.partition import Partition
from quorate.broker.replica_manager import ReplicaManager
from quorate.broker.replica_state import PendingIsr
from quorate.metadata.image import BrokerRegistration, Endpoint, PartitionImage
from quorate.metadata.image.cluster import ClusterImage
from quorate.metadata.image.image import MetadataImage

ME = 1
TOPIC_ID = bytes(range(16))


@dataclass
class FakeClock:
    time_s: float = 1000.0

    def now(self) -> float:
        return self.time_s

    def now_ms(self) -> int:
        return int(self.time_s * 1000)


@dataclass
class FakeLog:
    """Counts offsets; holds no records."""

    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0
    min_isr: int = 1
    deletes: bool = True
    topic_id: bytes | None = bytes(15) + b"\x07"
    epochs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def config(self):
        return SimpleNamespace(min_insync_replicas=self.min_isr, deletes=self.deletes)

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    def assign_epoch(self, epoch: int, start: int) -> None:
        self.epochs.append((epoch, start))

    def append_as_leader(self, records, leader_epoch, now_ms, origin):
        first = self.log_end_offset
        self.log_end_offset += len(records)
        return SimpleNamespace(first_offset=first, last_offset=self.log_end_offset - 1, log_append_time_ms=-1, log_start_offset=0)

    def increment_log_start_offset(self, offset: int, reason: str) -> None:
        self.log_start_offset = max(self.log_start_offset, offset)


class FakeLogs:
    """Gives every partition the same prepared log."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log

    def get(self, topic: str, partition: int) -> FakeLog:
        return self.log


@dataclass
class Asked:
    """Collects the ISR changes that a partition asks for."""

    changes: list[PendingIsr] = field(default_factory=list)

    def submit(self, partition: Partition, pending: PendingIsr) -> None:
        self.changes.append(pending)


def broker(broker_id: int, *, epoch: int = 0, fenced: bool = False, shutting_down: bool = False) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id,
        epoch or broker_id * 100,
        bytes(16),
        listeners=(Endpoint("PLAINTEXT", f"host{broker_id}", 9092, 0),),
        fenced=fenced,
        in_controlled_shutdown=shutting_down,
    )


def cluster(*brokers: BrokerRegistration) -> MetadataImage:
    return MetadataImage(cluster=ClusterImage(brokers=Map({b.id: b for b in brokers})))


def registration(
    replicas: tuple[int, ...] = (ME,),
    isr: tuple[int, ...] | None = None,
    leader: int = ME,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
) -> PartitionImage:
    return PartitionImage(
        replicas=replicas,
        directories=tuple(bytes(16) for _ in replicas),
        isr=replicas if isr is None else isr,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
    )


def manager(log: FakeLog, image: MetadataImage | None = None, loop: asyncio.AbstractEventLoop | None = None):
    clock = FakeClock()
    replicas = ReplicaManager(
        node_id=ME,
        metadata=MetadataCache(image or cluster(broker(1), broker(2), broker(3))),
        logs=FakeLogs(log),
        clock=clock,
        loop=loop or asyncio.new_event_loop(),
        replica_lag_max_s=30.0,
    )
    replicas.isr_sender = Asked()
    return replicas, clock
