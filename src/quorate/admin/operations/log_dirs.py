"""Operations on the log directories of brokers, and moves of replicas between them (KIP-113)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from quorate.admin.errors import ErrorCode, KafkaError, error_text
from quorate.admin.operations.groups import by_topic
from quorate.admin.transport import Transport
from quorate.admin.types import (
    LogDirDescription,
    ReplicaLogDirInfo,
    ReplicaSize,
    TopicPartition,
    TopicPartitionReplica,
)
from quorate.protocol import messages


class LogDirOperations:
    """The admin client's operations on the log directories of brokers."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None, topics: Collection[str] | None = None
    ) -> dict[int, list[LogDirDescription]]:
        """Returns the log directories of brokers (None: of all) with their replicas."""
        ids = (
            list(broker_ids) if broker_ids is not None else [node.id for node in await self.transport.nodes()]
        )

        async def one(broker_id: int) -> list[LogDirDescription]:
            answer = await self._describe(broker_id, messages.DescribeLogDirsRequest(topics=None))
            return [_description(found, topics) for found in answer.results]

        return dict(zip(ids, await asyncio.gather(*(one(broker_id) for broker_id in ids)), strict=True))

    async def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica]
    ) -> dict[TopicPartitionReplica, ReplicaLogDirInfo]:
        """Returns the directory of each replica, and the one to which it moves.

        A broker does not report replicas in a directory that is offline.
        """
        return {
            TopicPartitionReplica(*tp, broker_id): _directories(tp, dirs)
            for broker_id, (partitions, dirs) in (await self._directories_of(replicas)).items()
            for tp in partitions
        }

    async def describe_replica_sizes(
        self, replicas: Iterable[TopicPartitionReplica]
    ) -> dict[TopicPartitionReplica, int]:
        """Returns the bytes of each replica. One that its broker does not have is left out."""
        return {
            TopicPartitionReplica(*tp, broker_id): directory.replicas[tp].size
            for broker_id, (partitions, dirs) in (await self._directories_of(replicas)).items()
            for directory in dirs
            for tp in partitions
            if tp in directory.replicas
        }

    async def _directories_of(
        self, replicas: Iterable[TopicPartitionReplica]
    ) -> dict[int, tuple[list[TopicPartition], list[LogDirDescription]]]:
        """Returns the partitions of each broker, and its directories with these partitions only."""
        by_broker: dict[int, list[TopicPartition]] = {}
        for replica in replicas:
            by_broker.setdefault(replica.broker_id, []).append(
                TopicPartition(replica.topic, replica.partition)
            )

        async def one(broker_id: int, partitions: list[TopicPartition]) -> list[LogDirDescription]:
            topics = [
                messages.DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=indexes)
                for name, indexes in by_topic(partitions).items()
            ]
            answer = await self._describe(broker_id, messages.DescribeLogDirsRequest(topics=topics))
            return [_description(found, None) for found in answer.results]

        answers = await asyncio.gather(*(one(*entry) for entry in by_broker.items()))
        return {
            broker_id: (by_broker[broker_id], dirs)
            for broker_id, dirs in zip(by_broker, answers, strict=True)
        }

    async def _describe(self, broker_id: int, request: messages.DescribeLogDirsRequest) -> Any:
        def look(answer: Any) -> None:
            if answer.error_code:
                error = KafkaError(ErrorCode.of(answer.error_code))
                raise KafkaError(error.code, f"Broker {broker_id}: {error_text(error)}")

        return await self.transport.call_node(broker_id, request, look)

    async def alter_replica_log_dirs(
        self, moves: Mapping[TopicPartitionReplica, str]
    ) -> dict[TopicPartitionReplica, KafkaError | None]:
        """Starts to move replicas to other directories of their brokers and returns the error of each, or
        None.

        REPLICA_NOT_AVAILABLE means that the broker does not have the replica yet. It remembers the directory,
        and creates the replica there (KIP-113).
        """
        by_broker: dict[int, dict[str, list[TopicPartition]]] = {}
        for replica, path in moves.items():
            tp = TopicPartition(replica.topic, replica.partition)
            by_broker.setdefault(replica.broker_id, {}).setdefault(path, []).append(tp)

        async def one(
            broker_id: int, dirs: Mapping[str, list[TopicPartition]]
        ) -> dict[TopicPartitionReplica, KafkaError | None]:
            request = messages.AlterReplicaLogDirsRequest(
                dirs=[
                    messages.AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                        path=path,
                        topics=[
                            messages.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(
                                name=name, partitions=indexes
                            )
                            for name, indexes in by_topic(partitions).items()
                        ],
                    )
                    for path, partitions in dirs.items()
                ]
            )
            answer = await self.transport.call_node(broker_id, request)
            found: dict[TopicPartitionReplica, KafkaError | None] = {}
            for topic in answer.results:
                for p in topic.partitions:
                    replica = TopicPartitionReplica(topic.topic_name, p.partition_index, broker_id)
                    found[replica] = _move_error(p.error_code, replica, moves.get(replica, ""))
            return found

        result: dict[TopicPartitionReplica, KafkaError | None] = {}
        for answer in await asyncio.gather(*(one(*entry) for entry in by_broker.items())):
            result |= answer
        return result


def _description(found: Any, topics: Collection[str] | None) -> LogDirDescription:
    replicas: dict[TopicPartition, ReplicaSize] = {}
    future: dict[TopicPartition, ReplicaSize] = {}
    for topic in found.topics:
        if topics is None or topic.name in topics:
            for p in topic.partitions:
                into = future if p.is_future_key else replicas
                into[TopicPartition(topic.name, p.partition_index)] = ReplicaSize(
                    p.partition_size, p.offset_lag, p.is_future_key
                )
    return LogDirDescription(
        path=found.log_dir,
        error=None if not found.error_code else ErrorCode.of(found.error_code).name,
        total_bytes=found.total_bytes,
        usable_bytes=found.usable_bytes,
        replicas=replicas,
        future_replicas=future,
        cordoned=found.is_cordoned,
    )


def _directories(tp: TopicPartition, dirs: Iterable[LogDirDescription]) -> ReplicaLogDirInfo:
    current: tuple[str | None, int] = (None, -1)
    future: tuple[str | None, int] = (None, -1)
    for directory in dirs:
        if directory.error is None:
            if tp in directory.replicas:
                current = directory.path, directory.replicas[tp].lag
            if tp in directory.future_replicas:
                future = directory.path, directory.future_replicas[tp].lag
    return ReplicaLogDirInfo(*current, *future)


_MOVE_ERRORS = {
    ErrorCode.LOG_DIR_NOT_FOUND: "broker {broker} has no log directory {path}; "
    "`kafka-log-dirs --describe --broker-list {broker}` lists its directories",
    ErrorCode.KAFKA_STORAGE_ERROR: "a log directory of broker {broker} is offline; `kafka-log-dirs "
    "--describe --broker-list {broker}` shows which one",
    ErrorCode.REPLICA_NOT_AVAILABLE: "broker {broker} does not have a replica of {partition}",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no partition {partition}",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "the log directory {path} of broker {broker} is cordoned; "
    "remove it from cordoned.log.dirs first",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the name of the topic of {partition} is too long for the directory "
    "of a future replica",
}
"""The texts of the errors of AlterReplicaLogDirs, whose responses have codes only."""


def _move_error(code: int, replica: TopicPartitionReplica, path: str) -> KafkaError | None:
    if not code:
        return None
    error = ErrorCode.of(code)
    partition = TopicPartition(replica.topic, replica.partition)
    text = _MOVE_ERRORS.get(error)
    if text is None:
        text = f"broker {{broker}}: {error_text(KafkaError(error))}"
    reason = text.format(broker=replica.broker_id, path=path, partition=partition)
    return KafkaError(error, f"Replica {partition} cannot be moved to {path}: {reason}.")
