"""Fetch (1), versions 4 to 18.

7 sessions (KIP-227) · 9 current leader epoch · 11 rack, reading from followers · 12 last fetched epoch,
diverging epochs · 13 topic ids · 15 replica state in a tagged field · 16 leader hints (KIP-951) · 18 the
follower's high watermark.

The response holds file regions. A request without enough data waits in
`quorate.broker.replication.purgatory`. Not supported: preferred read replicas (no replica selector is
configured by default), quotas.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from quorate.broker.replication.fetch_session import FetchContext, FetchPartition, PartitionKey
from quorate.broker.replication.log_reader import FetchParams, Isolation, ReadResult, is_ready, read
from quorate.broker.replication.partition import NO_EPOCH
from quorate.broker.replication.purgatory import DelayedFetch
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext
    from quorate.protocol.file_region import FileRegion

TopicAnswer = FetchResponse.FetchableTopicResponse
PartitionAnswer = FetchResponse.PartitionData
_READ_AHEAD_ROUNDS = 8
"""Rounds of reading pages in a thread: an index leads to a batch header, which leads to the next one.
Pages that are still missing then are read in the event loop."""

_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class FetchHandler:
    """Reads batches for consumers and followers."""

    __slots__ = ("_max_bytes", "_services")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._max_bytes = services.config.fetch_max_bytes

    def __call__(self, context: RequestContext, request: FetchRequest) -> Any:
        services = self._services
        version = context.api_version
        replica_id, replica_epoch = request.replica_id, -1
        if version >= 15:
            replica_id, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        follower = replica_id >= 0
        fetch = services.sessions.context(
            session_id=request.session_id,
            epoch=request.session_epoch,
            uses_topic_ids=version >= 13,
            privileged=follower,
            wanted=self._wanted(request, version),
            forgotten=self._forgotten(request, version),
            now_ms=services.clock.now_ms(),
        )
        if fetch.error != ErrorCode.NONE:
            return self._answer(context, fetch, {})
        keys: list[PartitionKey] = []
        wanted: list[FetchPartition] = []
        answers: dict[PartitionKey, PartitionAnswer] = {}
        for key, part in fetch.partitions.items():
            error = self._refused(part)
            if error is None:
                keys.append(key)
                wanted.append(part)
            else:
                answers[key] = self._refusal(part, error)
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
        )
        if not wanted:
            return self._answer(context, fetch, answers)
        cold = self._cold_regions(wanted)
        if cold:
            return self._read_ahead(cold, context, fetch, answers, keys, wanted, params)
        return self._read(context, fetch, answers, keys, wanted, params)

    def _cold_regions(self, wanted: list[FetchPartition]) -> list[FileRegion]:
        local_log = self._services.replicas.local_log
        cold: list[FileRegion] = []
        for part in wanted:
            log = local_log(part.topic or "", part.partition)
            if log is not None:
                try:
                    cold += log.cold_regions(part.fetch_offset)
                except (OSError, KafkaError):
                    continue  # the read raises the error again and handles it
        return cold

    async def _read_ahead(
        self,
        cold: list[FileRegion],
        context: RequestContext,
        fetch: FetchContext,
        answers: dict[PartitionKey, PartitionAnswer],
        keys: list[PartitionKey],
        wanted: list[FetchPartition],
        params: FetchParams,
    ) -> FetchResponse:
        """Loads the indexes and batch headers into the page cache in a thread, then reads as `_read`."""
        for _ in range(_READ_AHEAD_ROUNDS):
            try:
                await self._services.loop.run_in_executor(None, _touch, cold)
            except (OSError, EOFError):
                break  # the read raises the error again
            cold = self._cold_regions(wanted)
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
        results = read(services.replicas, params, wanted, note_follower=True)
        size = 0
        at_once = params.max_wait_ms <= 0
        for result in results:
            size += result.size
            if result.error != ErrorCode.NONE or result.diverging is not None:
                at_once = True
        if at_once or size >= params.min_bytes:
            return self._finish(context, fetch, answers, keys, wanted, results)

        def finish() -> FetchResponse:
            again = read(services.replicas, params, wanted, note_follower=False)
            return self._finish(context, fetch, answers, keys, wanted, again)

        hosted = [services.replicas.partition(part.topic or "", part.partition) for part in wanted]
        return DelayedFetch(
            services.loop,
            hosted,
            params.max_wait_ms / 1000,
            lambda: is_ready(services.replicas, params, wanted),
            finish,
        ).future

    def _wanted(self, request: FetchRequest, version: int) -> dict[PartitionKey, FetchPartition]:
        by_id = version >= 13
        name_of = self._services.metadata.topic_name
        wanted: dict[PartitionKey, FetchPartition] = {}
        for topic in request.topics:
            name: str | None
            if by_id:
                topic_key: bytes | str = topic.topic_id
                topic_id, name = topic.topic_id, name_of(topic.topic_id)
            else:
                topic_key = name = topic.topic
                topic_id = ZERO_UUID
            for part in topic.partitions:
                wanted[(topic_key, part.partition)] = FetchPartition(
                    name,
                    topic_id,
                    part.partition,
                    part.fetch_offset,
                    part.log_start_offset,
                    part.partition_max_bytes,
                    # Any negative epoch means none here, unlike in ListOffsets.
                    max(part.current_leader_epoch, NO_EPOCH),
                    part.last_fetched_epoch,
                )
        return wanted

    def _forgotten(self, request: FetchRequest, version: int) -> list[PartitionKey]:
        return [
            (topic.topic_id if version >= 13 else topic.topic, partition)
            for topic in request.forgotten_topics_data
            for partition in topic.partitions
        ]

    def _refused(self, part: FetchPartition) -> ErrorCode | None:
        if part.topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        services = self._services
        if (
            part.topic,
            part.partition,
        ) not in services.replicas.partitions and not services.metadata.contains(part.topic, part.partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None

    @staticmethod
    def _refusal(part: FetchPartition, error: ErrorCode) -> PartitionAnswer:
        return PartitionAnswer(
            partition_index=part.partition, error_code=error, high_watermark=-1, records=b""
        )

    def _finish(
        self,
        context: RequestContext,
        fetch: FetchContext,
        answers: dict[PartitionKey, PartitionAnswer],
        keys: list[PartitionKey],
        wanted: list[FetchPartition],
        results: list[ReadResult],
    ) -> FetchResponse:
        read_answers: dict[PartitionKey, PartitionAnswer] = {}
        old_storage = context.api_version <= 5  # these versions have no KAFKA_STORAGE_ERROR
        for key, part, result in zip(keys, wanted, results, strict=True):
            error = result.error
            if old_storage and error == ErrorCode.KAFKA_STORAGE_ERROR:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            answer = PartitionAnswer(
                partition_index=part.partition,
                error_code=error,
                high_watermark=result.high_watermark,
                last_stable_offset=result.last_stable_offset,
                log_start_offset=result.log_start_offset,
                records=list(result.parts) if result.size else b"",
            )
            if result.aborted is not None:
                answer.aborted_transactions = [
                    FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                    for producer_id, first_offset in result.aborted
                ]
            else:
                answer.aborted_transactions = None
            if result.diverging is not None:
                answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset = result.diverging
            read_answers[key] = answer
        read_answers.update(answers)
        return self._answer(context, fetch, read_answers)

    def _answer(
        self, context: RequestContext, fetch: FetchContext, answers: dict[PartitionKey, PartitionAnswer]
    ) -> FetchResponse:
        services = self._services
        partitions = fetch.partitions
        hints: dict[int, FetchResponse.NodeEndpoint] = {}
        error, session_id, news = fetch.finish(answers, services.clock.now_ms())
        if context.api_version >= 16:
            for key, answer in news.items():
                if answer.error_code in _HINTED:
                    self._hint(context, partitions[key], answer, hints)
        response = FetchResponse(error_code=error, session_id=session_id, node_endpoints=list(hints.values()))
        last_topic: bytes | str | None = None
        by_id = context.api_version >= 13
        for key, answer in news.items():
            if key[0] != last_topic:
                last_topic = key[0]
                topic = TopicAnswer(topic_id=last_topic) if by_id else TopicAnswer(topic=last_topic)  # type: ignore[arg-type]
                response.responses.append(topic)
            topic.partitions.append(answer)
        return response

    def _hint(
        self,
        context: RequestContext,
        part: FetchPartition,
        answer: PartitionAnswer,
        hints: dict[int, FetchResponse.NodeEndpoint],
    ) -> None:
        metadata = self._services.metadata
        leader, epoch = metadata.current_leader(part.topic or "", part.partition)
        answer.current_leader.leader_id = leader
        answer.current_leader.leader_epoch = epoch
        endpoint = metadata.endpoint(leader, context.listener)
        broker = metadata.broker(leader)
        if endpoint is not None and broker is not None:
            hints[leader] = FetchResponse.NodeEndpoint(
                node_id=leader, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )


def _touch(regions: list[FileRegion]) -> None:
    for region in regions:
        region.read()


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {int(ApiKey.FETCH): FetchHandler(services)}
