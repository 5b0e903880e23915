"""Operations on topics, their partitions and their offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from quorate.admin.errors import ErrorCode, KafkaError, UnsupportedVersion, error_of
from quorate.admin.transport import Transport, worth_retrying
from quorate.admin.types import (
    ListedOffset,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
    TopicPartition,
)
from quorate.protocol import messages

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -3, -4, -5
"""The special timestamps of ListOffsets."""

TIMEOUT_MS = 30_000


class TopicOperations:
    """The admin client's operations on topics, their partitions and their offsets."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Creates topics and returns the error of each, or None for success."""

        def build(topic: NewTopic) -> messages.CreateTopicsRequest.CreatableTopic:
            return messages.CreateTopicsRequest.CreatableTopic(
                name=topic.name,
                num_partitions=-1 if topic.assignment else topic.partitions,
                replication_factor=-1 if topic.assignment else topic.replication_factor,
                assignments=[
                    messages.CreateTopicsRequest.CreatableReplicaAssignment(
                        partition_index=p, broker_ids=list(brokers)
                    )
                    for p, brokers in topic.assignment.items()
                ],
                configs=[
                    messages.CreateTopicsRequest.CreatableTopicConfig(name=k, value=v)
                    for k, v in topic.configs.items()
                ],
            )

        request = messages.CreateTopicsRequest(
            topics=[build(topic) for topic in topics], timeout_ms=TIMEOUT_MS, validate_only=validate_only
        )
        answer = await self.transport.call(request, _retry_controller("topics"))
        return {t.name: error_of(t.error_code, t.error_message) for t in answer.topics}

    async def delete_topics(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        """Deletes topics and returns the error of each, or None for success."""
        request = messages.DeleteTopicsRequest(
            topics=[messages.DeleteTopicsRequest.DeleteTopicState(name=name) for name in names],
            timeout_ms=TIMEOUT_MS,
        )
        answer = await self.transport.call(request, _retry_controller("responses"))
        return {t.name or "": error_of(t.error_code, t.error_message) for t in answer.responses}

    async def list_topics(self, *, internal: bool = True) -> list[TopicListing]:
        """Returns all topics in order of name."""
        answer = await self.transport.call(messages.MetadataRequest(topics=None))
        listings = [
            TopicListing(t.name or "", t.topic_id, t.is_internal)
            for t in answer.topics
            if internal or not t.is_internal
        ]
        return sorted(listings, key=lambda listing: listing.name)

    async def describe_topics(
        self, names: Sequence[str], *, partition_limit: int = 2000
    ) -> dict[str, TopicDescription]:
        """Returns topics with their partitions. Raises UNKNOWN_TOPIC_OR_PARTITION for a missing topic."""
        try:
            return await self._describe_in_pages(names, partition_limit)
        except UnsupportedVersion:
            return await self._describe_by_metadata(names)

    async def _describe_in_pages(self, names: Sequence[str], limit: int) -> dict[str, TopicDescription]:
        found: dict[str, TopicDescription] = {}
        wanted = sorted(set(names))
        cursor: Any = None
        while wanted:
            request = messages.DescribeTopicPartitionsRequest(
                topics=[messages.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in wanted],
                response_partition_limit=limit,
                cursor=cursor,
            )
            answer = await self.transport.call(request)
            for topic in answer.topics:
                if topic.error_code:
                    raise unknown_topic(topic.error_code, topic.name or "")
                partitions = tuple(
                    _partition(p, p.eligible_leader_replicas, p.last_known_elr) for p in topic.partitions
                )
                name = topic.name or ""
                before = found[name].partitions if name in found else ()
                found[name] = TopicDescription(name, topic.topic_id, topic.is_internal, before + partitions)
            if answer.next_cursor is None:
                break
            next_topic = answer.next_cursor.topic_name
            wanted = [name for name in wanted if name >= next_topic]
            cursor = messages.DescribeTopicPartitionsRequest.Cursor(
                topic_name=next_topic, partition_index=answer.next_cursor.partition_index
            )
        return found

    async def describe_all_topics(self) -> dict[str, TopicDescription]:
        """Returns all topics with their partitions, from one response."""
        return _descriptions(await self.transport.call(messages.MetadataRequest(topics=None)))

    async def _describe_by_metadata(self, names: Sequence[str]) -> dict[str, TopicDescription]:
        return _descriptions(await self._metadata(names))

    async def _metadata(self, names: Iterable[str]) -> Any:
        topics = [messages.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        return await self.transport.call(
            messages.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        )

    async def create_partitions(
        self, counts: Mapping[str, int], assignments: Mapping[str, Sequence[Sequence[int]]] | None = None
    ) -> dict[str, KafkaError | None]:
        """Increases the number of partitions to `counts`. `assignments` has the brokers of the new ones."""
        given = assignments or {}
        request = messages.CreatePartitionsRequest(
            topics=[
                messages.CreatePartitionsRequest.CreatePartitionsTopic(
                    name=name,
                    count=count,
                    assignments=None
                    if name not in given
                    else [
                        messages.CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=list(b))
                        for b in given[name]
                    ],
                )
                for name, count in counts.items()
            ],
            timeout_ms=TIMEOUT_MS,
        )
        answer = await self.transport.call(request, _retry_controller("results"))
        return {r.name: error_of(r.error_code, r.error_message) for r in answer.results}

    # -- requests to partition leaders
    # ----------------------------------------------------------------------------------------------

    async def leaders(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """Returns the leader of each partition, or -1 if it has none. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        found = {}
        answer = await self._metadata(topics)
        for topic in answer.topics:
            if topic.error_code:
                raise unknown_topic(topic.error_code, topic.name or "")
            for p in topic.partitions:
                found[TopicPartition(topic.name or "", p.partition_index)] = int(p.leader_id)
        return found

    async def list_offsets(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """Returns the offset of each partition at a time (ms, or EARLIEST, LATEST, ...), or its error."""

        def request(partitions: Sequence[TopicPartition]) -> messages.ListOffsetsRequest:
            topics: dict[str, list[messages.ListOffsetsRequest.ListOffsetsPartition]] = {}
            for tp in partitions:
                entry = messages.ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=tp.partition, timestamp=times[tp]
                )
                topics.setdefault(tp.topic, []).append(entry)
            return messages.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(read_committed),
                topics=[
                    messages.ListOffsetsRequest.ListOffsetsTopic(name=n, partitions=p)
                    for n, p in topics.items()
                ],
                timeout_ms=TIMEOUT_MS,
            )

        def read(answer: Any) -> dict[TopicPartition, ListedOffset | KafkaError]:
            return {
                TopicPartition(topic.name, p.partition_index): error_of(p.error_code)
                or ListedOffset(p.offset, p.timestamp, p.leader_epoch)
                for topic in answer.topics
                for p in topic.partitions
            }

        return await self._ask_leaders(list(times), request, read)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | KafkaError]:
        """Deletes the records before an offset (-1: the high watermark). Returns the new low watermark of
        each partition, or its error.
        """

        def request(partitions: Sequence[TopicPartition]) -> messages.DeleteRecordsRequest:
            topics: dict[str, list[messages.DeleteRecordsRequest.DeleteRecordsPartition]] = {}
            for tp in partitions:
                entry = messages.DeleteRecordsRequest.DeleteRecordsPartition(
                    partition_index=tp.partition, offset=before[tp]
                )
                topics.setdefault(tp.topic, []).append(entry)
            return messages.DeleteRecordsRequest(
                topics=[
                    messages.DeleteRecordsRequest.DeleteRecordsTopic(name=n, partitions=p)
                    for n, p in topics.items()
                ],
                timeout_ms=TIMEOUT_MS,
            )

        def read(answer: Any) -> dict[TopicPartition, int | KafkaError]:
            found: dict[TopicPartition, int | KafkaError] = {}
            for topic in answer.topics:
                for p in topic.partitions:
                    error = error_of(p.error_code)
                    found[TopicPartition(topic.name, p.partition_index)] = (
                        p.low_watermark if error is None else error
                    )
            return found

        return await self._ask_leaders(list(before), request, read)

    async def _ask_leaders(
        self, partitions: list[TopicPartition], request: Any, read: Any
    ) -> dict[TopicPartition, Any]:
        """Sends requests to the leaders of partitions, and again where the leader has changed."""
        done: dict[TopicPartition, Any] = {}

        async def attempt() -> None:
            left = [tp for tp in partitions if tp not in done or _moved(done[tp])]
            if not left:
                return
            leaders = await self._leaders_of(left, done)
            by_leader: dict[int, list[TopicPartition]] = {}
            for tp in left:
                leader = leaders.get(tp)
                if leader is not None and leader >= 0:
                    by_leader.setdefault(leader, []).append(tp)
                elif tp not in done or _moved(done[tp]):
                    done[tp] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)

            async def one(leader: int, group: list[TopicPartition]) -> None:
                done.update(
                    read(await self.transport.ask(await self.transport.address_of(leader), request(group)))
                )

            await asyncio.gather(*(one(leader, group) for leader, group in by_leader.items()))
            for tp in left:
                if _moved(done.get(tp)):
                    raise done[tp]

        try:
            await self.transport.until_answered(attempt, "partition leaders")
        except KafkaError:
            if any(tp not in done for tp in partitions):
                raise
        return {tp: done[tp] for tp in partitions}

    async def _leaders_of(
        self, partitions: list[TopicPartition], done: dict[TopicPartition, Any]
    ) -> dict[TopicPartition, int]:
        answer = await self._metadata(dict.fromkeys(tp.topic for tp in partitions))
        leaders: dict[TopicPartition, int] = {}
        for topic in answer.topics:
            for p in topic.partitions:
                leaders[TopicPartition(topic.name or "", p.partition_index)] = p.leader_id
        for tp in partitions:
            if tp not in leaders:
                done[tp] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return leaders


def _partition(
    p: Any, elr: Sequence[int] | None = None, last_known_elr: Sequence[int] | None = None
) -> PartitionDescription:
    """A partition of a Metadata or DescribeTopicPartitions response."""
    return PartitionDescription(
        partition=p.partition_index,
        leader=p.leader_id,
        replicas=tuple(p.replica_nodes),
        isr=tuple(p.isr_nodes),
        leader_epoch=p.leader_epoch,
        offline=tuple(p.offline_replicas),
        elr=None if elr is None else tuple(elr),
        last_known_elr=None if last_known_elr is None else tuple(last_known_elr),
    )


def _descriptions(answer: Any) -> dict[str, TopicDescription]:
    """Returns the topics of a Metadata response. Raises UNKNOWN_TOPIC_OR_PARTITION for a missing one."""
    found = {}
    for topic in answer.topics:
        if topic.error_code:
            raise unknown_topic(topic.error_code, topic.name or "")
        partitions = tuple(
            _partition(p) for p in sorted(topic.partitions, key=lambda p: int(p.partition_index))
        )
        name = topic.name or ""
        found[name] = TopicDescription(name, topic.topic_id, topic.is_internal, partitions)
    return found


def unknown_topic(code: int, name: str) -> KafkaError:
    return KafkaError(
        ErrorCode.of(code), f"Topic {name}: {ErrorCode.of(code).name.lower().replace('_', ' ')}"
    )


def _moved(result: Any) -> bool:
    return isinstance(result, KafkaError) and worth_retrying(result.code)


def _retry_controller(field: str) -> Any:
    """Returns a check that raises a response's NOT_CONTROLLER. The request then goes to the next one."""

    def look(answer: Any) -> None:
        for entry in getattr(answer, field):
            if entry.error_code == ErrorCode.NOT_CONTROLLER:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, entry.error_message)

    return look
