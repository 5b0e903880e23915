"""A small producer, as the console tool needs it: idempotent where it may be, one request in flight for each partition, order
kept over retries.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from quorate.admin.errors import ErrorCode, KafkaConnectionError, KafkaError, RequestTimedOut
from quorate.admin.topic_metadata import TopicMetadata
from quorate.admin.transport import Transport
from quorate.records.batch import build_batch
from quorate.records.compression import Compression

Headers = tuple[tuple[str, bytes | None], ...]

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash by which Kafka's clients choose the partition of a key (32 bits, sign cut off by the caller)."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """`acks` -1 is "all"; times in seconds."""

    acks: int = -1
    compression: Compression = Compression.NONE
    linger_s: float = 0.005
    batch_bytes: int = 16 * 1024
    request_timeout_s: float = 30.0
    delivery_timeout_s: float = 120.0
    idempotent: bool = True
    retries: int = 2**31 - 1
    retry_backoff_s: float = 0.1
    max_request_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record stands; offset -1 with acks 0."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class _Pending:
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    future: asyncio.Future[RecordMetadata]
    size: int


class _Lane:
    """The records of one partition that wait to be sent, and the sequence of the next batch."""

    __slots__ = ("bytes_waiting", "partition", "queue", "sequence", "task", "topic", "wake")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.queue: deque[_Pending] = deque()
        self.bytes_waiting = 0
        self.sequence = 0
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Producer:
    """`send` queues and gives a future; `flush` waits for all of them; `close` flushes and stops."""

    def __init__(self, transport: Transport, config: ProducerConfig | None = None) -> None:
        self.transport = transport
        self.config = config or ProducerConfig()
        self.metadata = TopicMetadata(transport)
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._sticky: dict[str, tuple[int, int]] = {}
        self._producer: tuple[int, int] | None = None
        self._identifying = asyncio.Lock()
        self._unsent = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._flushing = False

    async def send(
        self, topic: str, value: bytes | None, *, key: bytes | None = None, headers: Headers = (), partition: int | None = None
    ) -> asyncio.Future[RecordMetadata]:
        """Queues a record. Raises what the topic cannot be had for, RECORD too large as MESSAGE_TOO_LARGE."""
        size = len(key or b"") + len(value or b"") + sum(len(k) + len(v or b"") for k, v in headers) + 70
        if size > self.config.max_request_bytes:
            text = f"The message is {size} bytes when serialized which is larger than {self.config.max_request_bytes}"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{text}, which is the value of the max.request.size configuration.")
        if partition is None:
            count = len((await self.metadata.topic(topic)).leaders)
            partition = self._partition(topic, key, count, size)
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane(topic, partition)
            lane.task = asyncio.get_running_loop().create_task(self._run(lane), name=f"produce {topic}-{partition}")
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        lane.queue.append(_Pending(key, value, headers, time.time_ns() // 1_000_000, future, size))
        lane.bytes_waiting += size
        self._unsent += 1
        self._idle.clear()
        if lane.bytes_waiting >= self.config.batch_bytes or len(lane.queue) == 1:
            lane.wake.set()
        return future

    def _partition(self, topic: str, key: bytes | None, count: int, size: int) -> int:
        if key is not None:
            return (murmur2(key) & 0x7FFFFFFF) % count
        # Without a key records stay with one partition for a batch's worth, so that batches fill.
        current, filled = self._sticky.get(topic, (0, 0))
        if filled >= self.config.batch_bytes:
            current, filled = current + 1, 0
        self._sticky[topic] = (current, filled + size)
        return current % count

    @property
    def queued(self) -> int:
        """Records that are not answered yet."""
        return self._unsent

    async def flush(self) -> None:
        """Returns when everything sent so far has been answered."""
        self._flushing = True
        for lane in self._lanes.values():
            lane.wake.set()
        await self._idle.wait()
        self._flushing = False

    async def close(self) -> None:
        await self.flush()
        for lane in self._lanes.values():
            if lane.task is not None:
                lane.task.cancel()

    # -- one partition's sender ------------------------------------------------------------------------------------------

    async def _run(self, lane: _Lane) -> None:
        while True:
            await lane.wake.wait()
            lane.wake.clear()
            if lane.queue and not self._flushing and lane.bytes_waiting < self.config.batch_bytes and self.config.linger_s > 0:
                try:
                    async with asyncio.timeout(self.config.linger_s):
                        await lane.wake.wait()
                except TimeoutError:
                    pass
            while lane.queue:
                await self._send_batch(lane, self._take(lane))

    def _take(self, lane: _Lane) -> list[_Pending]:
        batch = [lane.queue.popleft()]
        size = batch[0].size
        while lane.queue and size + lane.queue[0].size <= self.config.batch_bytes:
            size += lane.queue[0].size
            batch.append(lane.queue.popleft())
        lane.bytes_waiting -= size
        return batch

    async def _send_batch(self, lane: _Lane, batch: list[_Pending]) -> None:
        try:
            base = await self._deliver(lane, batch)
        except Exception as error:
            for pending in batch:
                if not pending.future.done():
                    pending.future.set_exception(error)
        else:
            lane.sequence = (lane.sequence + len(batch)) & 0x7FFFFFFF
            for index, pending in enumerate(batch):
                if not pending.future.done():
                    offset = base + index if base >= 0 else -1
                    pending.future.set_result(RecordMetadata(lane.topic, lane.partition, offset))
        self._unsent -= len(batch)
        if not self._unsent:
            self._idle.set()

    async def _deliver(self, lane: _Lane, batch: list[_Pending]) -> int:
        """Sends a batch until it is accepted; its base offset. A duplicate of an earlier attempt counts as accepted."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.delivery_timeout_s
        producer_id, epoch = await self._identity()
        data = build_batch(
            [(p.key, p.value, p.headers, p.timestamp_ms) for p in batch],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=lane.sequence if producer_id >= 0 else -1,
            compression=self.config.compression,
        )
        backoff, attempts = self.config.retry_backoff_s, 0
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._attempt(lane, data)
            except TimeoutError as error:
                if not isinstance(error, RequestTimedOut) or self._given_up(attempts, deadline):
                    age_ms = int(self.config.delivery_timeout_s * 1000)
                    where = f"{lane.topic}-{lane.partition}"
                    raise RequestTimedOut(f"Expiring {len(batch)} record(s) for {where}: {age_ms} ms has passed") from error
            except KafkaConnectionError:
                if self._given_up(attempts, deadline):
                    raise
            except KafkaError as error:
                if error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    return -1
                if not error.code.retriable or self._given_up(attempts, deadline):
                    raise
            attempts += 1
            self.metadata.forget(lane.topic)
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, 1.0)

    def _given_up(self, attempts: int, deadline: float) -> bool:
        return attempts >= self.config.retries or asyncio.get_running_loop().time() >= deadline

    async def _attempt(self, lane: _Lane, data: bytes) -> int:
        from quorate.protocol.messages.produce import ProduceRequest

        topic = await self.metadata.topic(lane.topic)
        if lane.partition >= len(topic.leaders):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {lane.topic}-{lane.partition}.")
        leader = topic.leaders[lane.partition]
        if leader < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        entry = ProduceRequest.PartitionProduceData(index=lane.partition, records=data)
        request = ProduceRequest(
            acks=self.config.acks,
            timeout_ms=int(self.config.request_timeout_s * 1000),
            topic_data=[ProduceRequest.TopicProduceData(name=lane.topic, topic_id=topic.topic_id, partition_data=[entry])],
        )
        host, port = await self.transport.address_of(leader)
        connection = await self.transport.connection((host, port))
        if self.config.acks == 0:
            await connection.send(request, expect_answer=False)
            return -1
        answer: Any = await connection.call(request, self.config.request_timeout_s)
        result = answer.responses[0].partition_responses[0]
        if result.error_code:
            raise KafkaError(ErrorCode.of(result.error_code), result.error_message)
        return int(result.base_offset)

    async def _identity(self) -> tuple[int, int]:
        """Producer id and epoch; -1, -1 for a producer that is not idempotent."""
        if not self.config.idempotent or self.config.acks != -1:
            return -1, -1
        async with self._identifying:
            if self._producer is None:
                from quorate.protocol.messages.init_producer_id import InitProducerIdRequest

                async def attempt() -> tuple[int, int]:
                    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
                    answer = await self.transport.ask(await self.transport.any_address(), request)
                    if answer.error_code:
                        raise KafkaError(ErrorCode.of(answer.error_code))
                    return answer.producer_id, answer.producer_epoch

                self._producer = await self.transport.until_answered(attempt, "a producer id")
            return self._producer
