"""Operations on consumer groups, which are sent to the coordinators of the groups."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from quorate.admin.errors import ErrorCode, KafkaError, UnsupportedVersion, check
from quorate.admin.transport import Transport
from quorate.admin.types import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    Node,
    OffsetAndMetadata,
    TopicPartition,
)
from quorate.protocol import messages
from quorate.protocol.errors import DecodeError
from quorate.protocol.messages.consumer_protocol import ConsumerProtocolAssignment

GROUP = 0


class GroupOperations:
    """The admin client's operations on consumer groups."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def find_coordinator(self, group_id: str) -> Node:
        """Returns the coordinator of a group."""

        def look(answer: Any) -> None:
            found = answer.coordinators[0] if answer.coordinators else answer
            check(found.error_code, found.error_message)

        request = messages.FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[group_id])
        try:
            answer = await self.transport.call(request, look)
            found = answer.coordinators[0]
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            found = await self.transport.call(
                messages.FindCoordinatorRequest(key=group_id, key_type=GROUP), look
            )
        return Node(found.node_id, found.host, found.port)

    async def ask_coordinator(
        self, group_id: str, request: Any, error_of: Callable[[Any], int]
    ) -> tuple[Any, Node]:
        """Sends a request to the coordinator of a group, and again if the coordinator has moved.

        `error_of` returns the error code of a response. Raises KafkaError.
        """

        async def attempt() -> tuple[Any, Node]:
            node = await self.find_coordinator(group_id)
            answer = await self.transport.ask((node.host, node.port), request)
            check(error_of(answer))
            return answer, node

        return await self.transport.until_answered(attempt, f"the coordinator of group {group_id}")

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """Returns the groups of all brokers in order of id."""
        request = messages.ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        async def one(node: Node) -> Any:
            return await self.transport.call_node(node.id, request, lambda a: check(a.error_code))

        answers = await asyncio.gather(*(one(node) for node in await self.transport.nodes()))
        found = {
            g.group_id: GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type)
            for a in answers
            for g in a.groups
        }
        return [found[group_id] for group_id in sorted(found)]

    async def describe_groups(self, group_ids: Sequence[str]) -> dict[str, GroupDescription | KafkaError]:
        """Returns members, state and coordinator of each group, or its error."""

        async def one(group_id: str) -> GroupDescription | KafkaError:
            try:
                return await self._describe_consumer(group_id) or await self._describe_classic(group_id)
            except KafkaError as error:
                return error

        return dict(zip(group_ids, await asyncio.gather(*(one(g) for g in group_ids)), strict=True))

    async def _describe_consumer(self, group_id: str) -> GroupDescription | None:
        """Describes a group of KIP-848.

        Returns None if the broker or the group does not use that protocol.
        """
        try:
            answer, node = await self.ask_coordinator(
                group_id,
                messages.ConsumerGroupDescribeRequest(group_ids=[group_id]),
                lambda a: int(a.groups[0].error_code),
            )
        except UnsupportedVersion:
            return None
        except KafkaError as error:
            if error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                return None
            raise
        group = answer.groups[0]
        members = tuple(
            MemberDescription(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                tuple(
                    TopicPartition(t.topic_name, p)
                    for t in m.assignment.topic_partitions
                    for p in t.partitions
                ),
            )
            for m in group.members
        )
        return GroupDescription(
            group_id, group.group_state, "consumer", group.assignor_name, node, members, "Consumer"
        )

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        answer, node = await self.ask_coordinator(
            group_id, messages.DescribeGroupsRequest(groups=[group_id]), lambda a: int(a.groups[0].error_code)
        )
        group = answer.groups[0]
        members = tuple(
            MemberDescription(
                m.member_id, m.group_instance_id, m.client_id, m.client_host, assigned(m.member_assignment)
            )
            for m in group.members
        )
        return GroupDescription(
            group_id, group.group_state, group.protocol_type, group.protocol_data, node, members
        )

    async def delete_groups(self, group_ids: Sequence[str]) -> dict[str, KafkaError | None]:
        """Deletes empty groups and returns the error of each, or None for success."""

        async def one(group_id: str) -> KafkaError | None:
            request = messages.DeleteGroupsRequest(groups_names=[group_id])
            try:
                await self.ask_coordinator(group_id, request, lambda a: int(a.results[0].error_code))
            except KafkaError as error:
                return error
            return None

        return dict(zip(group_ids, await asyncio.gather(*(one(g) for g in group_ids)), strict=True))

    # -- offsets
    # ----------------------------------------------------------------------------------------------

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
        """Returns the committed offsets of a group (None: of all partitions). Partitions without a committed
        offset are left out.
        """
        topics = None
        if partitions is not None:
            topics = [
                messages.OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in by_topic(partitions).items()
            ]
        group = messages.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        request = messages.OffsetFetchRequest(groups=[group], require_stable=require_stable)
        answer, _ = await self.ask_coordinator(group_id, request, lambda a: int(a.groups[0].error_code))
        found: dict[TopicPartition, OffsetAndMetadata | KafkaError] = {}
        for topic in answer.groups[0].topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                if p.error_code:
                    found[tp] = KafkaError(ErrorCode.of(p.error_code))
                elif p.committed_offset >= 0:
                    found[tp] = OffsetAndMetadata(
                        p.committed_offset, p.committed_leader_epoch, p.metadata or ""
                    )
        return found

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commits offsets for a group without members and returns the error of each partition, or None."""
        request = messages.OffsetCommitRequest(
            group_id=group_id,
            topics=[
                messages.OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        messages.OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offsets[TopicPartition(name, index)].offset,
                            committed_leader_epoch=offsets[TopicPartition(name, index)].leader_epoch,
                            committed_metadata=offsets[TopicPartition(name, index)].metadata,
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(offsets).items()
            ],
        )

        def moved(answer: Any) -> int:
            codes = {int(p.error_code) for t in answer.topics for p in t.partitions}
            again = codes & {
                ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            }  # fmt: skip
            return min(again, default=0)

        answer, _ = await self.ask_coordinator(group_id, request, moved)
        return {
            TopicPartition(t.name, p.partition_index): KafkaError(ErrorCode.of(p.error_code))
            if p.error_code
            else None
            for t in answer.topics
            for p in t.partitions
        }

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Deletes offsets and returns the error of each partition, or None. Raises the error of the group."""
        request = messages.OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                messages.OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[
                        messages.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=i)
                        for i in indexes
                    ],
                )
                for name, indexes in by_topic(partitions).items()
            ],
        )
        answer, _ = await self.ask_coordinator(group_id, request, lambda a: int(a.error_code))
        return {
            TopicPartition(t.name, p.partition_index): KafkaError(ErrorCode.of(p.error_code))
            if p.error_code
            else None
            for t in answer.topics
            for p in t.partitions
        }


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the partition numbers of each topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Decodes a consumer's assignment of any version. Returns no partitions for another protocol type."""
    if len(data) < 2:
        return ()
    version = struct.unpack_from(">h", data)[0]
    try:
        read, _ = ConsumerProtocolAssignment.read(bytes(data), 2, max(0, min(version, 3)))
    except DecodeError:
        return ()
    return tuple(TopicPartition(t.topic, p) for t in read.assigned_partitions for p in t.partitions)
