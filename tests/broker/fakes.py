"""The surroundings of a partition in tests: a clock that the test sets, metadata, and a controller that
only records its requests. The logs are real ones in a temporary directory, because a partition depends
on their checks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from immutables import Map

from quorate.broker.metadata.cache import MetadataCache
from quorate.broker.replication.partition import Partition
from quorate.broker.replication.replica_manager import ReplicaManager
from quorate.broker.replication.replica_state import PendingIsr
from quorate.log.config import LogConfig
from quorate.log.directories.manager import LogManager
from quorate.log.files import OpenFiles
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
class Asked:
    """Collects the ISR changes that a partition asks for."""

    changes: list[PendingIsr] = field(default_factory=list)

    def submit(self, partition: Partition, pending: PendingIsr) -> None:
        self.changes.append(pending)


def broker(
    broker_id: int, *, epoch: int = 0, fenced: bool = False, shutting_down: bool = False
) -> BrokerRegistration:
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


def manager(
    directory: Path,
    image: MetadataImage | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
    **config: Any,
) -> tuple[ReplicaManager, FakeClock]:
    """The replicas of a broker, with logs in `directory`. `config` applies to all topics."""
    clock = FakeClock()
    directory.mkdir(exist_ok=True)
    replicas = ReplicaManager(
        node_id=ME,
        metadata=MetadataCache(image or cluster(broker(1), broker(2), broker(3))),
        logs=LogManager([directory], LogConfig(**config), OpenFiles(16), now_ms=clock.now_ms),
        clock=clock,
        loop=loop or asyncio.new_event_loop(),
        replica_lag_max_s=30.0,
        isr_sender=Asked(),
    )
    return replicas, clock
