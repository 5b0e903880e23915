"""Producers and consumers. They speak Kafka's protocol over the simulated network, find leaders by what
brokers believe, stale or not, and report what they see to the checker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from quorate.metadata.image import MetadataImage
from quorate.net.channel import NodeChannel
from quorate.net.errors import NetError
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.list_offsets import ListOffsetsRequest
from quorate.protocol.messages.produce import ProduceRequest
from quorate.records.batch import RecordTuple, build_batch, iter_batches, parse_header
from simulation.replication.checker import Key
from simulation.replication.environment import Environment
from simulation.replication.process import PORT, BrokerProcess, ClientOwner

LATEST, EARLIEST = -1, -2
_REQUEST_S = 4.0
_DONE = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_GONE = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Clients:
    """What all clients share."""

    def __init__(
        self,
        environment: Environment,
        brokers: dict[int, BrokerProcess],
        image: Callable[[], MetadataImage],
    ) -> None:
        self.environment = environment
        self.owner = ClientOwner(environment, "cl")
        self.rng = random.Random(environment.rng.getrandbits(32))
        self.running = True
        self.last_number = 0
        self.acknowledged = 0
        self.consumed = 0
        self.pending = 0
        """Batches with acks=all whose outcome is open."""
        self._brokers = brokers
        self._image = image
        self._channels: dict[tuple[int, int], NodeChannel] = {}

    def partitions(self) -> list[Key]:
        """All partitions that exist."""
        topics = self._image().topics.by_name
        return [
            (topics[name].id, index) for name in sorted(topics) for index in topics[name].partitions.ids()
        ]

    def exists(self, key: Key) -> bool:
        return key[0] in self._image().topics.by_id

    def has_leader(self, key: Key) -> bool:
        """Whether the metadata has a leader. Without one a producer gives up at the end."""
        topic = self._image().topics.by_id.get(key[0])
        return topic is not None and topic.partitions[key[1]].leader >= 0

    def replica(self, key: Key) -> tuple[int, int]:
        """A replica of the partition, and the leader epoch, both from the newest metadata."""
        partition = self._image().topics.by_id[key[0]].partitions[key[1]]
        return self.rng.choice(partition.replicas), partition.leader_epoch

    def name(self, key: Key) -> str:
        return self._image().topics.by_id[key[0]].name

    def leader(self, key: Key) -> int:
        """A broker that believes to lead the partition, else any."""
        found = [
            broker.id
            for broker in self._brokers.values()
            if (server := broker.server) is not None
            and any(
                hosted.is_leader and (hosted.topic_id, hosted.partition) == key
                for hosted in server.replicas.partitions.values()
            )
        ]
        return self.rng.choice(found or list(self._brokers))

    def channel(self, client: int, broker: int) -> NodeChannel:
        found = self._channels.get((client, broker))
        if found is None:
            found = self._channels[client, broker] = NodeChannel(
                f"b{broker}", PORT, client_id=f"client-{client}", connect_timeout_s=3.0
            )
        return found

    async def pause(self, mean_s: float) -> None:
        await asyncio.sleep(self.rng.expovariate(1 / mean_s))

    def start(self) -> None:
        work = self.environment.config.workload
        number = 0
        for _ in range(work.producers):
            number += 1
            self.owner.spawn(Producer(self, number).run(work.produce_every_s))
        for _ in range(work.unsafe_producers):
            number += 1
            self.owner.spawn(UnsafeProducer(self, number).run(work.produce_every_s))
        for from_replicas in (False,) * work.consumers + (True,) * work.consumers_of_replicas:
            number += 1
            self.owner.spawn(Consumer(self, number, from_replicas=from_replicas).run())


def _produce(topic: str, key: Key, batch: bytes, acks: int) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=key[1], records=batch)
    return ProduceRequest(
        acks=acks,
        timeout_ms=2000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, topic_id=key[0], partition_data=[data])],
    )


@dataclass(slots=True)
class _ProducerState:
    """The id of an idempotent producer for one partition, and its next sequence number."""

    producer_id: int
    sequence: int = 0


class Producer:
    """An idempotent producer with acks=all. It repeats a batch until its outcome is known."""

    def __init__(self, clients: Clients, number: int) -> None:
        self._clients = clients
        self._number = number
        self._states: dict[Key, _ProducerState] = {}

    async def run(self, every_s: float) -> None:
        clients = self._clients
        while clients.running:
            await clients.pause(every_s)
            keys = clients.partitions()
            if keys and clients.running:
                clients.pending += 1
                await self._send(clients.rng.choice(keys))
                clients.pending -= 1

    def _batch(self, state: _ProducerState) -> tuple[bytes, int]:
        clients = self._clients
        count = clients.rng.choice((1, 1, 2, 5))
        records: list[RecordTuple] = []
        for _ in range(count):
            clients.last_number += 1
            value = clients.last_number.to_bytes(8, "big") + bytes(clients.rng.choice((0, 20, 300)))
            records.append((None, value, [], clients.environment.now_ms()))
        batch = build_batch(
            records, producer_id=state.producer_id, producer_epoch=0, base_sequence=state.sequence
        )
        return batch, count

    async def _send(self, key: Key) -> None:
        clients = self._clients
        state = self._states.get(key)
        if state is None:
            clients.last_number += 1
            state = self._states[key] = _ProducerState(clients.last_number)
        batch, count = self._batch(state)
        crc = parse_header(batch).crc
        while clients.running or clients.has_leader(key):
            if not clients.exists(key):
                break
            channel = clients.channel(self._number, clients.leader(key))
            try:
                response = await channel.call(_produce(clients.name(key), key, batch, -1), _REQUEST_S)
            except (NetError, OSError):
                await clients.pause(0.1)
                continue
            data = response.responses[0].partition_responses[0]
            error = ErrorCode.of(data.error_code)
            if error in _DONE:
                state.sequence += count
                if error == ErrorCode.NONE:
                    clients.acknowledged += 1
                    clients.environment.trace(
                        "cl", f"{clients.environment.checker.name(key)} acknowledges {data.base_offset}"
                    )
                    clients.environment.checker.acknowledged(key, data.base_offset, crc)
                return
            clients.environment.coverage[f"produce: {error.name}"] += 1
            if clients.environment.checker.guaranteed(key) is None and error not in _GONE:
                del self._states[key]  # its records may be lost, and its sequence broken
                return
            await clients.pause(0.1)
        self._states.pop(key, None)


class UnsafeProducer:
    """A producer with acks=0 or 1 and without idempotence, which repeats nothing."""

    def __init__(self, clients: Clients, number: int) -> None:
        self._clients = clients
        self._number = number

    async def run(self, every_s: float) -> None:
        clients = self._clients
        while clients.running:
            await clients.pause(every_s)
            keys = clients.partitions()
            if keys and clients.running:
                await self._send(clients.rng.choice(keys))

    async def _send(self, key: Key) -> None:
        clients = self._clients
        clients.last_number += 1
        value = clients.last_number.to_bytes(8, "big")
        batch = build_batch([(None, value, [], clients.environment.now_ms())])
        acks = clients.rng.choice((0, 1))
        channel = clients.channel(self._number, clients.leader(key))
        request = _produce(clients.name(key), key, batch, acks)
        try:
            if acks:
                await channel.call(request, _REQUEST_S)
            else:
                async with asyncio.timeout(_REQUEST_S):
                    connection = await channel.connected()
                connection.send(request, expect_answer=False)
        except (NetError, OSError, TimeoutError):
            pass


class Consumer:
    """Reads every partition from its start, with isolation read_uncommitted."""

    def __init__(self, clients: Clients, number: int, *, from_replicas: bool) -> None:
        """`from_replicas`: it reads from any replica (KIP-392) in the leader epoch that it knows.

        Otherwise it reads from those that believe to lead, without a leader epoch.
        """
        self._clients = clients
        self._number = number
        self._from_replicas = from_replicas
        self._positions: dict[Key, int] = {}
        self._epochs: dict[Key, int] = {}

    async def run(self) -> None:
        clients = self._clients
        while clients.running:
            keys = clients.partitions()
            if not keys:
                await clients.pause(0.2)
                continue
            key = clients.rng.choice(keys)
            try:
                if self._from_replicas:
                    broker, epoch = clients.replica(key)
                    epoch = self._epochs[key] = max(epoch, self._epochs.get(key, -1))
                else:
                    broker, epoch = clients.leader(key), -1
                channel = clients.channel(self._number, broker)
                progressed = await self._fetch(key, channel, epoch)
                if not self._from_replicas and clients.rng.random() < 0.1:
                    await self._check_latest(key, channel)
            except (NetError, OSError):
                progressed = False
            if not progressed:
                await clients.pause(0.1)

    async def _fetch(self, key: Key, channel: NodeChannel, epoch: int) -> bool:
        clients = self._clients
        position = self._positions.setdefault(key, 0)
        request = FetchRequest(
            max_wait_ms=clients.rng.choice((0, 200)),
            min_bytes=1,
            max_bytes=clients.rng.choice((1, 2000, 1 << 20)),
            topics=[
                FetchRequest.FetchTopic(
                    topic_id=key[0],
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=key[1],
                            current_leader_epoch=epoch,
                            fetch_offset=position,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
            ],
        )
        response = await channel.call(request, _REQUEST_S)
        if response.error_code or not response.responses:
            return False
        data = response.responses[0].partitions[0]
        checker = clients.environment.checker
        if self._from_replicas:
            clients.environment.coverage[f"fetch: {ErrorCode.of(data.error_code).name}"] += 1
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._from_replicas:
                checker.out_of_range(key, position)
                channel = clients.channel(self._number, clients.leader(key))
            self._positions[key] = await self._earliest(key, channel, position)
            return False
        if data.error_code:
            return False
        checker.shown(key, data.high_watermark)
        for header, _ in _batches(data.records):
            if header.last_offset >= position:
                checker.consumed(key, header.base_offset, header.leader_epoch, header.crc)
                clients.consumed += 1
                self._positions[key] = header.last_offset + 1
        return self._positions[key] != position

    async def _earliest(self, key: Key, channel: NodeChannel, position: int) -> int:
        answer = await self._offset(key, channel, EARLIEST)
        return position if answer is None or answer.error_code else int(answer.offset)

    async def _check_latest(self, key: Key, channel: NodeChannel) -> None:
        """Requests the latest offset, which must not fall with a new leader (KIP-207)."""
        committed = self._clients.environment.checker.committed(key)
        answer = await self._offset(key, channel, LATEST)
        if answer is not None and not answer.error_code:
            self._clients.environment.checker.latest_offset(
                key, answer.offset, answer.leader_epoch, committed
            )

    async def _offset(self, key: Key, channel: NodeChannel, timestamp: int) -> Any:
        clients = self._clients
        if not clients.exists(key):
            return None
        partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=key[1], timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsRequest.ListOffsetsTopic(name=clients.name(key), partitions=[partition])],
        )
        response = await channel.call(request, _REQUEST_S)
        return response.topics[0].partitions[0] if clients.exists(key) else None


def _batches(records: Any) -> Iterable[tuple[Any, Any]]:
    return iter_batches(records) if records else ()
