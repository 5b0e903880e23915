"""The broker's group APIs: requests of all their versions in, the shards' answers out.

    FindCoordinator 0-6   JoinGroup 0-9   SyncGroup 0-5   Heartbeat 0-4   LeaveGroup 0-5   DescribeGroups 0-6   ListGroups 0-5
    DeleteGroups 0-2      OffsetCommit 2-9   OffsetFetch 1-9   OffsetDelete 0   InitProducerId 0-5   TxnOffsetCommit 0-5

Left out: transactions. InitProducerId with a transactional id and TxnOffsetCommit answer
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one error that Java's client, librdkafka, kafka-python and
aiokafka all take as final at once (librdkafka repeats UNSUPPORTED_VERSION until its timeout). KIP-848,
share and streams groups are kept on disk and listed, but not served.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from quorate.broker.coordinators import partitioning
from quorate.broker.coordinators.classic_answers import join_error
from quorate.broker.coordinators.classic_group import UNKNOWN_MEMBER_ID
from quorate.broker.coordinators.driver import Answer, Clock, GroupDriver, Replicas
from quorate.broker.coordinators.model import Caller, Instant, Outcome
from quorate.broker.coordinators.offset_handlers import OffsetHandlers
from quorate.broker.coordinators.producer_ids import Channel, ProducerIdManager
from quorate.broker.coordinators.settings import Settings, group_config
from quorate.broker.coordinators.shard import Shard
from quorate.net.turns import Rounds
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from quorate.metadata.image import MetadataDelta
    from quorate.net.dispatch import Handler, RequestContext

log = logging.getLogger("quorate.group")

GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: what everybody may do where nothing is
authorized."""

AT_ONCE = 50
"""Groups of a request that are looked at in one turn of the event loop: a millisecond at most."""

GROUP_KEY, TRANSACTION_KEY, SHARE_KEY = 0, 1, 2


class Metadata(Protocol):
    """What is used of the broker's metadata cache."""

    def topic(self, name: str) -> Any: ...

    def topic_name(self, topic_id: bytes) -> str | None: ...

    def partition(self, topic: str, partition: int) -> Any: ...

    def endpoint(self, broker_id: int, listener: str) -> Any: ...

    def is_fenced(self, broker_id: int) -> bool: ...

    def broker(self, broker_id: int) -> Any: ...


class TopicMaker(Protocol):
    def ensure_topic(self, name: str) -> asyncio.Future[None]: ...


class GroupService(OffsetHandlers):
    """Group coordinator of one broker: register `routes`, `start` once the replicas are there, `close`
    before they go."""

    def __init__(
        self, config: Settings, replica_manager: Any, metadata_cache: Metadata, channel: Channel, clock: Clock
    ) -> None:
        self.config = group_config(config)
        self.metadata = metadata_cache
        replicas: Replicas = replica_manager
        self._topics: TopicMaker = replica_manager
        self.driver = GroupDriver(
            self.config, replicas, clock, lambda name: metadata_cache.topic(name) is not None
        )
        node_id = config.get("node.id")
        assert isinstance(node_id, int)
        self.node_id = node_id
        self.rounds = Rounds()
        self.producer_ids = ProducerIdManager(node_id, self._broker_epoch, channel)
        self.routes: dict[int, Handler] = {
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.JOIN_GROUP: self.join_group,
            ApiKey.SYNC_GROUP: self.sync_group,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave_group,
            ApiKey.DESCRIBE_GROUPS: self.describe_groups,
            ApiKey.LIST_GROUPS: self.list_groups,
            ApiKey.DELETE_GROUPS: self.delete_groups,
            ApiKey.OFFSET_COMMIT: self.offset_commit,
            ApiKey.OFFSET_FETCH: self.offset_fetch,
            ApiKey.OFFSET_DELETE: self.offset_delete,
            ApiKey.TXN_OFFSET_COMMIT: self.txn_offset_commit,
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
        }

    async def start(self) -> None:
        """Takes over the offsets partitions that are led here."""
        self.driver.start()

    async def close(self) -> None:
        """Answers what is parked with NOT_COORDINATOR and stops."""
        self.producer_ids.close()
        await self.driver.close()

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """To be told when topics left the cluster: their offsets are deleted in all groups."""
        if topics:
            self.driver.topics_deleted(topics)

    def apply_delta(self, delta: MetadataDelta) -> None:
        """To be told of every step of the metadata."""
        deleted = delta.topics_deleted
        if deleted:
            self.topics_deleted(frozenset(topic.name for topic in deleted.values()))

    def partition_for(self, group_id: str) -> int:
        """The offsets partition of a group; counted on the topic as it is, once it exists."""
        topic = self.metadata.topic(partitioning.GROUP_METADATA_TOPIC)
        count = self.config.offsets_topic_partitions if topic is None else len(topic.partitions)
        return partitioning.partition_for(group_id, count)

    def _broker_epoch(self) -> int | None:
        broker = self.metadata.broker(self.node_id)
        return None if broker is None else int(broker.epoch)

    # -- FindCoordinator
    # ----------------------------------------------------------------------------------------------

    def find_coordinator(self, ctx: RequestContext, request: Any) -> Any:
        """Where the coordinators of groups or transactional ids are. Has their topic created when it is
        not there, and does not wait for it: the answers of a connection go out in order, and those
        behind this one must not be held up. The client is told to ask again, as in Kafka."""
        from quorate.protocol.messages.find_coordinator import FindCoordinatorResponse

        keys = request.coordinator_keys if ctx.api_version >= 4 else [request.key]
        found = (
            FindCoordinatorResponse.Coordinator(
                key=key, error_code=code, node_id=node_id, host=host, port=port
            )
            for key in keys
            for code, node_id, host, port in (self._find_one(ctx, request.key_type, key),)
        )
        if ctx.api_version >= 4:
            return self._all(keys, found, lambda some: FindCoordinatorResponse(coordinators=some))
        one = next(found)
        return FindCoordinatorResponse(
            error_code=one.error_code, node_id=one.node_id, host=one.host, port=one.port
        )

    def _all(self, asked: list[str], found: Iterator[Any], answer: Callable[[list[Any]], Any]) -> Any:
        """The answer about all that was asked; about very many it is made in several turns of the event
        loop."""
        if len(asked) <= AT_ONCE:
            return answer(list(found))

        async def later() -> Any:
            return answer(await self.rounds.collect(found))

        return later()

    def _find_one(self, ctx: RequestContext, key_type: int, key: str) -> tuple[ErrorCode, int, str, int]:
        if key_type == GROUP_KEY:
            name = partitioning.GROUP_METADATA_TOPIC
        elif key_type == TRANSACTION_KEY:
            name = partitioning.TRANSACTION_STATE_TOPIC
        else:
            # Share coordinators (KIP-932) are not served; older versions do not know them at all.
            return ErrorCode.INVALID_REQUEST, -1, "", -1
        topic = self.metadata.topic(name)
        if topic is None:
            self._make_topic(name)
        else:
            image = self.metadata.partition(name, partitioning.partition_for(key, len(topic.partitions)))
            if image is not None and image.leader >= 0 and not self.metadata.is_fenced(image.leader):
                endpoint = self.metadata.endpoint(image.leader, ctx.listener)
                if endpoint is not None:
                    return ErrorCode.NONE, image.leader, endpoint.host, endpoint.port
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1

    def _make_topic(self, name: str) -> None:
        def made(future: asyncio.Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None:
                log.warning("[GroupCoordinator] Could not create topic %s: %s", name, error)

        self._topics.ensure_topic(name).add_done_callback(made)

    # -- classic groups
    # ----------------------------------------------------------------------------------------------

    def _caller(self, ctx: RequestContext) -> Caller:
        raw = os.urandom(16)
        value = bytes([*raw[:6], raw[6] & 0x0F | 0x40, raw[7], raw[8] & 0x3F | 0x80, *raw[9:]]).hex()
        fresh = f"{value[:8]}-{value[8:12]}-{value[12:16]}-{value[16:20]}-{value[20:]}"
        return Caller(ctx.api_version, ctx.client_id or "", f"/{ctx.client_host}", fresh)

    def join_group(self, ctx: RequestContext, request: Any) -> Any:
        """Parks until the rebalance is complete."""
        member_id = request.member_id
        if not request.group_id:
            return self._joined(ctx, join_error(member_id, ErrorCode.INVALID_GROUP_ID))
        low, high = self.config.min_session_timeout_ms, self.config.max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            return self._joined(ctx, join_error(member_id, ErrorCode.INVALID_SESSION_TIMEOUT))
        caller = self._caller(ctx)
        answer = self.driver.write(
            self.partition_for(request.group_id),
            lambda shard, token, at: shard.join(request, caller, token, at),
        )
        return settle(
            answer,
            partial(self._joined, ctx),
            lambda e: self._joined(ctx, join_error(UNKNOWN_MEMBER_ID, e.code)),
        )

    def _joined(self, ctx: RequestContext, response: Any) -> Any:
        if ctx.api_version < 7 and response.protocol_name is None:
            response.protocol_name = ""  # not nullable before version 7
        return response

    def sync_group(self, ctx: RequestContext, request: Any) -> Any:
        """Parks until the leader's assignment is stored."""
        from quorate.protocol.messages.sync_group import SyncGroupResponse

        if ctx.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.group_id:
            return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        answer = self.driver.write(
            self.partition_for(request.group_id), lambda shard, token, at: shard.sync(request, token, at)
        )
        return settle(answer, None, lambda e: SyncGroupResponse(error_code=e.code))

    def heartbeat(self, ctx: RequestContext, request: Any) -> Any:
        """Answered at once: nothing of it is stored."""
        from quorate.protocol.messages.heartbeat import HeartbeatResponse

        if not request.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            runtime = self.driver.runtime(self.partition_for(request.group_id))
        except KafkaError as error:
            # A loading group's members need not worry: their sessions start anew when it is there.
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)
        return runtime.shard.heartbeat(request, self.driver.instant())

    def leave_group(self, ctx: RequestContext, request: Any) -> Any:
        """Before version 3 one member leaves, and its error is the answer's."""
        from quorate.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        if ctx.api_version < 3:
            member = LeaveGroupRequest.MemberIdentity(member_id=request.member_id)
            request = LeaveGroupRequest(group_id=request.group_id, members=[member])
        answer = self.driver.write(
            self.partition_for(request.group_id), lambda shard, token, at: shard.leave(request, token, at)
        )

        def left(response: Any) -> Any:
            if ctx.api_version < 3 and not response.error_code and response.members:
                return LeaveGroupResponse(error_code=response.members[0].error_code)
            return response

        return settle(answer, left, lambda e: LeaveGroupResponse(error_code=e.code))

    # -- administration
    # ----------------------------------------------------------------------------------------------

    def describe_groups(self, ctx: RequestContext, request: Any) -> Any:
        from quorate.protocol.messages.describe_groups import DescribeGroupsResponse

        def describe(group_id: str) -> Any:
            try:
                runtime = self.driver.runtime(self.partition_for(group_id))
            except KafkaError as error:
                return DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=error.code)
            described = runtime.shard.describe(self.driver.committed(runtime), group_id, ctx.api_version)
            if ctx.api_version >= 3 and request.include_authorized_operations and not described.error_code:
                described.authorized_operations = GROUP_OPERATIONS
            return described

        return self._all(
            request.groups, map(describe, request.groups), lambda some: DescribeGroupsResponse(groups=some)
        )

    def list_groups(self, ctx: RequestContext, request: Any) -> Any:
        from quorate.protocol.messages.list_groups import ListGroupsResponse

        states = frozenset(state.strip().lower() for state in request.states_filter)
        types = frozenset(kind.strip().lower() for kind in request.types_filter)
        response = ListGroupsResponse()
        for runtime in self.driver.runtimes():
            if runtime.error is ErrorCode.NONE:
                response.groups += runtime.shard.list_groups(self.driver.committed(runtime), states, types)
            elif runtime.error is not ErrorCode.NOT_COORDINATOR:
                return ListGroupsResponse(error_code=runtime.error)
        return response

    async def delete_groups(self, ctx: RequestContext, request: Any) -> Any:
        from quorate.protocol.messages.delete_groups import DeleteGroupsResponse

        answers = []
        for group_id in dict.fromkeys(request.groups_names):
            # Each group is a batch of its own, and others have their turn after it: a group may have
            # thousands of offsets.
            step = partial(_delete_groups, [group_id])
            answers.append((group_id, self.driver.write(self.partition_for(group_id), step)))
            await asyncio.sleep(0)
        response = DeleteGroupsResponse()
        for group_id, answer in answers:
            try:
                response.results += await answer
            except KafkaError as error:
                response.results.append(
                    DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error.code)
                )
        return response

    # -- InitProducerId
    # ----------------------------------------------------------------------------------------------

    async def init_producer_id(self, ctx: RequestContext, request: Any) -> Any:
        """An id for an idempotent producer; one that comes back to raise its epoch gets a new id, as in
        Kafka."""
        from quorate.protocol.messages.init_producer_id import InitProducerIdResponse

        failed = partial(InitProducerIdResponse, producer_id=-1, producer_epoch=-1)
        if request.transactional_id is not None:
            if not request.transactional_id:
                return failed(error_code=ErrorCode.INVALID_REQUEST)
            return failed(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            return failed(error_code=ErrorCode.INVALID_REQUEST)
        try:
            producer_id = await self.producer_ids.next_id()
        except KafkaError as error:
            return failed(error_code=error.code)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _delete_groups(group_ids: list[str], shard: Shard, token: Answer, _: Instant) -> Outcome:
    return shard.delete_groups(group_ids, token)


def settle(answer: Answer, convert: Callable[[Any], Any] | None, failed: Callable[[KafkaError], Any]) -> Any:
    """The answer as a value if it is there, else a coroutine: most steps are done when they return, and
    cost no task."""
    if answer.done():
        error = answer.exception()
        if error is None:
            return answer.result() if convert is None else convert(answer.result())
        if isinstance(error, KafkaError):
            return failed(error)
        raise error

    async def later() -> Any:
        try:
            value = await answer
        except KafkaError as error:
            return failed(error)
        return value if convert is None else convert(value)

    return later()
