"""AssignReplicasToDirs (73): a broker reports the log directories of its replicas (KIP-858)."""

from __future__ import annotations

from collections.abc import Iterator

from quorate.controller.changes.batched_change import Continuation
from quorate.controller.context import Context, Result, View
from quorate.controller.replication.broker_changes import CHANGES_PER_TURN, Located, update_partitions
from quorate.controller.replication.partition_change import Election, partition_change_for
from quorate.metadata.features import FIRST_DIRECTORIES, upgrade_remedy
from quorate.metadata.image.topics import TopicImage
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from quorate.protocol.schema import Data

NONE = ErrorCode.NONE


def assign_replicas_to_dirs(
    view: View, request: AssignReplicasToDirsRequest, ctx: Context
) -> Result[AssignReplicasToDirsResponse]:
    """Assigns replicas to log directories, in portions. Raises UNSUPPORTED_VERSION, STALE_BROKER_EPOCH."""
    if view.metadata_version < FIRST_DIRECTORIES:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Directory assignment is not supported yet.",
            remedy=upgrade_remedy(view.metadata_version, FIRST_DIRECTORIES),
        )
    broker_id = view.check_broker_epoch(request.broker_id, request.broker_epoch).id
    if ctx.continuation is None:
        response = AssignReplicasToDirsResponse()
        assignments = _assignments(request, response)
    else:
        response, assignments = ctx.continuation.cursor
    records: list[Data] = []
    lost: list[Located] = []
    continuation: Continuation | None = None
    for handled, (answer, index, directory) in enumerate(assignments, 1):
        topic = view.image.topics.by_id.get(answer.topic_id)
        error = _assign_one(view, broker_id, topic, index, directory, records, lost)
        answer.partitions.append(
            AssignReplicasToDirsResponse.PartitionData(partition_index=index, error_code=error)
        )
        if handled == CHANGES_PER_TURN:
            continuation = Continuation((response, assignments))
            break
    update_partitions(view, records, lost, removed=(broker_id,))
    return Result(response, records, atomic=False, continuation=continuation)


def _assignments(
    request: AssignReplicasToDirsRequest, response: AssignReplicasToDirsResponse
) -> Iterator[tuple[AssignReplicasToDirsResponse.TopicData, int, bytes]]:
    """Each partition of the request with its directory, and the topic of the response that its result
    belongs to."""
    for directory in request.directories:
        directory_answer = AssignReplicasToDirsResponse.DirectoryData(id=directory.id)
        response.directories.append(directory_answer)
        for topic in directory.topics:
            answer = AssignReplicasToDirsResponse.TopicData(topic_id=topic.topic_id)
            directory_answer.topics.append(answer)
            for partition in topic.partitions:
                yield answer, partition.partition_index, directory.id


def _assign_one(
    view: View,
    broker_id: int,
    topic: TopicImage | None,
    index: int,
    directory: bytes,
    records: list[Data],
    lost: list[Located],
) -> ErrorCode:
    """Adds the record of one assignment. If the directory is offline, adds the partition to `lost`."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    change = partition_change_for(view, topic, index, election=Election.ONLINE)
    change.directories = {broker_id: directory}
    record = change.build()
    if record is not None:
        records.append(record)
    if not view.has_online_directory(broker_id, directory):
        lost.append((topic, index, partition))
    return NONE
