"""The group APIs of a broker, in all their versions (`GroupCoordinatorService` in Kafka).

    JoinGroup 0-9   SyncGroup 0-5   Heartbeat 0-4   LeaveGroup 0-5   DescribeGroups 0-6   ListGroups 0-5
    DeleteGroups 0-2   and, in `offset_requests`, OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit

Consumer groups (KIP-848), share groups and streams groups are kept on disk and listed, but not served.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from quorate.broker.authorized_operations import GROUP_OPERATIONS
from quorate.broker.coordinators.context import Answer
from quorate.broker.coordinators.group.classic.classic_group import UNKNOWN_MEMBER_ID
from quorate.broker.coordinators.group.classic.classic_responses import join_error
from quorate.broker.coordinators.group.config import GroupCoordinatorConfig
from quorate.broker.coordinators.group.group_deletion import GroupDeletion
from quorate.broker.coordinators.group.model import Caller, GroupCounts
from quorate.broker.coordinators.group.record_serde import decode_record, encode_record
from quorate.broker.coordinators.group.requests.offset_requests import OffsetRequests
from quorate.broker.coordinators.group.shard import GroupCoordinatorShard
from quorate.broker.coordinators.high_watermark import Replicas
from quorate.broker.coordinators.partitioning import partition_for
from quorate.broker.coordinators.responses import respond
from quorate.broker.coordinators.result import CoordinatorResult, StepTime
from quorate.broker.coordinators.runtime import CoordinatorRuntime
from quorate.broker.topic_names import GROUP_METADATA_TOPIC
from quorate.clock import Clock
from quorate.lazy import lazy_module
from quorate.net.turns import Rounds
from quorate.protocol.api import ApiKey
from quorate.protocol.compiler import struct_encoder
from quorate.protocol.encoded import EncodedStructs
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.delete_groups import DeleteGroupsResponse
from quorate.protocol.messages.describe_groups import DescribeGroupsResponse
from quorate.protocol.messages.heartbeat import HeartbeatResponse
from quorate.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from quorate.protocol.messages.list_groups import ListGroupsResponse
from quorate.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from quorate.broker.coordinators.group.requests import small_heartbeat
    from quorate.net.dispatch import FrameHandler, FrameSource, Handler, RequestContext
else:
    small_heartbeat = lazy_module("quorate.broker.coordinators.group.requests.small_heartbeat")

GROUPS_AT_ONCE = 50
"""Groups of a request that are handled in one turn of the event loop, in a millisecond at most."""

OFFSETS_AT_ONCE = 500
"""Offsets of a group to be deleted that are prepared in one turn of the event loop, in some milliseconds."""

MAX_PROTOCOLS = 1000
"""The largest number of protocols in a JoinGroup.

Clients have one for each configured assignor. Each change of a group visits the protocols of all members.
"""


class Metadata(Protocol):
    """The members of the broker's metadata cache that coordinators use."""

    @property
    def image(self) -> Any: ...

    def topic(self, name: str) -> Any: ...

    def topic_name(self, topic_id: bytes) -> str | None: ...

    def topic_id(self, name: str) -> bytes: ...

    def partition(self, topic: str, partition: int) -> Any: ...

    def endpoint(self, broker_id: int, listener: str) -> Any: ...

    def is_fenced(self, broker_id: int) -> bool: ...

    def broker(self, broker_id: int) -> Any: ...


class GroupCoordinatorService:
    """The group coordinator of one broker. `routes` are the handlers by API key, `frame_routes` the frame
    handlers."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        replicas: Replicas,
        metadata: Metadata,
        clock: Clock,
        rounds: Rounds,
    ) -> None:
        """`rounds` divides requests about many groups."""
        self._rounds = rounds
        self.config = config
        self.metadata = metadata
        self.counts = GroupCounts()
        self.runtime: CoordinatorRuntime[GroupCoordinatorShard] = CoordinatorRuntime(
            name="GroupCoordinator",
            topic=GROUP_METADATA_TOPIC,
            make_shard=partial(GroupCoordinatorShard, config, self.counts),
            encode_record=encode_record,
            decode_record=decode_record,
            compression=config.offsets_compression,
            append_timeout_s=config.offsets_commit_timeout_ms / 1000,
            replicas=replicas,
            clock=clock,
            has_topic=lambda name: metadata.topic(name) is not None,
        )
        self.offsets = OffsetRequests(self.runtime, metadata, self.partition_for, rounds)
        self.routes: dict[int, Handler] = {
            ApiKey.JOIN_GROUP: self.join_group,
            ApiKey.SYNC_GROUP: self.sync_group,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave_group,
            ApiKey.DESCRIBE_GROUPS: self.describe_groups,
            ApiKey.LIST_GROUPS: self.list_groups,
            ApiKey.DELETE_GROUPS: self.delete_groups,
            **self.offsets.routes,
        }
        self.frame_routes: dict[int, FrameHandler] = {
            ApiKey.HEARTBEAT: self.answer_heartbeat,
            **self.offsets.frame_routes,
        }
        self._small_heartbeats: small_heartbeat.SmallHeartbeats | None = None

    def start(self) -> None:
        """Loads the partitions of `__consumer_offsets` that this broker leads."""
        self.runtime.start()

    async def close(self) -> None:
        """Unloads all partitions. Unanswered requests fail with NOT_COORDINATOR."""
        await self.runtime.close()

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """Deletes the offsets of deleted topics in all groups."""
        if topics:
            self.runtime.topics_deleted(topics)

    def partition_for(self, group_id: str) -> int:
        """The partition of a group, among those of the topic or, before it exists, of the settings."""
        topic = self.metadata.topic(GROUP_METADATA_TOPIC)
        count = self.config.offsets_topic_partitions if topic is None else len(topic.partitions)
        return partition_for(group_id, count)

    # --- classic groups ---------------------------------------------------------------------------

    def join_group(self, ctx: RequestContext, request: Any) -> Any:
        """Joins a group. The response waits for the end of the rebalance."""
        member_id = request.member_id
        if not request.group_id:
            return _join_response(ctx, join_error(member_id, ErrorCode.INVALID_GROUP_ID))
        if len(request.protocols) > MAX_PROTOCOLS:
            return _join_response(ctx, join_error(member_id, ErrorCode.INVALID_REQUEST))
        low, high = self.config.min_session_timeout_ms, self.config.max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            return _join_response(ctx, join_error(member_id, ErrorCode.INVALID_SESSION_TIMEOUT))
        caller = _caller(ctx)
        answer = self.runtime.write(
            self.partition_for(request.group_id),
            lambda shard, token, at: shard.groups.join(request, caller, token, at),
        )
        return respond(
            answer,
            partial(_join_response, ctx),
            lambda e: _join_response(ctx, join_error(UNKNOWN_MEMBER_ID, e.code)),
        )

    def sync_group(self, ctx: RequestContext, request: Any) -> Any:
        """Returns the member's assignment. The response waits until the leader's assignment is stored."""
        if ctx.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.group_id:
            return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        answer = self.runtime.write(
            self.partition_for(request.group_id),
            lambda shard, token, at: shard.groups.sync(request, token, at),
        )
        return respond(answer, None, lambda e: SyncGroupResponse(error_code=e.code))

    def heartbeat(self, ctx: RequestContext, request: Any) -> Any:
        """Restarts the session of a member. Nothing is stored, so the response does not wait."""
        if not request.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            context = self.runtime.context(self.partition_for(request.group_id))
        except KafkaError as error:
            # The sessions of a loading group start when it is loaded.
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)
        return context.shard.groups.heartbeat(request, self.runtime.step_time())

    def answer_heartbeat(self, frame: memoryview, source: FrameSource) -> bytes | None:
        """Restarts the session of a member whose heartbeat gets no error (a `FrameHandler`)."""
        small = self._small_heartbeats
        if small is None:
            small = small_heartbeat.SmallHeartbeats(self.runtime, self.partition_for)
            self._small_heartbeats = small
        return small.answer(frame, source)

    def leave_group(self, ctx: RequestContext, request: Any) -> Any:
        """Removes members. Before version 3 it is one member, whose error is that of the response."""
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        if ctx.api_version < 3:
            member = LeaveGroupRequest.MemberIdentity(member_id=request.member_id)
            request = LeaveGroupRequest(group_id=request.group_id, members=[member])
        answer = self.runtime.write(
            self.partition_for(request.group_id),
            lambda shard, token, at: shard.groups.leave(request, token, at),
        )

        def left(response: Any) -> Any:
            if ctx.api_version < 3 and not response.error_code and response.members:
                return LeaveGroupResponse(error_code=response.members[0].error_code)
            return response

        return respond(answer, left, lambda e: LeaveGroupResponse(error_code=e.code))

    # --- administration ---------------------------------------------------------------------------

    def describe_groups(self, ctx: RequestContext, request: Any) -> Any:
        """Describes groups from the committed state."""

        def describe(group_id: str) -> DescribeGroupsResponse.DescribedGroup:
            try:
                context = self.runtime.context(self.partition_for(group_id))
            except KafkaError as error:
                return DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=error.code)
            described = context.shard.describe(
                self.runtime.committed_state(context), group_id, ctx.api_version
            )
            if ctx.api_version >= 3 and request.include_authorized_operations and not described.error_code:
                described.authorized_operations = GROUP_OPERATIONS
            return described

        return self._rounds.answer(
            len(request.groups),
            map(describe, request.groups),
            lambda some: DescribeGroupsResponse(groups=some),
        )

    def list_groups(self, ctx: RequestContext, request: Any) -> Any:
        """Lists the groups of this broker from the committed state. Tools and exporters of metrics request
        all groups every few seconds."""
        states = frozenset(state.strip().lower() for state in request.states_filter)
        types = frozenset(kind.strip().lower() for kind in request.types_filter)
        count = 0
        listed: list[Iterator[ListGroupsResponse.ListedGroup | None]] = []
        for context in self.runtime.contexts():
            if context.error is ErrorCode.NONE:
                state = self.runtime.committed_state(context)
                count += len(state.groups)
                listed.append(context.shard.list_groups(state, states, types))
            elif context.error is not ErrorCode.NOT_COORDINATOR:
                return ListGroupsResponse(error_code=context.error)
        encode = struct_encoder(ListGroupsResponse, ListGroupsResponse.ListedGroup, ctx.api_version)
        return self._rounds.answer(
            count,
            (b"" if group is None else encode(group) for group in chain.from_iterable(listed)),
            lambda some: ListGroupsResponse(
                groups=EncodedStructs(filter(None, some))  # type: ignore[arg-type]
            ),
        )

    async def delete_groups(self, ctx: RequestContext, request: Any) -> Any:
        """Deletes empty groups with their offsets."""
        answers = {
            group_id: await self._delete_group(group_id) for group_id in dict.fromkeys(request.groups_names)
        }
        response = DeleteGroupsResponse()
        for group_id, steps in answers.items():
            code = ErrorCode.NONE
            for answer in steps:
                try:
                    result = await answer
                except KafkaError as error:
                    result = error.code
                code = code or result
            response.results.append(
                DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code)
            )
        return response

    async def _delete_group(self, group_id: str) -> list[Answer]:
        """Starts the deletion of a group and returns the error codes of all steps, which take a turn of the
        event loop each."""
        partition = self.partition_for(group_id)
        deletion = GroupDeletion(group_id, OFFSETS_AT_ONCE)
        max_bytes = self.runtime.records_bytes(partition)

        def step(shard: GroupCoordinatorShard, token: Answer, _: StepTime) -> CoordinatorResult:
            return shard.delete_group(deletion, token, max_bytes)

        answers: list[Answer] = []
        while True:
            answers.append(self.runtime.write(partition, step))
            await asyncio.sleep(0)
            if deletion.finished or _has_failed(answers[-1]):
                return answers


def _has_failed(answer: Answer) -> bool:
    return answer.done() and (answer.exception() is not None or answer.result() is not ErrorCode.NONE)


def _join_response(ctx: RequestContext, response: Any) -> Any:
    if ctx.api_version < 7 and response.protocol_name is None:
        response.protocol_name = ""  # not nullable before version 7
    return response


def _caller(ctx: RequestContext) -> Caller:
    raw = os.urandom(16)
    value = bytes([*raw[:6], raw[6] & 0x0F | 0x40, raw[7], raw[8] & 0x3F | 0x80, *raw[9:]]).hex()
    fresh = f"{value[:8]}-{value[8:12]}-{value[12:16]}-{value[16:20]}-{value[20:]}"
    return Caller(ctx.api_version, ctx.client_id or "", f"/{ctx.client_host}", fresh)
