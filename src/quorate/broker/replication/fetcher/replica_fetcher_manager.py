"""Starts and stops the replica fetchers of a broker (`ReplicaFetcherManager` in Kafka)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from quorate.broker.replication.fetcher.replica_fetcher import FetcherHost, ReplicaFetcher

if TYPE_CHECKING:
    from quorate.broker.replication.partition import Partition
    from quorate.config.kafka_config import KafkaConfig


class Fetchers(Protocol):
    """Copies partitions from their leaders."""

    def start_following(self, partition: Partition) -> None:
        """Copies the partition from its current leader."""
        ...

    def stop_following(self, partition: Partition) -> None:
        """Stops copying the partition, if it is copied."""
        ...

    def lags(self) -> Iterator[tuple[int, Iterator[tuple[Partition, int]]]]:
        """(leader, lag of each partition that is copied from it)."""
        ...

    @property
    def failed_count(self) -> int:
        """The number of followed partitions whose last data caused an unexpected error."""
        ...

    async def close(self) -> None:
        """Stops all fetchers and waits for their tasks."""
        ...


class ReplicaFetcherManager:
    """The fetchers of this broker, one for each leader that it follows."""

    def __init__(
        self,
        config: KafkaConfig,
        replicas: FetcherHost,
        broker_epoch: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._broker_epoch = broker_epoch
        self._loop = loop
        self._fetchers: dict[int, ReplicaFetcher] = {}

    def lags(self) -> Iterator[tuple[int, Iterator[tuple[Partition, int]]]]:
        """(leader, lag of each partition that is copied from it)."""
        return ((leader_id, fetcher.lags()) for leader_id, fetcher in list(self._fetchers.items()))

    @property
    def failed_count(self) -> int:
        """The number of followed partitions whose last data caused an unexpected error."""
        return sum([fetcher.failed_count for fetcher in self._fetchers.values()])

    def start_following(self, partition: Partition) -> None:
        """Copies the partition from its current leader."""
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is None:
            fetcher = self._fetchers[partition.leader_id] = ReplicaFetcher(
                partition.leader_id, self._config, self._replicas, self._broker_epoch, self._loop
            )
        fetcher.add(partition)

    def stop_following(self, partition: Partition) -> None:
        """Stops copying the partition. A fetcher without partitions is closed."""
        for leader_id, fetcher in list(self._fetchers.items()):
            if fetcher.remove(partition) and fetcher.is_idle:
                del self._fetchers[leader_id]
                fetcher.stop()

    async def close(self) -> None:
        """Stops all fetchers and waits for their tasks."""
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        for fetcher in fetchers:
            fetcher.stop()
        await asyncio.gather(*(fetcher.stopped() for fetcher in fetchers))
