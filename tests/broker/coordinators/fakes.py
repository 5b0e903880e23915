"""What the group service stands on, in memory: logs of real record batches, metadata, a controller channel, a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from quorate.broker.coordinators.service import GroupService
from quorate.net.dispatch import RequestContext
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records.batch import parse_header, set_placement

OFFSETS = "__consumer_offsets"


class FakeLog:
    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.reads = 0

    def append(self, batch: bytes) -> int:
        placed = bytearray(batch)
        base = self.log_end_offset
        set_placement(placed, base, 0)
        self.batches.append(bytes(placed))
        self.log_end_offset = base + parse_header(placed).count
        return base

    def read_bytes(self, offset: int, max_bytes: int) -> bytes:
        self.reads += 1
        found = b""
        for batch in self.batches:
            if parse_header(batch).last_offset >= offset and (not found or len(found) + len(batch) <= max_bytes):
                found += batch
        return found


class FakePartition:
    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.waiters: list[tuple[int, Any, int]] = []

    def add_ack_waiter(self, required: int, waiter: Any, index: int) -> None:
        self.waiters.append((required, waiter, index))

    def settle(self, error: ErrorCode = ErrorCode.NONE) -> None:
        ready, self.waiters = (
            [w for w in self.waiters if error or w[0] <= self.log.high_watermark],
            [w for w in self.waiters if not error and w[0] > self.log.high_watermark],
        )
        for _, waiter, index in ready:
            waiter.acked(index, error)


class FakeReplicas:
    """`hold`: the high watermark stays behind until `release`."""

    def __init__(self) -> None:
        self.logs: dict[int, FakeLog] = {}
        self.partitions: dict[int, FakePartition] = {}
        self.listener: Callable[[str, int, int | None], None] | None = None
        self.hold = False
        self.fail_with: ErrorCode | None = None
        self.made: list[str] = []
        self.on_make: Callable[[str], None] | None = None

    def log(self, partition: int) -> FakeLog:
        log = self.logs.setdefault(partition, FakeLog())
        self.partitions.setdefault(partition, FakePartition(log))
        return log

    def local_log(self, topic: str, partition: int) -> FakeLog:
        assert topic == OFFSETS
        return self.log(partition)

    def partition(self, topic: str, partition: int) -> FakePartition:
        self.log(partition)
        return self.partitions[partition]

    def append_internal(self, topic: str, partition: int, batch: bytes, *, timeout_s: float = 5.0) -> asyncio.Future[int]:
        from quorate.broker.delayed import DelayedAcks

        if self.fail_with is not None:
            raise KafkaError(self.fail_with)
        log = self.log(partition)
        base = log.append(batch)
        loop = asyncio.get_running_loop()
        if not self.hold:
            log.high_watermark = log.log_end_offset
            done: asyncio.Future[int] = loop.create_future()
            done.set_result(base)
            return done
        errors: list[ErrorCode] = []

        def finish() -> int:
            if errors[0]:
                raise KafkaError(errors[0])
            return base

        waits: Any = [(self.partitions[partition], log.log_end_offset)]
        return DelayedAcks(loop, waits, timeout_s, lambda _, e: errors.append(e), finish).future

    def release(self) -> None:
        for log in self.logs.values():
            log.high_watermark = log.log_end_offset
        for partition in self.partitions.values():
            partition.settle()

    def subscribe_leadership(self, listener: Callable[[str, int, int | None], None], topic: str | None = None) -> None:
        self.listener = listener

    def lead(self, partition: int, epoch: int | None = 0) -> None:
        assert self.listener is not None
        self.listener(OFFSETS, partition, epoch)

    async def ensure_topic(self, name: str) -> None:
        self.made.append(name)
        await asyncio.sleep(0)
        if self.on_make is not None:
            self.on_make(name)


@dataclass
class FakeMetadata:
    """Topics by name with their partition counts; everything is led by broker 1."""

    topics: dict[str, int] = field(default_factory=dict)
    ids: dict[bytes, str] = field(default_factory=dict)
    fenced: bool = False

    def topic(self, name: str) -> Any:
        count = self.topics.get(name)
        return None if count is None else SimpleNamespace(partitions=range(count))

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.ids.get(topic_id)

    def partition(self, topic: str, partition: int) -> Any:
        return SimpleNamespace(leader=1) if partition in range(self.topics.get(topic, 0)) else None

    def endpoint(self, broker_id: int, listener: str) -> Any:
        return SimpleNamespace(host=f"{listener.lower()}.example", port=9092)

    def is_fenced(self, broker_id: int) -> bool:
        return self.fenced

    def broker(self, broker_id: int) -> Any:
        return SimpleNamespace(epoch=7)


class FakeClock:
    """The loop's monotonic time; a wall clock that can be turned."""

    offset_ms = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.offset_ms

    def now(self) -> float:
        return asyncio.get_running_loop().time()


class FakeSettings(dict[str, Any]):
    def get(self, name: str, default: Any = None) -> Any:
        return self[name]


def settings(**changes: Any) -> FakeSettings:
    values = {
        "node.id": 1,
        "group.min.session.timeout.ms": 6_000,
        "group.max.session.timeout.ms": 1_800_000,
        "group.initial.rebalance.delay.ms": 0,
        "group.max.size": 2**31 - 1,
        "offset.metadata.max.bytes": 4096,
        "offsets.retention.minutes": 10_080,
        "offsets.retention.check.interval.ms": 600_000,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.compression.codec": 0,
        "offsets.commit.timeout.ms": 5_000,
        "transaction.state.log.num.partitions": 50,
    }
    return FakeSettings(values | {name.replace("_", "."): value for name, value in changes.items()})


class World:
    """A group service with everything around it; all four offsets partitions are led unless `lead` says otherwise."""

    def __init__(self, *, lead: bool = True, **changes: Any) -> None:
        self.replicas = FakeReplicas()
        self.metadata = FakeMetadata({OFFSETS: 4, "t": 3})
        self.clock = FakeClock()
        self.sent: list[Any] = []
        self.answers: list[Any] = []
        self.settings = settings(**changes)
        self._lead = lead
        self.service = GroupService(self.settings, self.replicas, self.metadata, self, self.clock)

    async def send(self, request: Any) -> Any:
        self.sent.append(request)
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def __aenter__(self) -> World:
        await self.service.start()
        if self._lead:
            for partition in range(4):
                self.replicas.lead(partition)
            await self.loaded()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.service.close()

    async def loaded(self) -> None:
        for runtime in self.service.driver.runtimes():
            if runtime.loader is not None:
                await runtime.loader

    async def restart(self) -> None:
        """The broker stops and starts again on the same logs."""
        await self.service.close()
        self.service = GroupService(self.settings, self.replicas, self.metadata, self, self.clock)
        await self.__aenter__()

    def start(self, key: ApiKey, request: Any, version: int) -> Any:
        """Encodes and decodes the request, as on the wire, and runs its handler: the response, or something to await."""
        ctx = RequestContext(key, version, 1, "client", "PLAINTEXT", client_host="127.0.0.1")
        request = type(request).decode(request.encode(version), version)
        return self.service.routes[key](ctx, request)

    async def call(self, key: ApiKey, request: Any, version: int) -> Any:
        answer = self.start(key, request, version)
        if hasattr(answer, "__await__"):
            answer = await asyncio.wait_for(answer, 5)
        return type(answer).decode(answer.encode(version), version)
