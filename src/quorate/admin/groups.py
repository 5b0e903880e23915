"""Consumer groups and their offsets, asked of the groups' coordinators."""

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
        """The broker that coordinates a group."""

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
        """Asks a group's coordinator, again where it has moved. Raises the KafkaError that `error_of`
        finds in the answer."""

        async def attempt() -> tuple[Any, Node]:
            node = await self.find_coordinator(group_id)
            answer = await self.transport.ask((node.host, node.port), request)
            check(error_of(answer))
            return answer, node

        return await self.transport.until_answered(attempt, f"the coordinator of group {group_id}")

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """Groups of all brokers, by id."""
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
        """Members, state and coordinator of each group, or what was wrong with it."""

        async def one(group_id: str) -> GroupDescription | KafkaError:
            try:
                return await self._describe_newer(group_id) or await self._describe_classic(group_id)
            except KafkaError as error:
                return error

        return dict(zip(group_ids, await asyncio.gather(*(one(g) for g in group_ids)), strict=True))

    async def _describe_newer(self, group_id: str) -> GroupDescription | None:
        """A group of KIP-848; None where the broker or the group does not speak that protocol."""
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
        """Deletes empty groups; by id what was wrong with each."""

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
        """Committed offsets of a group (None: of all its partitions); partitions without one are left
        out."""
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
        """Commits offsets for a group without members; by partition what was wrong."""
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
                ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
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
        """Deletes single offsets. Raises the group's error; by partition what was wrong with it."""
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
    """Partition numbers by topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Partitions of a consumer's assignment, of any version; none when the bytes are of another
    protocol."""
    if len(data) < 2:
        return ()
    version = struct.unpack_from(">h", data)[0]
    try:
        read, _ = ConsumerProtocolAssignment.read(bytes(data), 2, max(0, min(version, 3)))
    except DecodeError:
        return ()
    return tuple(TopicPartition(t.topic, p) for t in read.assigned_partitions for p in t.partitions)
