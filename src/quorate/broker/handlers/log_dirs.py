"""DescribeLogDirs (35), versions 1 to 5, and AlterReplicaLogDirs (34), versions 1 and 2 (KIP-113,
KIP-827)."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.metadata.features import FIRST_CORDONED_DIRECTORIES
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from quorate.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.log.partition.partition_log import PartitionLog
    from quorate.net.dispatch import Handler, RequestContext

logger = logging.getLogger("quorate.broker.log_dirs")


def describe(
    services: Services, _context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Describes the log directories and their replicas."""
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    by_dir: dict[Path, dict[str, list[DescribeLogDirsResponse.DescribeLogDirsPartition]]] = {}

    def add(
        directory: Path, topic: str, partition: int, size: int, lag: int, *, is_future: bool = False
    ) -> None:
        by_dir.setdefault(directory, {}).setdefault(topic, []).append(
            DescribeLogDirsResponse.DescribeLogDirsPartition(
                partition_index=partition, partition_size=size, offset_lag=lag, is_future_key=is_future
            )
        )

    log: PartitionLog | None
    for log in services.logs.all_logs():
        if wanted is None or (log.topic, log.partition) in wanted:
            hosted = services.replicas.partitions.get((log.topic, log.partition))
            lag = 0
            if hosted is not None and not hosted.is_leader:
                lag = max(0, log.high_watermark - log.log_end_offset)
            add(log.log_dir, log.topic, log.partition, log.size_bytes, lag)
    for future in services.logs.futures:
        if wanted is None or (future.topic, future.partition) in wanted:
            log = services.logs.get(future.topic, future.partition)
            lag = -1 if log is None else log.log_end_offset - future.log_end_offset
            add(future.log_dir, future.topic, future.partition, future.size_bytes, lag, is_future=True)
    # Replicas without records have no log yet. They are empty and in the directory that is assigned to them.
    for (name, index), partition in services.replicas.partitions.items():
        assert name is not None
        if (wanted is None or (name, index) in wanted) and services.logs.get(name, index) is None:
            add(services.replicas.directories.assigned_to(partition), name, index, 0, 0)
    response = DescribeLogDirsResponse()
    cordoning = services.metadata.image.features.metadata_version >= FIRST_CORDONED_DIRECTORIES
    for directory in services.config.log_dirs:
        result = DescribeLogDirsResponse.DescribeLogDirsResult(log_dir=str(directory))
        response.results.append(result)
        if not services.logs.is_online(directory):
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            continue
        try:
            space = shutil.disk_usage(directory)
        except OSError:
            logger.exception("[DescribeLogDirs] %s", directory)
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            continue
        result.total_bytes, result.usable_bytes = space.total, space.free
        result.is_cordoned = cordoning and directory in services.logs.cordoned
        result.topics = [
            DescribeLogDirsResponse.DescribeLogDirsTopic(
                name=topic, partitions=sorted(partitions, key=lambda part: part.partition_index)
            )
            for topic, partitions in sorted(by_dir.get(directory, {}).items())
        ]
    return response


async def alter(
    services: Services, _context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Starts the moves and returns the error of each."""
    wanted = [
        (topic.name, partition, target)
        for directory in request.dirs
        for target in (Path(directory.path),)  # made once for each directory
        for topic in directory.topics
        for partition in topic.partitions
    ]
    answers: dict[str, list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]] = {}
    results = await services.moves.alter(wanted)
    for (name, partition, _), error in zip(wanted, results, strict=True):
        answers.setdefault(name, []).append(
            AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(
                partition_index=partition, error_code=error
            )
        )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in answers.items()
        ]
    )


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {
        int(ApiKey.DESCRIBE_LOG_DIRS): lambda context, request: describe(services, context, request),
        int(ApiKey.ALTER_REPLICA_LOG_DIRS): lambda context, request: alter(services, context, request),
    }
