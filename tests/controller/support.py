"""Fakes and fixtures: a Raft client in memory, a clock that tests advance, and a small cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from quorate.clock import Clock
from quorate.config.listeners import Endpoint
from quorate.controller.brokers.sessions import BrokerSessions
from quorate.controller.changes.record_versions import version_of
from quorate.controller.config import ControllerConfig
from quorate.controller.context import Context, View
from quorate.controller.driver import QuorumController
from quorate.metadata.bootstrap import bootstrap_records
from quorate.metadata.framing import decode_record, encode_record
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import apply_records
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from quorate.net.dispatch import RequestContext
from quorate.protocol.api import ApiKey
from quorate.protocol.schema import Data, Request
from quorate.raft.core.voters import Voter, VoterSet
from quorate.raft.types import (
    BatchTooLargeError,
    CommittedBatch,
    LeaderAndEpoch,
    NotLeaderError,
    OffsetEpoch,
    ReplicaKey,
)

CLUSTER = "J8qXRwI-Qyi2G0guFTiuYw"
LATEST = 33


def uid(number: int) -> bytes:
    return number.to_bytes(16, "big")


def directory(broker_id: int, index: int = 0) -> bytes:
    return uid(0xD0000000 + broker_id * 16 + index)


class FakeClock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return int(self.seconds * 1000)


class Connection:
    """The part of a server connection that the controller uses."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []

    def on_close(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def lose(self) -> None:
        for callback in self.callbacks:
            callback()


class FakeLog:
    """The log that the replicas of a quorum share."""

    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []
        self.end = 0

    def add(self, epoch: int, values: Sequence[bytes], timestamp_ms: int = 0) -> int:
        base, count = self.end, max(1, len(values))
        self.batches.append(
            CommittedBatch(base, base + count - 1, epoch, timestamp_ms, values, sum(map(len, values)) + 61)
        )
        self.end = base + count
        return self.end - 1

    def truncate(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.last_offset < end]
        self.end = end


class FakeRaft:
    """One replica, with the interface that the driver uses. Batches are committed only by `commit`."""

    def __init__(self, node_id: int = 1, log: FakeLog | None = None, voters: Iterable[int] = (1,)) -> None:
        self.node_id = node_id
        self.log = log if log is not None else FakeLog()
        self.voters = VoterSet.of(Voter(ReplicaKey(voter)) for voter in voters)
        self.kraft_version = 1
        self.kraft_version_finalised = 1
        self.leader_and_epoch = LeaderAndEpoch(None, 0)
        self.delivered = 0
        self.resigned: list[int] = []
        self.snapshots: list[tuple[int, int, int, list[bytes]]] = []
        self.upgrades: list[tuple[int, bool]] = []
        self.upgrade_error: Exception | None = None
        self.refuse = False
        self.max_batch_bytes = 1 << 20
        self._listener: Any = None

    @property
    def log_end_offset(self) -> int:
        return self.log.end

    @property
    def is_leader(self) -> bool:
        return self.leader_and_epoch.leader_id == self.node_id

    def register(self, listener: Any) -> None:
        self._listener = listener

    def append(self, epoch: int, values: Sequence[bytes], *, atomic: bool = True) -> int:
        if atomic and sum(map(len, values)) > self.max_batch_bytes:
            raise BatchTooLargeError("too large for one batch")
        if self.refuse or self.leader_and_epoch != LeaderAndEpoch(self.node_id, epoch):
            raise NotLeaderError("not the leader")
        if len(values) > 1 and sum(map(len, values)) > self.max_batch_bytes:
            self.append(epoch, values[: len(values) // 2], atomic=False)
            return self.append(epoch, values[len(values) // 2 :], atomic=False)
        return self.log.add(epoch, list(values))

    def resign(self, epoch: int, reason: str = "") -> None:
        self.resigned.append(epoch)

    async def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool = False) -> None:
        if self.upgrade_error is not None:
            raise self.upgrade_error
        self.upgrades.append((level, validate_only))
        if not validate_only:
            self.kraft_version = level

    async def create_snapshot(
        self, end_offset: int, epoch: int, timestamp_ms: int, batches: Iterable[bytes]
    ) -> OffsetEpoch:
        self.snapshots.append((end_offset, epoch, timestamp_ms, list(batches)))
        return OffsetEpoch(end_offset, epoch)

    def handle(self, ctx: RequestContext, request: Any) -> Any:
        raise NotImplementedError

    def leader_address(self) -> tuple[str, int] | None:
        return None

    def commit(self, end: int | None = None) -> None:
        """Delivers every batch below `end` that was not delivered yet. The default is the end of the
        log."""
        end = self.log.end if end is None else end
        batches = [b for b in self.log.batches if b.base_offset >= self.delivered and b.last_offset < end]
        if batches:
            self.delivered = batches[-1].last_offset + 1
            for _ in self._listener.on_commit(batches) or ():
                pass
            self._listener.on_high_watermark(self.delivered)

    def become_leader(self, epoch: int, *, committed: bool = True) -> None:
        """Elects this replica and writes the LeaderChange record of its epoch, which is committed by
        default."""
        self.leader_and_epoch = LeaderAndEpoch(self.node_id, epoch)
        self.log.add(epoch, [])
        if committed:
            self.commit()
        self._listener.on_leader_change(self.leader_and_epoch)

    def follow(self, leader_id: int | None, epoch: int) -> None:
        self.leader_and_epoch = LeaderAndEpoch(leader_id, epoch)
        self._listener.on_leader_change(self.leader_and_epoch)


def make_config(**changes: Any) -> ControllerConfig:
    settings: dict[str, Any] = {
        "node_id": 1,
        "cluster_id": CLUSTER,
        "incarnation_id": uid(0xC1),
        "listeners": [Endpoint("CONTROLLER", "localhost", 9093)],
        "bootstrap": bootstrap_records({"metadata.version": LATEST}),
        "max_idle_interval_s": 0.0,
        "authorizer": True,
    }
    settings.update(changes)
    return ControllerConfig(**settings)


class Harness:
    """A controller on a fake replica."""

    def __init__(
        self, raft: FakeRaft | None = None, *, real_clock: Clock | None = None, **config: Any
    ) -> None:
        self.raft = raft if raft is not None else FakeRaft()
        self.clock = FakeClock()
        self.fatal: list[BaseException] = []
        self.controller = QuorumController(
            make_config(**config),
            self.raft,  # type: ignore[arg-type]
            clock=real_clock or self.clock,
            rng=Random(7),
            on_fatal=self.fatal.append,
        )

    async def start(self, *, lead: bool = True) -> Harness:
        await self.controller.start(timers=False)
        if lead:
            self.raft.become_leader(1)
            self.raft.commit()  # bootstrap records
            self.raft.commit()  # registration of this controller
        return self

    def send(self, request: Request, version: int | None = None, **ctx: Any) -> Any:
        """Sends a request. Returns its response or the future of it."""
        context = RequestContext(
            api_key=request.KEY,
            api_version=request.MAX_VERSION if version is None else version,
            correlation_id=1,
            client_id="test",
            listener="CONTROLLER",
            **ctx,
        )
        return self.controller.routes[request.KEY](context, request)

    async def call(self, request: Request, version: int | None = None, **ctx: Any) -> Any:
        """Sends a request and commits its records. Returns its response."""
        outcome = self.send(request, version, **ctx)
        if isinstance(outcome, asyncio.Future):
            for _ in range(3):
                await asyncio.sleep(0)
                self.raft.commit()
            return await asyncio.wait_for(outcome, 5)
        return outcome

    def advance(self, seconds: float) -> None:
        """Advances the clock in steps, and runs the periodic tasks as a timer would."""
        end = self.clock.seconds + seconds
        while self.clock.seconds < end:
            due = max(self.controller.tasks.next_due(), self.clock.seconds + 0.001)
            self.clock.seconds = min(due, end)
            self.controller.run_due()

    @property
    def records(self) -> list[Data]:
        """Every record in the log."""
        return [decode_record(value)[0] for batch in self.raft.log.batches for value in batch.values]

    def records_from(self, offset: int) -> list[Data]:
        """The records from an offset on."""
        batches = [batch for batch in self.raft.log.batches if batch.base_offset >= offset]
        return [decode_record(value)[0] for batch in batches for value in batch.values]


class Cluster:
    """An image that is built from records, and calls of handlers on it."""

    def __init__(self, metadata_version: int = LATEST, **config: Any) -> None:
        self.config = make_config(**config)
        self.image: MetadataImage = EMPTY
        self.broker_sessions = BrokerSessions(self.config.broker_session_timeout_s)
        self.offset = 0
        self.now = 100.0
        self.rng = Random(1)
        self.kraft_version = 1
        self.apply([FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)])

    def apply(self, records: Sequence[Data]) -> None:
        """Replays records after encoding and decoding them, as if they came from the log."""
        level = self.image.features.metadata_version or LATEST
        decoded = [decode_record(encode_record(r, version_of(r, level)))[0] for r in records]
        if decoded:
            self.offset += len(decoded)
            self.image = apply_records(self.image, decoded, offset=self.offset - 1, epoch=1, timestamp_ms=0)

    def brokers(
        self, *ids: int, rack: str | None = None, fenced: bool = False, directories: int = 1
    ) -> Cluster:
        for broker_id in ids:
            self.apply(
                [
                    RegisterBrokerRecord(
                        broker_id=broker_id,
                        incarnation_id=uid(0xB000 + broker_id),
                        broker_epoch=100 + broker_id,
                        rack=rack,
                        fenced=fenced,
                        features=[
                            RegisterBrokerRecord.BrokerFeature(
                                name="metadata.version", min_supported_version=7, max_supported_version=LATEST
                            )
                        ],
                        log_dirs=[directory(broker_id, n) for n in range(directories)]
                        if self.image.features.metadata_version >= 17
                        else [],
                    )
                ]
            )
        return self

    def fence(self, broker_id: int, fenced: bool = True) -> Cluster:
        self.apply(
            [
                BrokerRegistrationChangeRecord(
                    broker_id=broker_id, broker_epoch=100 + broker_id, fenced=1 if fenced else -1
                )
            ]
        )
        return self

    def shutting_down(self, broker_id: int) -> Cluster:
        self.apply(
            [
                BrokerRegistrationChangeRecord(
                    broker_id=broker_id, broker_epoch=100 + broker_id, in_controlled_shutdown=1
                )
            ]
        )
        return self

    def elr(self) -> Cluster:
        self.apply([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)])
        return self

    def topic(
        self,
        name: str,
        *partitions: Sequence[int],
        isr: Sequence[int] | None = None,
        leader: int | None = None,
    ) -> bytes:
        """Creates a topic. Each partition is given by its replicas; `isr` is the ISR of all partitions,
        by default their replicas."""
        topic_id = uid(0xA000 + len(self.image.topics.by_id))
        records: list[Data] = [TopicRecord(name=name, topic_id=topic_id)]
        for partition_id, replicas in enumerate(partitions):
            in_sync = list(isr if isr is not None else replicas)
            records.append(
                PartitionRecord(
                    partition_id=partition_id,
                    topic_id=topic_id,
                    replicas=list(replicas),
                    isr=in_sync,
                    leader=leader if leader is not None else in_sync[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[directory(r) for r in replicas]
                    if self.image.features.metadata_version >= 17
                    else [],
                )
            )
        self.apply(records)
        return topic_id

    def partition(self, name: str, partition_id: int = 0) -> Any:
        found = self.image.topics.partition_of(name, partition_id)
        assert found is not None
        return found

    @property
    def view(self) -> View:
        return View(
            self.image,
            self.broker_sessions,
            self.config,
            self.offset,
            kraft_version=self.kraft_version,
            voter_ids=(1,),
        )

    def ctx(
        self, version: int = 99, principal: str = "User:ANONYMOUS", *, forwarded: bool = False
    ) -> Context:
        return Context(
            now_ms=int(self.now * 1000),
            now=self.now,
            rng=self.rng,
            api_version=version,
            principal=principal,
            forwarded=forwarded,
        )

    def run(self, handler: Any, request: Any, version: int | None = None, **kw: Any) -> Any:
        """Runs a handler and replays its records. Returns the result."""
        result = handler(
            self.view, request, self.ctx(request.MAX_VERSION if version is None else version, **kw)
        )
        self.apply(result.records)
        return result


__all__ = [
    "ApiKey",
    "Cluster",
    "Connection",
    "FakeClock",
    "FakeLog",
    "FakeRaft",
    "Harness",
    "directory",
    "make_config",
    "uid",
]
