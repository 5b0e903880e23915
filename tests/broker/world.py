"""A broker without a network: real logs on disk, real handlers, metadata set by the test."""

from __future__ import annotations

import asyncio
import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from immutables import Map

from quorate.broker.alter_log_dirs.manager import ReplicaAlterLogDirsManager
from quorate.broker.handlers import BrokerHandlers, Services
from quorate.broker.handlers.produce import ProduceHandler
from quorate.broker.metadata.cache import MetadataCache
from quorate.broker.replication.fetch_session import FetchSessionCache, FetchSessions
from quorate.broker.replication.replica_manager import ReplicaManager
from quorate.config.kafka_config import KafkaConfig
from quorate.log.config import LogConfig
from quorate.log.directories.manager import LogManager
from quorate.log.files import OpenFiles
from quorate.metadata.image import (
    EMPTY,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
)
from quorate.metadata.image.cluster import ClusterImage
from quorate.metadata.image.partition_table import EMPTY_TABLE
from quorate.net.dispatch import RequestContext
from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.messages.produce import ProduceRequest
from quorate.records.batch import build_batch, decode_records, iter_batches

from .fakes import ME, Asked, FakeClock, broker

PROPERTIES = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}


def topic_id_of(name: str) -> bytes:
    return name.encode().ljust(16, b"\1")[:16]


def image_of(
    topics: dict[str, dict[int, PartitionImage]],
    brokers: Any = None,
    configs: dict[tuple[int, str], dict[str, str]] | None = None,
) -> MetadataImage:
    """An image with these topics, built by hand."""
    from dataclasses import replace

    made = {
        name: TopicImage(name, topic_id_of(name), EMPTY_TABLE.updated(partitions))
        for name, partitions in topics.items()
    }
    replica_index: dict[int, dict[bytes, int]] = {}
    for topic in made.values():
        for partition, image in topic.partitions.items():
            for replica in image.replicas:
                held = replica_index.setdefault(replica, {})
                held[topic.id] = held.get(topic.id, 0) | 1 << partition
    image = replace(
        EMPTY,
        cluster=ClusterImage(brokers=Map({b.id: b for b in brokers or (broker(1), broker(2), broker(3))})),
        topics=TopicsImage(
            by_id=Map({topic.id: topic for topic in made.values()}),
            by_name=Map(made),
            partition_count=sum(len(topic.partitions) for topic in made.values()),
            replica_index=Map({b: Map(held) for b, held in replica_index.items()}),
        ),
    )
    if configs:
        resources = Map({key: Map(entries) for key, entries in configs.items()})
        image = replace(image, configs=replace(image.configs, resources=resources))
    return image


class Broker:
    """One broker's replicas, logs and handlers."""

    def __init__(
        self,
        directory: Path,
        image: MetadataImage,
        *,
        node_id: int = ME,
        loop: asyncio.AbstractEventLoop | None = None,
        extra_dirs: tuple[str, ...] = (),
        **properties: str,
    ) -> None:
        self.loop = loop or asyncio.new_event_loop()
        self.clock = FakeClock()
        self.node_id = node_id
        dirs = [directory / f"data{node_id}{suffix}" for suffix in ("", *extra_dirs)]
        for data in dirs:
            data.mkdir(parents=True, exist_ok=True)
        self.config = KafkaConfig(
            PROPERTIES
            | {"node.id": str(node_id), "log.dirs": ",".join(map(str, dirs))}
            | {key.replace("_", "."): value for key, value in properties.items()}
        )
        self.metadata = MetadataCache(image)
        self.files = OpenFiles(64)
        self.directory_ids = {data: bytes([100 + n]) * 16 for n, data in enumerate(dirs)}
        self.logs = LogManager(
            dirs, LogConfig(), self.files, now_ms=self.clock.now_ms, directory_ids=self.directory_ids
        )
        self.replicas = ReplicaManager(
            node_id=node_id,
            metadata=self.metadata,
            logs=self.logs,
            clock=self.clock,
            loop=self.loop,
            replica_lag_max_s=30.0,
            isr_sender=Asked(),
            directory_id_of=self.directory_ids.__getitem__,
        )
        ids = itertools.count(1)
        self.moves = ReplicaAlterLogDirsManager(self.config, self.replicas, self.logs)
        self.services = Services(
            config=self.config,
            cluster_id="c",
            node_id=node_id,
            metadata=self.metadata,
            replicas=self.replicas,
            logs=self.logs,
            sessions=FetchSessions(FetchSessionCache(10, 1000, lambda: next(ids)), self.metadata.topic_name),
            channel=SimpleNamespace(forward=None, api_versions=None),  # type: ignore[arg-type]
            creator=None,  # type: ignore[arg-type]
            moves=self.moves,
            clock=self.clock,
            loop=self.loop,
        )
        self.handlers = BrokerHandlers(self.services).routes
        self.produce_handler = self.handlers[int(ApiKey.PRODUCE)] = ProduceHandler(self.services)
        self.produce_handler.turn_s = math.inf  # a slow machine must not turn an answer into a coroutine
        self.replicas.apply_image(image)

    def publish(self, image: MetadataImage) -> None:
        """Publishes an image."""
        old = self.metadata.image
        self.metadata.image = image
        delta = MetadataDelta(old, image)
        self.logs.reconfigure(
            {name: image.configs.topic(name) for kind, name in delta.configs_changed if kind == 2}
        )
        self.replicas.apply_delta(delta)

    def ask(self, request: Any, version: int | None = None, **context: Any) -> Any:
        """Encodes and decodes a request, runs its handler, and does the same with the answer. A future
        is returned as it is."""
        key = type(request).KEY
        spec = REGISTRY[key]
        version = spec.max_version if version is None else version
        decoded = spec.request.decode(request.encode(version), version)
        ctx = RequestContext(int(key), version, 1, context.pop("client_id", "me"), "PLAINTEXT", **context)
        answer = self.handlers[int(key)](ctx, decoded)
        if answer is None or asyncio.isfuture(answer) or asyncio.iscoroutine(answer):
            return answer
        return self.coded(answer, key, version)

    @staticmethod
    def coded(answer: Any, key: int, version: int) -> Any:
        return REGISTRY[int(key)].response.decode(answer.encode(version), version)

    def wait(self, future: Any, key: ApiKey, version: int | None = None) -> Any:
        """Waits for the response of a future."""

        async def bounded() -> Any:
            return await asyncio.wait_for(future, 10)

        answer = self.loop.run_until_complete(bounded())
        return self.coded(answer, int(key), REGISTRY[int(key)].max_version if version is None else version)

    def turn(self) -> None:
        """Runs some turns of the event loop."""
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))

    def close(self) -> None:
        self.logs.close(broker_epoch=1)
        self.loop.close()


def batch_of(*values: bytes, timestamp: int = 1_000_000, **kwargs: Any) -> bytes:
    return build_batch([(None, value, [], timestamp + i) for i, value in enumerate(values)], **kwargs)


def produce(
    topic: str, *batches: tuple[int, bytes], acks: int = -1, timeout_ms: int = 5000
) -> ProduceRequest:
    """One request with one batch for each (partition, batch)."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                topic_id=topic_id_of(topic),
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=index, records=batch)
                    for index, batch in batches
                ],
            )
        ],
    )


def values_in(records: Any) -> list[bytes]:
    """The values of the records in a Fetch response."""
    if not records:
        return []
    return [record.value or b"" for _, batch in iter_batches(records) for record in decode_records(batch)]
