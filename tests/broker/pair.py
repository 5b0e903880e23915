"""A follower and its leader on real logs, without a network."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from quorate.broker.replication.fetcher.replica_fetcher import ReplicaFetcher
from quorate.protocol.api import REGISTRY

from .fakes import broker, registration
from .world import Broker, batch_of, image_of, produce, values_in

LEADER, FOLLOWER = 1, 2


class Wire:
    """Carries requests to a broker's handlers as a connection would."""

    def __init__(self, to: Broker) -> None:
        self.to = to
        self.requests: list[Any] = []

    async def call(self, request: Any, timeout_s: float) -> Any:
        self.requests.append(request)
        answer = self.to.ask(request)
        if asyncio.isfuture(answer) or asyncio.iscoroutine(answer):
            key = int(type(request).KEY)
            answer = Broker.coded(await answer, key, REGISTRY[key].max_version)
        return answer

    def close(self) -> None:
        pass


class JoinedFetcher(ReplicaFetcher):
    """Runs rounds when the test says so."""

    wire: Wire

    async def _run(self) -> None:
        pass

    def _leader_channel(self) -> Any:
        return self.wire


def placed(
    leader: int = LEADER,
    epoch: int = 0,
    partition_epoch: int = 0,
    isr: tuple[int, ...] = (1, 2),
    partitions: int = 1,
):
    one = registration(
        replicas=(1, 2), isr=isr, leader=leader, leader_epoch=epoch, partition_epoch=partition_epoch
    )
    return image_of(
        {"t": dict.fromkeys(range(partitions), one)},
        brokers=(broker(1, epoch=100), broker(2, epoch=200)),
    )


class Pair:
    """Two brokers; each may follow the other."""

    def __init__(self, directory: Path, image: Any = None) -> None:
        self.loop = asyncio.new_event_loop()
        image = image or placed()
        self.brokers = {
            1: Broker(directory, image, node_id=1, loop=self.loop),
            2: Broker(directory, image, node_id=2, loop=self.loop),
        }
        self.fetcher: JoinedFetcher | None = None

    def log(self, node_id: int, partition: int = 0):
        return self.brokers[node_id].replicas.partition("t", partition).log

    def publish(self, image: Any) -> None:
        for one in self.brokers.values():
            one.publish(image)

    def follow(self, leader: int = LEADER, follower: int = FOLLOWER) -> Wire:
        """The follower copies from the leader from now on."""
        here = self.brokers[follower]

        async def make() -> JoinedFetcher:
            return JoinedFetcher(leader, here.config, here.replicas, lambda: follower * 100, self.loop)

        self.fetcher = self.loop.run_until_complete(make())
        self.fetcher._max_wait_ms = 0
        self.fetcher.wire = Wire(self.brokers[leader])
        for partition in here.replicas.partitions.values():
            self.fetcher.add(partition)
        return self.fetcher.wire

    def rounds(self, count: int = 1) -> None:
        assert self.fetcher is not None
        for _ in range(count):
            self.loop.run_until_complete(self.fetcher._fetch_once())

    def values(self, node_id: int) -> list[bytes]:
        log = self.log(node_id)
        return values_in(log.read_bytes(log.log_start_offset, 1 << 20))

    def close(self) -> None:
        for one in self.brokers.values():
            one.logs.close(broker_epoch=1)
        self.loop.close()


def write(pair: Pair, node_id: int, *values: bytes, partition: int = 0) -> None:
    pair.brokers[node_id].ask(produce("t", (partition, batch_of(*values)), acks=1))
