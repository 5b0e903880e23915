"""Fetch (1), versions 4 to 18.

New in version 7: fetch sessions (KIP-227); 9: current leader epoch; 11: rack, reading from followers; 12:
last fetched epoch, diverging epochs; 13: topic ids; 15: replica state in a tagged field; 16: leader hints
(KIP-951); 18: the follower's high watermark.

Records are file regions in the response and are sent without a copy in Python. A request without enough
data waits in `quorate.broker.replication.purgatory`. Quotas of clients are not supported.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from quorate.broker.handlers import small_fetch
from quorate.broker.handlers.fetch_steps import (
    FetchSteps,
    PartitionAnswer,
    forgotten_keys,
)
from quorate.broker.handlers.large_fetch import LargeFetch
from quorate.broker.replication.fetch_session import FetchContext, FetchPartition, PartitionKey
from quorate.broker.replication.log_reader import FetchParams, Isolation, ReadResult, is_ready, read, read_one
from quorate.broker.replication.partition import NO_EPOCH
from quorate.broker.replication.purgatory import DelayedFetch
from quorate.broker.replication.replica_selector import LEADER, selects_by_rack
from quorate.net.turns import Rounds
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.file_region import READ_AHEAD_ROUNDS, touch
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.page_cache import read_resident
from quorate.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import FrameSource, Handler, RequestContext
    from quorate.protocol.file_region import ReadAhead

AT_ONCE = 500
"""A Fetch with more partitions than this, including those of its session, takes several turns of the event
loop."""

INLINE_BYTES = 16_384
"""Records of at most this size are copied into the response of a frame handler. Larger ones are sent by
sendfile, which needs a list of parts."""


_CONSUMER = -1


class FetchHandler:
    """Reads batches for consumers and followers."""

    __slots__ = ("_by_rack", "_max_bytes", "_rounds", "_services", "_steps")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._steps = FetchSteps(services)
        self._max_bytes = services.config.fetch_max_bytes
        self._by_rack = selects_by_rack(services.config.get("replica.selector.class"))
        self._rounds = Rounds(AT_ONCE)

    def __call__(self, context: RequestContext, request: FetchRequest) -> Any:
        services = self._services
        version = context.api_version
        replica_id, replica_epoch = request.replica_id, -1
        if version >= 15:
            replica_id, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        follower = replica_id >= 0
        max_bytes = min(request.max_bytes, self._max_bytes)
        params = FetchParams(
            replica_id=replica_id,
            replica_epoch=replica_epoch,
            max_wait_ms=request.max_wait_ms,
            min_bytes=min(request.min_bytes, max_bytes),
            max_bytes=max_bytes,
            isolation=Isolation.LOG_END
            if follower
            else (Isolation.TXN_COMMITTED if request.isolation_level == 1 else Isolation.HIGH_WATERMARK),
            only_leader=follower or version < 11,
            rack=request.rack_id if self._by_rack and not follower else "",
            listener=context.listener,
        )
        asked: dict[PartitionKey, FetchPartition] = {}
        if self._count(request) > AT_ONCE:
            opened = services.sessions.opened(
                session_id=request.session_id,
                epoch=request.session_epoch,
                uses_topic_ids=version >= 13,
                privileged=follower,
                wanted=asked,
                now_ms=services.clock.now_ms(),
            )
            return LargeFetch(
                self._steps, services, self._rounds, context, request, opened, asked, params
            ).response()
        for topic in request.topics:
            self._steps.add_wanted(asked, topic, topic.partitions, version)
        fetch = services.sessions.context(
            session_id=request.session_id,
            epoch=request.session_epoch,
            uses_topic_ids=version >= 13,
            privileged=follower,
            wanted=asked,
            forgotten=forgotten_keys(request, version),
            now_ms=services.clock.now_ms(),
        )
        if fetch.error != ErrorCode.NONE:
            return self._answer(context, fetch, {}, params)
        keys: list[PartitionKey] = []
        wanted: list[FetchPartition] = []
        answers: dict[PartitionKey, PartitionAnswer] = {}
        if fetch.quiet is not None:
            self._steps.note_reader(fetch.quiet, params)
        self._steps.choose(fetch.active.items(), keys, wanted, answers)
        if not wanted and not fetch.quiet:
            return self._answer(context, fetch, answers, params)
        cold = self._steps.cold_regions(wanted)
        if cold:
            return self._read_ahead(cold, context, fetch, answers, keys, wanted, params)
        return self._read(context, fetch, answers, keys, wanted, params)

    def answer_frame(self, frame: memoryview, source: FrameSource) -> bytes | None:
        """Answers a consumer's request for one partition without a session, if the partition has enough
        records in the page cache (a `FrameHandler`)."""
        request = small_fetch.parse(frame)
        if request is None or self._by_rack:
            return None
        services = self._services
        replicas = services.replicas
        name, offset, max_bytes = request.name, request.offset, min(request.max_bytes, self._max_bytes)
        if request.topic_id != ZERO_UUID:
            name = services.metadata.topic_name(request.topic_id) or ""
        partition = replicas.partitions.get((name, request.partition))
        if partition is None:
            return None
        try:
            log = partition.log
            if offset >= log.high_watermark and request.max_wait_ms > 0 and request.min_bytes > 0:
                return None  # it has to wait for the next record
            if log.cold_regions(offset):
                return None
        except (OSError, KafkaError):
            return None  # the read of the handler raises the error again and handles it
        wanted = FetchPartition(
            name,
            request.topic_id,
            request.partition,
            offset,
            request.log_start_offset,
            request.partition_max_bytes,
            max(request.leader_epoch, NO_EPOCH),
            request.last_epoch,
        )
        min_bytes = min(request.min_bytes, max_bytes)
        params = FetchParams(
            _CONSUMER,
            -1,
            request.max_wait_ms,
            min_bytes,
            max_bytes,
            Isolation.HIGH_WATERMARK,
            False,
            "",
            source.listener_name,
        )
        result = read_one(replicas, params, wanted)
        size = result.size
        if (
            result.error
            or result.diverging is not None
            or size > INLINE_BYTES
            or (size < min_bytes and request.max_wait_ms > 0)
        ):
            return None
        records = b""
        for part in result.parts:
            if isinstance(part, bytes):
                data: bytes | None = part
            else:
                data = read_resident(part.fd_owner, part.position, part.length)
            if data is None:
                return None
            records = records + data if records else data
        replicas.stats.consumer_fetched(name, size)
        return small_fetch.response(frame, request, result, records)

    def _count(self, request: FetchRequest) -> int:
        """The number of partitions of a request and of those that its session reads."""
        count = sum([len(topic.partitions) for topic in request.topics])
        if request.forgotten_topics_data:
            count += sum([len(topic.partitions) for topic in request.forgotten_topics_data])
        session = self._services.sessions.cache.get(request.session_id)
        return count if session is None else count + len(session.active)

    async def _read_ahead(
        self,
        cold: list[ReadAhead],
        context: RequestContext,
        fetch: FetchContext,
        answers: dict[PartitionKey, PartitionAnswer],
        keys: list[PartitionKey],
        wanted: list[FetchPartition],
        params: FetchParams,
    ) -> FetchResponse:
        """Loads the indexes and batch headers into the page cache in a thread, then calls `_read`."""
        for _ in range(READ_AHEAD_ROUNDS):
            try:
                await self._services.loop.run_in_executor(None, touch, cold)
            except (OSError, EOFError):
                break  # the read raises the error again
            cold = self._steps.cold_regions(wanted)
            if not cold:
                break
        result = self._read(context, fetch, answers, keys, wanted, params)
        return await result if isinstance(result, asyncio.Future) else result

    def _read(
        self,
        context: RequestContext,
        fetch: FetchContext,
        answers: dict[PartitionKey, PartitionAnswer],
        keys: list[PartitionKey],
        wanted: list[FetchPartition],
        params: FetchParams,
    ) -> FetchResponse | asyncio.Future[Any]:
        """Returns the response, or a future for it if the request has to wait for more bytes."""
        services = self._services
        quiet = fetch.quiet

        def join() -> None:
            if quiet is not None and quiet.fresh:
                self._steps.choose(quiet.take_fresh(), keys, wanted, answers)

        join()  # pages may have been read ahead in a thread
        results = read(services.replicas, params, wanted, note_follower=True)
        size = 0
        at_once = params.max_wait_ms <= 0
        for result in results:
            size += result.size
            if (
                result.error != ErrorCode.NONE
                or result.diverging is not None
                or result.preferred_read_replica != LEADER
            ):
                at_once = True
        if at_once or size >= params.min_bytes:
            return self._finish(context, fetch, answers, keys, wanted, params, results)

        refused = len(answers)

        def ready() -> bool:
            join()
            return len(answers) > refused or is_ready(services.replicas, params, wanted)

        def finish() -> FetchResponse:
            join()
            if quiet is not None:
                quiet.waiting = None
            again = read(services.replicas, params, wanted, note_follower=False)
            return self._finish(context, fetch, answers, keys, wanted, params, again)

        hosted = [services.replicas.partition(part.topic or "", part.partition) for part in wanted]
        stats = services.replicas.stats
        expired = stats.follower_fetch_expired if params.is_from_follower else stats.consumer_fetch_expired
        waiting = DelayedFetch(services.loop, hosted, params.max_wait_ms / 1000, ready, finish, expired)
        if quiet is not None:
            quiet.waiting = waiting
        return waiting.future

    def _finish(
        self,
        context: RequestContext,
        fetch: FetchContext,
        answers: dict[PartitionKey, PartitionAnswer],
        keys: list[PartitionKey],
        wanted: list[FetchPartition],
        params: FetchParams,
        results: list[ReadResult],
    ) -> FetchResponse:
        self._steps.count(params, wanted, results)
        read_answers: dict[PartitionKey, PartitionAnswer] = {}
        self._steps.answer_read(read_answers, zip(keys, wanted, results, strict=True), context.api_version)
        read_answers.update(answers)
        response = self._answer(context, fetch, read_answers, params)
        self._steps.make_quiet(fetch, params, zip(keys, wanted, results, strict=True))
        return response

    def _answer(
        self,
        context: RequestContext,
        fetch: FetchContext,
        answers: dict[PartitionKey, PartitionAnswer],
        params: FetchParams,
    ) -> FetchResponse:
        hints: dict[int, FetchResponse.NodeEndpoint] = {}
        error, session_id, news = fetch.finish(answers, self._services.clock.now_ms())
        response = FetchResponse(error_code=error, session_id=session_id)
        self._steps.add_news(context, params, response, fetch.partitions, news, hints)
        response.node_endpoints = list(hints.values())
        return response


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {int(ApiKey.FETCH): FetchHandler(services)}
