"""Membership of a classic consumer group, from the member's side: join, assign as the leader, sync, heartbeat, leave. Assigns
by range.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quorate.admin.errors import ErrorCode, KafkaError, NetError
from quorate.admin.groups import assigned, by_topic
from quorate.admin.topic_metadata import TopicMetadata
from quorate.admin.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from quorate.admin.client import AdminClient
    from quorate.admin.consumer import ConsumerConfig
    from quorate.net.client import NodeChannel

log = logging.getLogger("quorate.consumer")

PROTOCOL_TYPE = "consumer"
RANGE = "range"
_VERSION = struct.pack(">h", 1)

_COORDINATOR_MOVED = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


def assign_by_range(counts: Mapping[str, int], members: Mapping[str, Sequence[str]]) -> dict[str, list[TopicPartition]]:
    """Each topic's partitions, cut into even runs for its readers in order of their ids; the first ones get one more."""
    assignment: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for topic in sorted(counts):
        readers = sorted(member for member, topics in members.items() if topic in topics)
        if not readers:
            continue
        share, extra = divmod(counts[topic], len(readers))
        start = 0
        for index, member in enumerate(readers):
            stop = start + share + (index < extra)
            assignment[member] += [TopicPartition(topic, partition) for partition in range(start, stop)]
            start = stop
    return assignment


class Membership:
    """Keeps this consumer in its group in a task of its own."""

    def __init__(
        self,
        admin: AdminClient,
        metadata: TopicMetadata,
        config: ConsumerConfig,
        topics: Sequence[str],
        revoked: Callable[[], Awaitable[None]],
    ) -> None:
        assert config.group_id is not None
        self._admin = admin
        self._metadata = metadata
        self._config = config
        self._group_id: str = config.group_id
        self._topics = tuple(topics)
        self._revoked = revoked
        self._member_id = ""
        self._generation = -1
        self._coordinator: NodeChannel | None = None
        self._assignment: tuple[TopicPartition, ...] | None = None
        self._settled = asyncio.Event()
        self._rejoin = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"member of {self._group_id}")

    def topics_changed(self, topics: Sequence[str]) -> None:
        """A changed subscription starts a rebalance."""
        if tuple(topics) != self._topics:
            self._topics = tuple(topics)
            self._rejoin.set()

    async def assignment(self, timeout_s: float) -> tuple[TopicPartition, ...] | None:
        """The partitions of this member, waiting for a rebalance under way; None when the time is over before. Raises what ended
        the membership."""
        if not self._settled.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._settled.wait()
            except TimeoutError:
                return None
        if self._failure is not None:
            raise self._failure
        return self._assignment

    async def close(self) -> None:
        """Leaves the group (static members stay, as they mean to come back)."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._member_id and self._config.group_instance_id is None and self._coordinator is not None:
            from quorate.protocol.messages.leave_group import LeaveGroupRequest

            leaving = LeaveGroupRequest.MemberIdentity(member_id=self._member_id, reason="the consumer is being closed")
            request = LeaveGroupRequest(group_id=self._group_id, members=[leaving])
            try:
                await self._ask(request)
            except (KafkaError, NetError) as error:
                log.warning("[Consumer group=%s] Leaving failed: %s", self._group_id, error)
        self._forget_coordinator()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commits as this member. Raises KafkaError of the first partition that failed."""
        from quorate.protocol.messages.offset_commit import OffsetCommitRequest as Commit

        request = Commit(
            group_id=self._group_id,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=self._config.group_instance_id,
            topics=[
                Commit.OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        Commit.OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offsets[TopicPartition(name, index)].offset,
                            committed_metadata=offsets[TopicPartition(name, index)].metadata,
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(offsets).items()
            ],
        )
        answer = await self._ask(request)
        for topic in answer.topics:
            for p in topic.partitions:
                if p.error_code:
                    raise KafkaError(ErrorCode.of(p.error_code))

    # -- the member's life -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                if await self._join():
                    await self._stay()
                if self._settled.is_set():
                    self._settled.clear()
                    await self._revoked()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failure = error
            self._settled.set()

    async def _ask(self, request: Any, timeout_s: float | None = None) -> Any:
        # A parked join holds up what comes after it, so the coordinator has a connection of its own, as in Kafka's client.
        if self._coordinator is None:
            node = await self._admin.find_coordinator(self._group_id)
            self._coordinator = self._admin.transport.new_channel(node.host, node.port)
        try:
            return await self._coordinator.call(request, timeout_s or self._config.request_timeout_s)
        except NetError:
            self._forget_coordinator()
            raise

    def _forget_coordinator(self) -> None:
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None

    async def _join(self) -> bool:
        """One attempt to get into a generation; False: try again."""
        from quorate.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
        from quorate.protocol.messages.join_group import JoinGroupRequest

        self._rejoin.clear()
        subscription = _VERSION + ConsumerProtocolSubscription(topics=list(self._topics), user_data=None).encode(1)
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=int(self._config.session_timeout_s * 1000),
            rebalance_timeout_ms=int(self._config.rebalance_timeout_s * 1000),
            member_id=self._member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=RANGE, metadata=subscription)],
        )
        try:
            answer = await self._ask(request, self._config.rebalance_timeout_s + 5)
        except NetError as error:
            return await self._again(error)
        if answer.error_code:
            return await self._refused(ErrorCode.of(answer.error_code), answer.member_id)
        self._member_id, self._generation = answer.member_id, answer.generation_id
        assignments = {}
        if answer.leader == answer.member_id and not answer.skip_assignment:
            assignments = await self._assign(answer.members)
        return await self._sync(assignments, answer.protocol_name)

    async def _assign(self, members: Sequence[Any]) -> dict[str, list[TopicPartition]]:
        from quorate.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

        topics = {m.member_id: ConsumerProtocolSubscription.read(bytes(m.metadata), 2, 0)[0].topics for m in members}
        counts = {}
        for name in {name for names in topics.values() for name in names}:
            self._metadata.forget(name)
            try:
                counts[name] = len((await self._metadata.topic(name)).leaders)
            except KafkaError as error:
                log.warning("[Consumer group=%s] %s", self._group_id, error)
        return assign_by_range(counts, topics)

    async def _sync(self, assignments: Mapping[str, Sequence[TopicPartition]], protocol: str | None) -> bool:
        from quorate.protocol.messages.consumer_protocol import ConsumerProtocolAssignment as Assignment
        from quorate.protocol.messages.sync_group import SyncGroupRequest

        def encoded(partitions: Sequence[TopicPartition]) -> bytes:
            entries = [Assignment.TopicPartition(topic=t, partitions=p) for t, p in by_topic(partitions).items()]
            return _VERSION + Assignment(assigned_partitions=entries, user_data=None).encode(1)

        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol or RANGE,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=encoded(partitions))
                for member, partitions in assignments.items()
            ],
        )
        try:
            answer = await self._ask(request, self._config.rebalance_timeout_s + 5)
        except NetError as error:
            return await self._again(error)
        if answer.error_code:
            return await self._refused(ErrorCode.of(answer.error_code), self._member_id)
        self._assignment = assigned(bytes(answer.assignment))
        self._settled.set()
        return True

    async def _stay(self) -> None:
        """Heartbeats until the group rebalances or this member has to join anew."""
        from quorate.protocol.messages.heartbeat import HeartbeatRequest

        while True:
            try:
                async with asyncio.timeout(self._config.heartbeat_interval_s):
                    await self._rejoin.wait()
                return
            except TimeoutError:
                pass
            request = HeartbeatRequest(
                group_id=self._group_id,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._config.group_instance_id,
            )
            try:
                answer = await self._ask(request)
            except NetError as error:
                await self._again(error)
                continue
            code = ErrorCode.of(answer.error_code)
            if code in _COORDINATOR_MOVED:
                self._forget_coordinator()
            elif code is ErrorCode.REBALANCE_IN_PROGRESS:
                return
            elif code is not ErrorCode.NONE:
                await self._refused(code, self._member_id)
                return

    async def _again(self, error: Exception) -> bool:
        log.warning("[Consumer group=%s] %s", self._group_id, error)
        await asyncio.sleep(0.1)
        return False

    async def _refused(self, code: ErrorCode, member_id: str) -> bool:
        """What follows from an error of the coordinator; raises those that end the membership."""
        match code:
            case ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = member_id
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                self._member_id = "" if code is ErrorCode.UNKNOWN_MEMBER_ID else self._member_id
                self._generation = -1
            case ErrorCode.REBALANCE_IN_PROGRESS:
                pass
            case _ if code in _COORDINATOR_MOVED:
                self._forget_coordinator()
                await asyncio.sleep(0.1)
            case _:
                raise KafkaError(code)
        return False
