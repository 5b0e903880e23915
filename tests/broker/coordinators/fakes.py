"""The surroundings of the coordinators: real replicas with logs in a temporary directory; metadata, a
controller channel and a clock that the test sets."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from quorate.broker.coordinators.service import CoordinatorService
from quorate.broker.metadata.cache import MetadataCache
from quorate.broker.replication.replica_manager import ReplicaManager
from quorate.log.config import LogConfig
from quorate.log.directories.manager import LogManager
from quorate.log.files import OpenFiles
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.partition.producer_state import AppendOrigin
from quorate.metadata.image import MetadataDelta
from quorate.net.connections.response_queue import PendingResponse, encode_frame
from quorate.net.dispatch import Dispatcher, ListenerKind, RequestContext
from quorate.protocol.api import ApiKey
from quorate.protocol.uuids import ZERO_UUID
from quorate.records.batch import iter_batches
from tests.broker.fakes import Asked, registration
from tests.broker.world import image_of

OFFSETS = "__consumer_offsets"


class Replicas(ReplicaManager):
    """The real replicas of `__consumer_offsets`. Its follower, broker 2, fetches at once, or after
    `release` if `hold` is set; until then the high watermark does not rise."""

    def __init__(self, directory: Path, clock: FakeClock, partitions: int = 4) -> None:
        self._image = {index: registration((1, 2), leader=2) for index in range(partitions)}
        logs = LogManager(
            [directory],
            LogConfig(),
            OpenFiles(64),
            now_ms=clock.now_ms,
            directory_ids={directory: bytes(15) + b"d"},
        )
        super().__init__(
            node_id=1,
            metadata=MetadataCache(image_of({OFFSETS: self._image})),
            logs=logs,
            clock=clock,
            loop=asyncio.get_running_loop(),
            replica_lag_max_s=30.0,
            isr_sender=Asked(),
        )
        self.hold = False
        self.fail_with: Exception | None = None
        self.made: list[str] = []
        self.made_when: asyncio.Future[None] = self.loop.create_future()
        self.apply_image(self.metadata.image)

    def log(self, partition: int) -> PartitionLog:
        found = self.local_log(OFFSETS, partition)
        assert found is not None
        return found

    def batches(self, partition: int) -> list[bytes]:
        """The batches of a partition's log, committed or not."""
        log = self.log(partition)
        if log.log_end_offset == log.log_start_offset:
            return []
        return [bytes(batch) for _, batch in iter_batches(log.read_bytes(log.log_start_offset, 1 << 24))]

    def append_internal(
        self,
        topic: str,
        partition_id: int,
        batch: bytes,
        *,
        origin: AppendOrigin = AppendOrigin.COORDINATOR,
        timeout_s: float = 5.0,
    ) -> asyncio.Future[int]:
        if self.fail_with is not None:
            raise self.fail_with
        appended = super().append_internal(topic, partition_id, batch, origin=origin, timeout_s=timeout_s)
        if not self.hold:
            self.catch_up(partition_id)
        return appended

    def catch_up(self, partition: int) -> None:
        """Lets the follower fetch up to the end of the log."""
        led = self.partition(OFFSETS, partition)
        if led.is_leader:
            end = led.log.log_end_offset
            led.follower_fetched(2, -1, end, 0, end, self.clock.now())

    def release(self) -> None:
        for partition in self._image:
            self.catch_up(partition)

    def lead(self, partition: int, epoch: int | None = 0) -> None:
        """Elects this broker as the leader of a partition, or broker 2 if the epoch is None."""
        was = self._image[partition]
        self._image[partition] = registration(
            (1, 2),
            leader=2 if epoch is None else 1,
            leader_epoch=was.leader_epoch + 1,
            partition_epoch=was.partition_epoch + 1,
        )
        old, self.metadata.image = self.metadata.image, image_of({OFFSETS: self._image})
        self.apply_delta(MetadataDelta(old, self.metadata.image))
        if epoch is not None and not self.hold:
            self.catch_up(partition)

    def create(self, name: str) -> asyncio.Future[None]:
        self.made.append(name)
        return self.made_when


def id_of(topic: str) -> bytes:
    """The id of a topic of the tests."""
    return topic.encode().ljust(16, b"-")[:16]


@dataclass
class FakeMetadata:
    """Topics by name with their numbers of partitions. Broker 1 leads all partitions."""

    topics: dict[str, int] = field(default_factory=dict)
    ids: dict[bytes, str] = field(default_factory=dict)
    fenced: bool = False
    _image: Any = field(default_factory=lambda: SimpleNamespace(topics=None))

    @property
    def image(self) -> Any:
        """An image whose topics are another object as soon as they change."""
        now = (dict(self.topics), dict(self.ids))
        if self._image.topics != now:
            self._image = SimpleNamespace(topics=now)
        return self._image

    def topic(self, name: str) -> Any:
        count = self.topics.get(name)
        return None if count is None else SimpleNamespace(partitions=range(count))

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.ids.get(topic_id)

    def topic_id(self, name: str) -> bytes:
        return next((topic_id for topic_id, known in self.ids.items() if known == name), ZERO_UUID)

    def partition(self, topic: str, partition: int) -> Any:
        return SimpleNamespace(leader=1) if partition in range(self.topics.get(topic, 0)) else None

    def endpoint(self, broker_id: int, listener: str) -> Any:
        return SimpleNamespace(host=f"{listener.lower()}.example", port=9092)

    def is_fenced(self, broker_id: int) -> bool:
        return self.fenced

    def broker(self, broker_id: int) -> Any:
        return SimpleNamespace(epoch=7)


class FakeClock:
    """The loop's monotonic time, and a wall clock that the test can change."""

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
        "request.timeout.ms": 30_000,
    }
    return FakeSettings(values | {name.replace("_", "."): value for name, value in changes.items()})


class World:
    """The coordinators of a broker with their surroundings. All four offsets partitions are led unless
    `lead` is False."""

    def __init__(self, *, lead: bool = True, **changes: Any) -> None:
        self.clock = FakeClock()
        self._directory = tempfile.TemporaryDirectory()
        self.replicas = Replicas(Path(self._directory.name), self.clock)
        self.metadata = FakeMetadata({OFFSETS: 4, "t": 3}, {id_of("t"): "t"})
        self.sent: list[Any] = []
        self.answers: list[Any] = []
        self.settings = settings(**changes)
        self._lead = lead
        self.service = CoordinatorService(
            self.settings, self.replicas, self.metadata, self.replicas, self, self.clock
        )
        self.dispatcher = Dispatcher(ListenerKind.BROKER)
        self.dispatcher.register_all(self.service.routes)
        self.listener_name = "PLAINTEXT"

    async def send(self, request: Any) -> Any:
        self.sent.append(request)
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def __aenter__(self) -> World:
        if self._lead:
            for partition in range(4):
                self.replicas.lead(partition)
        await self.service.start()
        await self.loaded()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.service.close()
        self.replicas.logs.close(broker_epoch=1)
        self._directory.cleanup()

    async def loaded(self) -> None:
        for runtime in self.service.groups.runtime.contexts():
            if runtime.loader is not None:
                await runtime.loader

    async def restart(self) -> None:
        """Restarts the coordinators on the same logs."""
        await self.service.close()
        self.service = CoordinatorService(
            self.settings, self.replicas, self.metadata, self.replicas, self, self.clock
        )
        await self.service.start()
        await self.loaded()

    def start(self, key: ApiKey, request: Any, version: int, *, is_large: bool = False) -> Any:
        """Encodes and decodes the request, as on the wire, and runs its handler: the response, or
        something to await."""
        ctx = RequestContext(key, version, 1, "client", "PLAINTEXT", client_host="127.0.0.1")
        ctx.is_large = is_large
        request = type(request).decode(request.encode(version), version)
        return self.service.routes[key](ctx, request)

    def decode(self, frame: memoryview) -> tuple[RequestContext, Any]:
        ctx = RequestContext(0, 0, 0, None, "PLAINTEXT", client_host="127.0.0.1", frame=frame)
        return ctx, self.dispatcher.decode(frame, ctx)

    def start_frame(self, frame: bytes) -> bytes | asyncio.Future[bytes] | None:
        """Gives a frame to the frame handler of its API, as a connection does."""
        return self.service.frame_routes[frame[1]](memoryview(bytearray(frame)), self)

    async def answer_frame(self, frame: bytes, *, by_handler: bool = False) -> bytes:
        """The response to a frame, by its frame handler if there is one that answers it."""
        data = memoryview(bytearray(frame))
        answer: Any = None
        if not by_handler and frame[1] in self.service.frame_routes:
            answer = self.start_frame(frame)
        if isinstance(answer, bytes):
            return answer
        if answer is None:
            ctx, request = self.decode(data)
            response = self.service.routes[ctx.api_key](ctx, request)
            if hasattr(response, "__await__"):
                response = await asyncio.wait_for(response, 5)
        else:
            ctx = RequestContext(0, 0, 0, None, "PLAINTEXT", frame=data)
            pending = PendingResponse(ctx, None, answer)
            await asyncio.wait([answer], timeout=5)
            response = pending.response(self.dispatcher)
        parts: list[Any] = encode_frame(ctx, response)
        return b"".join(parts)

    async def call(self, key: ApiKey, request: Any, version: int, *, is_large: bool = False) -> Any:
        answer = self.start(key, request, version, is_large=is_large)
        if hasattr(answer, "__await__"):
            answer = await asyncio.wait_for(answer, 5)
        return type(answer).decode(answer.encode(version), version)
