"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit in all their versions."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from quorate.broker.coordinators.driver import Answer, GroupDriver
    from quorate.broker.coordinators.model import ShardState
    from quorate.broker.coordinators.shard import Shard
    from quorate.net.dispatch import RequestContext

TURN_S = 0.003
"""For the groups of one OffsetFetch in one turn of the event loop: administrators ask for all offsets
of all groups at once."""

MULTI_GROUP_VERSION = 8
"""From this OffsetFetch version a request names several groups."""


class OffsetHandlers:
    """Part of the group service that deals in offsets."""

    driver: GroupDriver
    metadata: Any

    def partition_for(self, group_id: str) -> int:
        raise NotImplementedError

    # -- OffsetCommit
    # ----------------------------------------------------------------------------------------------

    def offset_commit(self, ctx: RequestContext, request: Any) -> Any:
        """Stores offsets of partitions that exist; the answer has the topics in no particular order, as
        Kafka's."""
        from quorate.broker.coordinators.offsets import commit_error
        from quorate.broker.coordinators.service import settle
        from quorate.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

        known, refused = [], []
        for topic in request.topics:
            name = topic.name
            if not name and topic.topic_id != ZERO_UUID:
                name = self.metadata.topic_name(topic.topic_id) or ""
            here, gone = self._split(name, topic.partitions)
            if gone:
                by_id = topic.topic_id != ZERO_UUID and not name
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answers = [
                    OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=p, error_code=code)
                    for p in gone
                ]
                refused.append(
                    OffsetCommitResponse.OffsetCommitResponseTopic(
                        name=name, topic_id=topic.topic_id, partitions=answers
                    )
                )
            if here:
                known.append(
                    OffsetCommitRequest.OffsetCommitRequestTopic(
                        name=name, topic_id=topic.topic_id, partitions=here
                    )
                )
        if not known:
            return merge(refused, OffsetCommitResponse())
        request.topics = known
        caller = self._caller_of(ctx)
        partition = self.partition_for(request.group_id)
        answer = self.driver.write(
            partition,
            lambda shard, token, at: shard.commit(
                request, caller, token, at, self.driver.max_batch_bytes(partition)
            ),
        )

        return settle(
            answer, partial(merge, refused), lambda e: merge(refused, commit_error(request, e.code))
        )

    def _split(self, topic: str, partitions: list[Any]) -> tuple[list[Any], list[int]]:
        """Partitions of a request that exist, and the indexes of those that do not."""
        here, gone = [], []
        for partition in partitions:
            if topic and self.metadata.partition(topic, partition.partition_index) is not None:
                here.append(partition)
            else:
                gone.append(partition.partition_index)
        return here, gone

    def _caller_of(self, ctx: RequestContext) -> Any:
        from quorate.broker.coordinators.model import Caller

        return Caller(ctx.api_version)

    # -- OffsetFetch
    # ----------------------------------------------------------------------------------------------

    async def offset_fetch(self, ctx: RequestContext, request: Any) -> Any:
        from quorate.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

        if ctx.api_version >= MULTI_GROUP_VERSION:
            groups = request.groups
        else:
            topics = None
            if request.topics is not None:
                topics = [
                    OffsetFetchRequest.OffsetFetchRequestTopics(
                        name=t.name, partition_indexes=t.partition_indexes
                    )
                    for t in request.topics
                ]
            groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]
        pending = []
        turn_ends = time.monotonic() + TURN_S
        for group in groups:
            if time.monotonic() > turn_ends:
                await asyncio.sleep(0)
                turn_ends = time.monotonic() + TURN_S
            pending.append((group, self._fetch_group(group, request.require_stable)))
        fetched = []
        for group, answer in pending:
            try:
                fetched.append(await answer)
            except KafkaError as error:
                fetched.append(fetch_error(group, fetch_code(error.code), ctx.api_version))
        if ctx.api_version >= MULTI_GROUP_VERSION:
            return OffsetFetchResponse(groups=fetched)
        only = fetched[0]
        return OffsetFetchResponse(
            error_code=only.error_code,
            topics=[
                OffsetFetchResponse.OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponse.OffsetFetchResponsePartition(
                            partition_index=p.partition_index,
                            committed_offset=p.committed_offset,
                            committed_leader_epoch=p.committed_leader_epoch if ctx.api_version >= 5 else -1,
                            metadata=p.metadata,
                            error_code=p.error_code,
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in only.topics
            ],
        )

    def _fetch_group(self, group: Any, require_stable: bool) -> Answer:
        partition = self.partition_for(group.group_id)

        def fetch(shard: Shard, state: ShardState) -> Any:
            return shard.fetch(state, group, require_stable=require_stable)

        if require_stable:
            return self.driver.read_newest(partition, fetch)
        return self.driver.read_committed(partition, group.group_id, fetch)

    # -- OffsetDelete, TxnOffsetCommit
    # ----------------------------------------------------------------------------------------------

    def offset_delete(self, ctx: RequestContext, request: Any) -> Any:
        from quorate.broker.coordinators.service import settle
        from quorate.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        known, refused = [], []
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic in request.topics:
            here, gone = self._split(topic.name, topic.partitions)
            if gone:
                answers = [
                    OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=p, error_code=code)
                    for p in gone
                ]
                refused.append(
                    OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=answers)
                )
            if here:
                known.append(OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic.name, partitions=here))
        wanted = OffsetDeleteRequest(group_id=request.group_id, topics=known)
        answer = self.driver.write(
            self.partition_for(request.group_id), lambda shard, token, _: shard.delete_offsets(wanted, token)
        )

        return settle(answer, partial(merge, refused), lambda e: OffsetDeleteResponse(error_code=e.code))

    def txn_offset_commit(self, ctx: RequestContext, request: Any) -> Any:
        """Transactions are not served yet: every partition is refused with an error that clients take
        as final."""
        from quorate.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse

        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                            partition_index=p.partition_index,
                            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def merge(refused: list[Any], response: Any) -> Any:
    """Adds the topics that never reached the coordinator to its answer. As Kafka's response builders
    do, it joins topics of one name, those that the request named twice too, unless nothing was refused."""
    if not refused:
        return response
    by_name: dict[str, Any] = {}
    for topic in (*refused, *response.topics):
        same = by_name.setdefault(topic.name, topic)
        if same is not topic:
            same.partitions += topic.partitions
    response.topics = list(by_name.values())
    return response


def fetch_code(code: ErrorCode) -> ErrorCode:
    """Consumers before 3.9 know of an OffsetFetch's failures only those that make them look for the
    coordinator again."""
    if code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        return ErrorCode.NOT_COORDINATOR
    return code


def fetch_error(group: Any, code: ErrorCode, api_version: int) -> Any:
    """A failed group; before version 2 there is no place for its error but on each partition."""
    from quorate.protocol.messages.offset_fetch import OffsetFetchResponse

    if api_version >= 2:
        return OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
    return OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=-1,
                        committed_leader_epoch=-1,
                        metadata="",
                        error_code=code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in group.topics or ()
        ],
    )
