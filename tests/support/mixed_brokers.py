"""Brokers of Apache Kafka and ours in one cluster, under controllers of either, with one topic under load.

Each broker has two log directories and a rack of its own. The load's topic has a replica on every broker, and
every broker leads some of its partitions.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quorate.admin.errors import KafkaError, NetError
from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic, PartitionDescription, TopicPartition
from tests.support.cluster import wait_for
from tests.support.metadata_disk import Disk, differences, read_disk, read_folder, same_metadata
from tests.support.mixed import MixedNode, MixedQuorum
from tests.support.numbered_load import LogChecker, NumberedLoad

BROKERS = (11, 12, 13)
TOPIC = "load"
PARTITIONS = 6
LATEST = -1
SETTINGS: dict[str, object] = {
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 7000,
    "initial.broker.registration.timeout.ms": 180_000,
    "replica.fetch.wait.max.ms": 100,
    "replica.high.watermark.checkpoint.interval.ms": 500,
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
}
"""Short times, so that faults are noticed soon; two replicas must have what is acknowledged.

Brokers leave the ISR when they are fenced, not by a short `replica.lag.time.max.ms`: on a busy machine two
followers may lag at once. The leader then refuses records for a moment, and librdkafka answers the gap in the
sequence with a new producer epoch, in which it may repeat records whose answers it had not seen."""


def rotated(first: int) -> list[int]:
    """All brokers, beginning with the one at this place."""
    return [BROKERS[(first + i) % len(BROKERS)] for i in range(len(BROKERS))]


@dataclass
class MixedBrokers(MixedQuorum):
    """Three controllers and three brokers, of the implementations that their letters name."""

    broker_ids: tuple[int, ...] = BROKERS
    extra: dict[str, object] = field(default_factory=lambda: dict(SETTINGS))
    static: bool = True
    load: NumberedLoad | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.checkers = [LogChecker(f"{TOPIC}-{p}") for p in range(PARTITIONS)]
        self.metadata_sums: dict[int, int] = {}
        for broker in self.brokers:
            broker.extra |= {
                "broker.rack": self.rack(broker),
                "log.dirs": ",".join(map(str, self.directories(broker))),
            }
            broker.write_properties()

    @staticmethod
    def rack(broker: MixedNode) -> str:
        return f"rack-{broker.node_id}"

    @staticmethod
    def directories(broker: MixedNode) -> list[Path]:
        return [broker.data, broker.base / "data2"]

    def broker_of(self, node_id: int) -> MixedNode:
        return self.brokers[BROKERS.index(node_id)]

    @property
    def rare(self) -> MixedNode:
        """The broker whose implementation no other broker has."""
        kinds = [broker.impl for broker in self.brokers]
        return next(broker for broker in self.brokers if kinds.count(broker.impl) == 1)

    def others(self, broker: MixedNode) -> list[MixedNode]:
        return [each for each in self.brokers if each is not broker]

    @property
    def servers(self) -> str:
        """All brokers, for `bootstrap.servers`."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    @contextlib.contextmanager
    def admin(self) -> Iterator[AdminClient]:
        with AdminClient(self.servers, api_timeout_s=30) as admin:
            yield admin

    # -- the topic under load
    # ----------------------------------------------------------------------------------------------

    def up(self, per_s: int = 300, timeout_s: float = 400, **producer: object) -> None:
        """Formats and starts all nodes, creates the topic and starts the load. All are formatted by our
        tool, which writes the same bytes as Kafka's (`test_storage_tool`) and starts sooner."""
        implementations = [node.impl for node in self.nodes]
        for node in self.nodes:
            node.impl = "quorate"
        self.format()
        for node, impl in zip(self.nodes, implementations, strict=True):
            node.impl = impl
        self.start(timeout_s)
        self.create_topic(TOPIC, {p: rotated(p) for p in range(PARTITIONS)}, segment_bytes="1048576")
        self.in_sync(timeout_s=timeout_s)
        self.load = NumberedLoad(self.servers, TOPIC, PARTITIONS, per_s, **producer)

    def down(self) -> None:
        if self.load is not None:
            self.load.stop()
        for node in self.nodes:
            node.kill()

    def create_topic(self, name: str, assignment: dict[int, list[int]], **configs: str) -> None:
        with self.admin() as admin:
            new = NewTopic(
                name, assignment=assignment, configs={k.replace("_", "."): v for k, v in configs.items()}
            )
            for error in admin.create_topics([new]).values():
                assert error is None, error

    def partitions(self, topic: str = TOPIC) -> list[PartitionDescription]:
        """The partitions, as any live broker describes them."""
        with self.admin() as admin:
            return self.described(admin, topic)

    @staticmethod
    def described(admin: AdminClient, topic: str) -> list[PartitionDescription]:
        found = admin.describe_topics([topic])[topic]
        return sorted(found.partitions, key=lambda p: p.partition)

    def wait_for_partitions(self, what: str, topic: str, holds: object, timeout_s: float = 60) -> None:
        """Until `holds(partitions)` is true, as a broker that is asked describes them."""
        last: list[PartitionDescription] = []

        def look() -> bool:
            nonlocal last
            with contextlib.suppress(KafkaError, NetError):
                last = self.described(admin, topic)
                return bool(holds(last))  # type: ignore[operator]
            return False

        with self.admin() as admin:
            try:
                wait_for(what, look, timeout_s, 0.05)
            except AssertionError as e:
                raise AssertionError(f"{e}; described as {last}") from None

    def in_sync(self, topic: str = TOPIC, timeout_s: float = 90) -> None:
        """Until every replica of every partition is in sync, and each partition has a leader."""
        self.wait_for_partitions(
            f"all replicas of {topic} to be in sync",
            topic,
            lambda ps: ps and all(p.leader in p.isr and sorted(p.isr) == sorted(p.replicas) for p in ps),
            timeout_s,
        )

    def elect_preferred(self, topic: str = TOPIC, timeout_s: float = 30) -> None:
        """Until each partition is led by its first replica, which must be in sync or become so."""
        with self.admin() as admin:

            def elected() -> bool:
                with contextlib.suppress(KafkaError, NetError):
                    wanted = [TopicPartition(topic, p.partition) for p in self.described(admin, topic)]
                    admin.elect_leaders(0, wanted)
                    return all(p.leader == p.replicas[0] for p in self.described(admin, topic))
                return False

            wait_for("the preferred leaders", elected, timeout_s, 0.1)

    def reassign(self, topic: str, replicas: dict[int, list[int]]) -> None:
        """Starts to move partitions to these brokers."""
        with self.admin() as admin:
            errors = admin.alter_partition_reassignments(
                {TopicPartition(topic, index): brokers for index, brokers in replicas.items()}
            )
        assert not any(errors.values()), errors

    def registered(self) -> dict[int, bool]:
        """Whether each registered broker is fenced."""
        with self.admin() as admin:
            return {node.id: node.fenced for node in admin.describe_cluster(fenced=True).nodes}

    def wait_for_fenced(self, broker: MixedNode, timeout_s: float = 60) -> None:
        wait_for(
            f"broker {broker.node_id} to be fenced", lambda: self.registered()[broker.node_id], timeout_s, 0.1
        )

    # -- what must hold
    # ----------------------------------------------------------------------------------------------

    def check(self, timeout_s: float = 90) -> None:
        """Pauses the load. AssertionError unless every acknowledged record is in every replica's log, once
        and in order, and all logs have the same bytes up to the high watermark; so too the controllers'."""
        assert self.load is not None
        self.load.pause(timeout_s)
        wrong = self.violations(timeout_s)
        assert not wrong, "\n".join(wrong[:30])
        self.load.resume()

    def violations(self, timeout_s: float = 90) -> list[str]:
        assert self.load is not None
        self.in_sync(timeout_s=timeout_s)
        wrong: list[str] = []
        with self.admin() as admin:
            described = self.described(admin, TOPIC)
            offsets = admin.list_offsets({TopicPartition(TOPIC, p.partition): LATEST for p in described})
        for p in described:
            high_watermark = offsets[TopicPartition(TOPIC, p.partition)].offset
            disks = {b: self.partition_disk(TOPIC, p.partition, b, high_watermark) for b in p.replicas}
            wrong += self.checkers[p.partition].check(
                disks, high_watermark, self.load.partitions[p.partition].offsets
            )
        return wrong + self.metadata_violations()

    def partition_disk(self, topic: str, partition: int, broker: int, high_watermark: int) -> Disk:
        """A replica's log, from the directory that has it, when it has all records below the high
        watermark."""
        folders = [d / f"{topic}-{partition}" for d in self.directories(self.broker_of(broker))]
        found = [folder for folder in folders if folder.is_dir()]
        assert len(found) == 1, f"{topic}-{partition} of broker {broker} is in {found}"
        deadline = time.monotonic() + 10
        while True:
            disk = read_folder(found[0])
            if disk.end >= high_watermark - 1 or time.monotonic() > deadline:
                return disk
            time.sleep(0.02)  # polls the disk of another process

    def metadata_violations(self) -> list[str]:
        disks = {c.node_id: read_disk(c.data) for c in self.controllers}
        end = min(disk.end for disk in disks.values())
        return differences(disks, end, self.metadata_sums) + same_metadata(
            disk.image_at(end) for disk in disks.values()
        )

    def restart(self, nodes: Sequence[MixedNode]) -> None:
        """Starts nodes that are down, and waits until everything is in sync."""
        for node in nodes:
            node.start(wait=False)
        for node in nodes:
            node.wait_ready(180)
        self.in_sync()
