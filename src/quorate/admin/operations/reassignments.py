"""Operations on reassignments of partitions to brokers (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quorate.admin.errors import ErrorCode, KafkaError, check, error_of
from quorate.admin.operations.groups import by_topic
from quorate.admin.transport import Transport
from quorate.admin.types import Reassignment, TopicPartition
from quorate.protocol import messages

TIMEOUT_MS = 60_000


class ReassignmentOperations:
    """The admin client's operations on reassignments of partitions to brokers."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Starts to move partitions to other brokers and returns the error of each partition, or None.

        None in place of the brokers cancels the reassignment of a partition. Without
        `allow_replication_factor_change` a list of another length is refused (KIP-860); a controller before
        4.1 cannot refuse it, and the call raises UnsupportedVersion.
        """
        request = messages.AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=[
                messages.AlterPartitionReassignmentsRequest.ReassignableTopic(
                    name=topic,
                    partitions=[
                        messages.AlterPartitionReassignmentsRequest.ReassignablePartition(
                            partition_index=index,
                            replicas=_brokers(reassignments[TopicPartition(topic, index)]),
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(reassignments).items()
            ],
        )
        answer = await self.transport.call(request, _check)
        return {
            TopicPartition(topic.name, p.partition_index): error_of(p.error_code, p.error_message)
            for topic in answer.responses
            for p in topic.partitions
        }

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Returns the ongoing reassignments of some partitions, or of all (None)."""
        topics = None
        if partitions is not None:
            topics = [
                messages.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(
                    name=topic, partition_indexes=indexes
                )
                for topic, indexes in by_topic(partitions).items()
            ]
        request = messages.ListPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
        answer = await self.transport.call(request, lambda a: check(a.error_code, a.error_message))
        return {
            TopicPartition(topic.name, p.partition_index): Reassignment(
                tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
            )
            for topic in answer.topics
            for p in topic.partitions
        }


def _brokers(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _check(answer: Any) -> None:
    """Raises the error of the response. NOT_CONTROLLER may also be the error of each partition."""
    check(answer.error_code, answer.error_message)
    for topic in answer.responses:
        for p in topic.partitions:
            if p.error_code == ErrorCode.NOT_CONTROLLER:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, p.error_message)
