"""OffsetCommit (2 to 10), OffsetFetch (1 to 10), OffsetDelete (0) and TxnOffsetCommit (0 to 6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from quorate.broker.coordinators.context import Answer
from quorate.broker.coordinators.group.model import Caller, ShardState, offsets_differ
from quorate.broker.coordinators.group.offset_metadata_manager import STEP, commit_error, failing_commit
from quorate.broker.coordinators.group.shard import GroupCoordinatorShard
from quorate.broker.coordinators.responses import respond
from quorate.broker.coordinators.runtime import CoordinatorRuntime
from quorate.lazy import lazy_module
from quorate.net.turns import Rounds, run_steps
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from quorate.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from quorate.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from quorate.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from quorate.broker.coordinators.group.requests import small_commit
    from quorate.broker.coordinators.result import CoordinatorResult, StepTime, Token
    from quorate.net.dispatch import FrameAnswer, FrameHandler, FrameSource, Handler, RequestContext
    from quorate.protocol.messages import txn_offset_commit
else:
    small_commit = lazy_module("quorate.broker.coordinators.group.requests.small_commit")
    txn_offset_commit = lazy_module("quorate.protocol.messages.txn_offset_commit")

TURN_S = 0.003
"""Time for the groups of one OffsetFetch in one turn of the event loop. Administrators request all offsets
of all groups at once."""

AT_ONCE = 500
"""Partitions of a request that are handled in one turn of the event loop, in a millisecond or two."""

DELETED_AT_ONCE = 200
"""Partitions whose offsets are deleted in one turn of the event loop, in one to four milliseconds."""

MULTI_GROUP_VERSION = 8
"""From this OffsetFetch version a request has several groups."""


TOPIC_ID_VERSION = 10
"""From this version OffsetCommit and OffsetFetch name topics by their ids."""


class OffsetRequests:
    """The handlers of the offset APIs, in `routes` by API key."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupCoordinatorShard],
        metadata: small_commit.Topics,
        partition_for: Callable[[str], int],
        rounds: Rounds,
    ) -> None:
        """`partition_for` returns the partition of a group. `rounds` divides requests about many
        partitions."""
        self._rounds = rounds
        self._runtime = runtime
        self._metadata = metadata
        self._partition_for = partition_for
        self.routes: dict[int, Handler] = {
            ApiKey.OFFSET_COMMIT: self.offset_commit,
            ApiKey.OFFSET_FETCH: self.offset_fetch,
            ApiKey.OFFSET_DELETE: self.offset_delete,
            ApiKey.TXN_OFFSET_COMMIT: self.txn_offset_commit,
        }
        self.frame_routes: dict[int, FrameHandler] = {ApiKey.OFFSET_COMMIT: self.answer_commit}
        self._small_commits: small_commit.SmallCommits | None = None

    # --- OffsetCommit -----------------------------------------------------------------------------

    def answer_commit(self, frame: memoryview, source: FrameSource) -> FrameAnswer:
        """Stores the offsets of up to 100 partitions of one topic (a `FrameHandler`)."""
        small = self._small_commits
        if small is None:
            small = small_commit.SmallCommits(self._runtime, self._metadata, self._partition_for)
            self._small_commits = small
        return small.answer(frame)

    def offset_commit(self, ctx: RequestContext, request: Any) -> Any:
        """Stores offsets of existing partitions. The order of topics in the response is undefined, as in
        Kafka."""
        by_id = ctx.api_version >= TOPIC_ID_VERSION
        known: list[Any] = []
        refused: list[Any] = []
        splitting = self._split_commit(request, by_id, known, refused)
        if ctx.is_large:
            return self._commit_in_turns(ctx, request, splitting, known, refused)
        run_steps(splitting)
        if not known:
            return merge(refused, OffsetCommitResponse(), by_id)
        request.topics = known
        return respond(
            self._commit(request, ctx.api_version),
            partial(merge, refused, by_id=by_id),
            lambda e: merge(refused, commit_error(request, e.code), by_id),
        )

    async def _commit_in_turns(
        self,
        ctx: RequestContext,
        request: Any,
        splitting: Iterator[None],
        known: list[Any],
        refused: list[Any],
    ) -> OffsetCommitResponse:
        """Does the same for very many partitions in several turns of the event loop. What is stored is one
        batch. The next request of the connection waits for the response (`Dispatcher.may_overlap`)."""
        await self._rounds.collect(splitting)
        request.topics = known
        response = OffsetCommitResponse()
        if known:
            try:
                response = await self._commit(request, ctx.api_version)
            except KafkaError as error:
                await self._rounds.collect(failing_commit(request, error.code, response))
        by_id = ctx.api_version >= TOPIC_ID_VERSION
        await self._rounds.collect(merging(refused, response, by_id))
        return response

    def _split_commit(
        self, request: Any, by_id: bool, known: list[Any], refused: list[Any]
    ) -> Iterator[None]:
        """Fills `known` with the partitions of a request that exist, and `refused` with the answers of the
        others."""
        for topic in request.topics:
            if by_id:
                name, topic_id = self._metadata.topic_name(topic.topic_id) or "", topic.topic_id
            else:
                name, topic_id = topic.name, self._metadata.topic_id(topic.name)
            unknown_id = by_id and not name
            code = ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            existing: list[Any] = []
            answers: list[Any] = []
            for begin in range(0, len(topic.partitions), STEP):
                some, missing = self._split(name, topic.partitions[begin : begin + STEP])
                existing += some
                answers += [
                    OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=p, error_code=code)
                    for p in missing
                ]
                yield
            if answers:
                refused.append(
                    OffsetCommitResponse.OffsetCommitResponseTopic(
                        name=name, topic_id=topic_id, partitions=answers
                    )
                )
            if existing:
                known.append(
                    OffsetCommitRequest.OffsetCommitRequestTopic(
                        name=name, topic_id=topic_id, partitions=existing
                    )
                )
            yield

    def _commit(self, request: Any, api_version: int) -> Answer:
        """Stores the offsets of a request as one batch."""
        caller = Caller(api_version)
        partition = self._partition_for(request.group_id)

        def commit(shard: GroupCoordinatorShard, token: Token, at: StepTime) -> CoordinatorResult:
            limit = self._runtime.max_batch_bytes(partition)
            result = shard.offsets.commit(request, caller, token, at, limit)
            shard.counts.offset_commits += len(result.records)
            return result

        return self._runtime.write(partition, commit)

    def _split(self, topic: str, partitions: list[Any]) -> tuple[list[Any], list[int]]:
        """Returns (partitions of a request that exist, indexes of those that do not)."""
        existing, missing = [], []
        for partition in partitions:
            if topic and self._metadata.partition(topic, partition.partition_index) is not None:
                existing.append(partition)
            else:
                missing.append(partition.partition_index)
        return existing, missing

    # --- OffsetFetch ------------------------------------------------------------------------------

    async def offset_fetch(self, ctx: RequestContext, request: Any) -> Any:
        """Returns the committed offsets of groups."""
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
            unknown: list[Any] = []
            if ctx.api_version >= TOPIC_ID_VERSION and group.topics is not None:
                await self._carry_out(group, self._resolve_ids(group, unknown))
            pending.append((group, unknown, self._fetch_group(group, request.require_stable)))
        fetched = []
        for group, unknown, answer in pending:
            if time.monotonic() > turn_ends:
                await asyncio.sleep(0)
                turn_ends = time.monotonic() + TURN_S
            try:
                result = await answer
                if _is_large(group):
                    response = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id)
                    await self._rounds.collect(result(response))
                    result = response
                if ctx.api_version >= TOPIC_ID_VERSION and not result.error_code:
                    self._add_ids(result)
                    result.topics += unknown
                fetched.append(result)
            except KafkaError as error:
                failed = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id)
                code = fetch_code(error.code)
                await self._carry_out(group, failing_fetch(group, code, ctx.api_version, failed))
                fetched.append(failed)
        if ctx.api_version >= MULTI_GROUP_VERSION:
            return OffsetFetchResponse(groups=fetched)
        only = fetched[0]
        old = OffsetFetchResponse(error_code=only.error_code)
        count = sum([len(topic.partitions) for topic in only.topics])
        conversion = _convert(only, old, ctx.api_version)
        if count > AT_ONCE:
            await self._rounds.collect(conversion)
        else:
            run_steps(conversion)
        return old

    async def _carry_out(self, group: Any, steps: Iterator[None]) -> None:
        """Runs steps about the partitions of a group, in several turns of the loop if there are many."""
        if _is_large(group):
            await self._rounds.collect(steps)
        else:
            run_steps(steps)

    def _resolve_ids(self, group: Any, unknown: list[Any]) -> Iterator[None]:
        """Fills the names of the topics of a group, removes those with unknown ids from it, and adds the
        responses for these to `unknown`."""
        known: list[Any] = []
        for topic in group.topics:
            topic.name = self._metadata.topic_name(topic.topic_id) or ""
            if topic.name:
                known.append(topic)
            else:
                yield from _failing_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID, unknown)
            yield
        group.topics = known

    def _add_ids(self, result: OffsetFetchResponse.OffsetFetchResponseGroup) -> None:
        """Fills the ids of topics that the coordinator knows by name, and removes topics that no longer
        exist (`fetchAllOffsetsForGroup` in Kafka)."""
        for topic in result.topics:
            if topic.topic_id == ZERO_UUID:
                topic.topic_id = self._metadata.topic_id(topic.name)
        result.topics = [topic for topic in result.topics if topic.topic_id != ZERO_UUID]

    def _fetch_group(self, group: Any, require_stable: bool) -> Answer:
        partition = self._partition_for(group.group_id)

        def fetch(shard: GroupCoordinatorShard, state: ShardState) -> Any:
            if _is_large(group):
                return lambda response: shard.offsets.fetching(
                    state, group, response, require_stable=require_stable
                )
            return shard.offsets.fetch(state, group, require_stable=require_stable)

        if require_stable:
            return self._runtime.read_newest(partition, fetch)
        return self._runtime.read_committed(partition, fetch, partial(offsets_differ, group.group_id))

    # --- OffsetDelete, TxnOffsetCommit ------------------------------------------------------------

    def offset_delete(self, ctx: RequestContext, request: Any) -> Any:
        """Deletes offsets of topics to which no member of the group is subscribed."""
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        if sum([len(topic.partitions) for topic in request.topics]) + len(request.topics) > DELETED_AT_ONCE:
            return self._delete_in_turns(request)
        return self._delete(request)

    async def _delete_in_turns(self, request: Any) -> Any:
        """Deletes the offsets of very many partitions, in one batch for each turn of the event loop.

        The error is that of the first part that failed.
        """
        response = OffsetDeleteResponse()
        by_name: dict[str, Any] = {}
        for answer in await self._rounds.collect(map(self._delete, _parts(request))):
            part = await answer if asyncio.iscoroutine(answer) else answer
            if part.error_code and not response.error_code:
                response = part
            for topic in part.topics:
                same = by_name.setdefault(topic.name, topic)
                if same is not topic:
                    same.partitions += topic.partitions
        if not response.error_code:
            response.topics = list(by_name.values())
        return response

    def _delete(self, request: Any) -> Any:
        known, refused = [], []
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic in request.topics:
            existing, missing = self._split(topic.name, topic.partitions)
            if missing:
                answers = [
                    OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=p, error_code=code)
                    for p in missing
                ]
                refused.append(
                    OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=answers)
                )
            if existing:
                known.append(
                    OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic.name, partitions=existing)
                )
        wanted = OffsetDeleteRequest(group_id=request.group_id, topics=known)

        def delete(shard: GroupCoordinatorShard, token: Token, _: StepTime) -> CoordinatorResult:
            result = shard.offsets.delete_offsets(wanted, token)
            shard.counts.offset_deletions += len(result.records)
            return result

        answer = self._runtime.write(self._partition_for(request.group_id), delete)

        return respond(answer, partial(merge, refused), lambda e: OffsetDeleteResponse(error_code=e.code))

    def txn_offset_commit(self, ctx: RequestContext, request: Any) -> Any:
        """Transactions are not supported yet. Clients treat the error of the partitions as final."""
        response = txn_offset_commit.TxnOffsetCommitResponse()
        refusal = _refuse_transaction(request, response)
        if sum([len(topic.partitions) for topic in request.topics]) + len(request.topics) > AT_ONCE:
            return self._filled(refusal, response)
        run_steps(refusal)
        return response

    async def _filled(self, steps: Iterator[None], response: Any) -> Any:
        await self._rounds.collect(steps)
        return response


def _parts(request: Any) -> Iterator[OffsetDeleteRequest]:
    """Divides an OffsetDelete into requests about at most DELETED_AT_ONCE partitions or topics."""
    part = OffsetDeleteRequest(group_id=request.group_id)
    left = DELETED_AT_ONCE
    for topic in request.topics:
        for at in range(0, max(len(topic.partitions), 1), DELETED_AT_ONCE):
            partitions = topic.partitions[at : at + DELETED_AT_ONCE]
            part.topics.append(
                OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic.name, partitions=partitions)
            )
            left -= max(len(partitions), 1)
            if left <= 0:
                yield part
                part = OffsetDeleteRequest(group_id=request.group_id)
                left = DELETED_AT_ONCE
    if part.topics:
        yield part


def _is_large(group: Any) -> bool:
    """Whether the offsets of a group in an OffsetFetch are read in several turns of the event loop."""
    return group.topics is not None and (
        sum([len(topic.partition_indexes) for topic in group.topics]) > AT_ONCE or len(group.topics) > AT_ONCE
    )


def _convert(group: Any, response: OffsetFetchResponse, version: int) -> Iterator[None]:
    """Fills a response before version 8 from that for its group."""
    for topic in group.topics:
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = []
        response.topics.append(
            OffsetFetchResponse.OffsetFetchResponseTopic(name=topic.name, partitions=partitions)
        )
        yield
        for p in topic.partitions:
            partitions.append(
                OffsetFetchResponse.OffsetFetchResponsePartition(
                    partition_index=p.partition_index,
                    committed_offset=p.committed_offset,
                    committed_leader_epoch=p.committed_leader_epoch if version >= 5 else -1,
                    metadata=p.metadata,
                    error_code=p.error_code,
                )
            )
            yield


def _refuse_transaction(request: Any, response: Any) -> Iterator[None]:
    for topic in request.topics:
        partitions: list[Any] = []
        response.topics.append(
            txn_offset_commit.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
        yield
        for p in topic.partitions:
            partitions.append(
                txn_offset_commit.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                    partition_index=p.partition_index,
                    error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                )
            )
            yield


def merge(refused: list[Any], response: Any, by_id: bool = False) -> Any:
    """Adds the topics that the coordinator did not get to its response. Topics of the same name or id are
    joined, also those that the request has twice, but only if a topic was refused: as Kafka's response
    builders do."""
    run_steps(merging(refused, response, by_id))
    return response


def merging(refused: list[Any], response: Any, by_id: bool) -> Iterator[None]:
    """The steps of `merge`."""
    if not refused:
        return
    joined: dict[str | bytes, Any] = {}
    for topic in chain(refused, response.topics):
        same = joined.setdefault(topic.topic_id if by_id else topic.name, topic)
        if same is not topic:
            same.partitions += topic.partitions
        yield
    response.topics = list(joined.values())


def fetch_code(code: ErrorCode) -> ErrorCode:
    """The code of a failed group. Consumers before 3.9 handle only those errors of OffsetFetch that make them
    look for the coordinator again."""
    if code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        return ErrorCode.NOT_COORDINATOR
    return code


def failing_fetch(group: Any, code: ErrorCode, api_version: int, response: Any) -> Iterator[None]:
    """Fills the response for a failed group. Before version 2 only partitions have an error code."""
    if api_version >= 2:
        response.error_code = code
        return
    for topic in group.topics or ():
        yield from _failing_topic(topic, code, response.topics)


def _failing_topic(topic: Any, code: ErrorCode, topics: list[Any]) -> Iterator[None]:
    """Adds the response for a failed topic of an OffsetFetch."""
    answers: list[Any] = []
    topics.append(
        OffsetFetchResponse.OffsetFetchResponseTopics(
            name=topic.name, topic_id=topic.topic_id, partitions=answers
        )
    )
    for index in topic.partition_indexes:
        answers.append(
            OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=-1,
                committed_leader_epoch=-1,
                metadata="",
                error_code=code,
            )
        )
        if not len(answers) % STEP:
            yield
