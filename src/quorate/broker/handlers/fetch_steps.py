"""The steps of a Fetch, each for some of its partitions. A usual Fetch takes each step once, for all of
them; a large one in several turns of the event loop (`large_fetch`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from quorate.broker.replication.fetch_session import FetchContext, FetchPartition, PartitionKey
from quorate.broker.replication.log_reader import FetchParams, ReadResult, record_throttled
from quorate.broker.replication.partition import NO_EPOCH
from quorate.broker.replication.quiet_partitions import QuietPartitions, quiet_follower
from quorate.broker.replication.replica_selector import LEADER
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import RequestContext
    from quorate.protocol.file_region import ReadAhead

TopicAnswer = FetchResponse.FetchableTopicResponse
PartitionAnswer = FetchResponse.PartitionData
_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def forgotten_keys(request: FetchRequest, version: int) -> Iterator[PartitionKey]:
    """The partitions that a request removes from its session."""
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            yield (topic.topic_id if version >= 13 else topic.topic, partition)


class FetchSteps:
    """Takes the steps of all Fetch requests of a broker."""

    __slots__ = ("_services",)

    def __init__(self, services: Services) -> None:
        self._services = services

    def add_wanted(
        self,
        wanted: dict[PartitionKey, FetchPartition],
        topic: FetchRequest.FetchTopic,
        partitions: Iterable[FetchRequest.FetchPartition],
        version: int,
    ) -> None:
        """Adds the partitions of one topic of a request to `wanted`."""
        name: str | None
        if version >= 13:
            topic_key: bytes | str = topic.topic_id
            topic_id, name = topic.topic_id, self._services.metadata.topic_name(topic.topic_id)
        else:
            topic_key = name = topic.topic
            topic_id = ZERO_UUID
        for part in partitions:
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

    def choose(
        self,
        partitions: Iterable[tuple[PartitionKey, FetchPartition]],
        keys: list[PartitionKey],
        wanted: list[FetchPartition],
        answers: dict[PartitionKey, PartitionAnswer],
    ) -> None:
        """Adds the partitions to read to `keys` and `wanted`, and the answers for all others to
        `answers`."""
        for key, part in partitions:
            error = self._refused(part)
            if error is None:
                keys.append(key)
                wanted.append(part)
            else:
                answers[key] = PartitionAnswer(
                    partition_index=part.partition, error_code=error, high_watermark=-1, records=b""
                )

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

    def cold_regions(self, wanted: Iterable[FetchPartition]) -> list[ReadAhead]:
        """The regions that reading needs and the page cache does not have. Those for which no descriptor is
        left are missing: the read waits for the disk."""
        local_log = self._services.replicas.local_log
        files = self._services.replicas.logs.files
        cold: list[ReadAhead] = []
        for part in wanted:
            if files.is_exhausted:
                break
            try:
                log = local_log(part.topic or "", part.partition)
                if log is not None:
                    cold += log.cold_regions(part.fetch_offset)
            except (OSError, KafkaError):
                continue  # the read raises the error again and handles it
        return cold

    def answer_read(
        self,
        answers: dict[PartitionKey, PartitionAnswer],
        results: Iterable[tuple[PartitionKey, FetchPartition, ReadResult]],
        version: int,
    ) -> None:
        """Adds the answers of partitions that were read to `answers`."""
        old_storage = version <= 5  # these versions have no KAFKA_STORAGE_ERROR
        for key, part, result in results:
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
            if result.preferred_read_replica != LEADER:
                answer.preferred_read_replica = result.preferred_read_replica
            if result.diverging is not None:
                answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset = result.diverging
            answers[key] = answer

    def count(
        self, params: FetchParams, wanted: Sequence[FetchPartition], results: Sequence[ReadResult]
    ) -> None:
        """Counts what a response sends: for the metrics, and for the limit of throttled replicas."""
        replicas = self._services.replicas
        replicas.stats.fetched(wanted, results, by_follower=params.is_from_follower)
        record_throttled(replicas, params, wanted, results)

    def note_reader(self, quiet: QuietPartitions[FetchPartition], params: FetchParams) -> None:
        """Records a Fetch of a session with quiet partitions. All are read if the follower is another one or
        has restarted, because an older incarnation must be refused."""
        known = self._services.metadata.alive_broker_epoch(params.replica_id)
        if known is not None and -1 < params.replica_epoch < known:
            quiet.end_all()
        quiet.fetched((params.replica_id, params.replica_epoch), self._services.clock.now())

    def make_quiet(
        self,
        fetch: FetchContext,
        params: FetchParams,
        results: Iterable[tuple[PartitionKey, FetchPartition, ReadResult]],
    ) -> None:
        """Makes the partitions quiet of which the follower has everything after this response."""
        quiet = fetch.quiet
        if quiet is None or fetch.error != ErrorCode.NONE:
            return
        reader = (params.replica_id, params.replica_epoch)
        if quiet.reader != reader:  # the session is new, and the partitions know the time of this Fetch
            quiet.fetched(reader, 0.0)
        partitions = self._services.replicas.partitions
        for key, part, result in results:
            if result.size or result.error != ErrorCode.NONE or result.diverging is not None:
                continue
            partition = partitions.get((part.topic, part.partition))
            if partition is not None:
                state = quiet_follower(
                    partition,
                    params.replica_id,
                    part.current_leader_epoch,
                    part.fetch_offset,
                    part.sent_high_watermark,
                )
                if state is not None:
                    quiet.add(key, state)

    def add_news(
        self,
        context: RequestContext,
        params: FetchParams,
        response: FetchResponse,
        partitions: dict[PartitionKey, FetchPartition],
        news: dict[PartitionKey, PartitionAnswer],
        hints: dict[int, FetchResponse.NodeEndpoint],
    ) -> None:
        """Adds answers to the response, and the leaders that they name to `hints` (KIP-951).

        A consumer with a rack gets no hint from the leader itself. It may have read from this broker as a
        follower until now. librdkafka then returns to the former leader and takes the hint at the same time,
        and may remain at the former leader for good.
        """
        if context.api_version >= 16:
            for key, answer in news.items():
                if answer.error_code in _HINTED:
                    self._hint(context, params, partitions[key], answer, hints)
        last_topic: bytes | str | None = None
        by_id = context.api_version >= 13
        if response.responses:
            topic = response.responses[-1]
            last_topic = topic.topic_id if by_id else topic.topic
        for key, answer in news.items():
            if key[0] != last_topic:
                last_topic = key[0]
                if by_id:
                    topic = TopicAnswer(topic_id=last_topic)  # type: ignore[arg-type]
                else:
                    topic = TopicAnswer(topic=last_topic)  # type: ignore[arg-type]
                response.responses.append(topic)
            topic.partitions.append(answer)

    def _hint(
        self,
        context: RequestContext,
        params: FetchParams,
        part: FetchPartition,
        answer: PartitionAnswer,
        hints: dict[int, FetchResponse.NodeEndpoint],
    ) -> None:
        metadata = self._services.metadata
        leader, epoch = metadata.current_leader(part.topic or "", part.partition)
        if params.rack and leader == self._services.node_id:
            return
        answer.current_leader.leader_id = leader
        answer.current_leader.leader_epoch = epoch
        endpoint = metadata.endpoint(leader, context.listener)
        broker = metadata.broker(leader)
        if endpoint is not None and broker is not None:
            hints[leader] = FetchResponse.NodeEndpoint(
                node_id=leader, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
