"""Reports the log directories of replicas to the controller, where the metadata names others (KIP-858,
`AssignmentsManager` in Kafka).

The controller assigns new replicas of a broker with one directory to it. Such a broker must report them
after its disk was replaced: the new directory has another id, and a replica in an unknown directory is
never elected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from quorate.broker.replication.partition_reports import PartitionId, PartitionReports
from quorate.lazy import lazy_module
from quorate.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from quorate.broker.controller_channel import ControllerChannel
    from quorate.protocol.messages import assign_replicas_to_dirs
    from quorate.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
else:
    assign_replicas_to_dirs = lazy_module("quorate.protocol.messages.assign_replicas_to_dirs")

logger = logging.getLogger("quorate.broker.directories")

_FINAL = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Codes after which a replica is not reported again. After an error among them this broker no longer has
the replica."""


class DirectoryAssignments(PartitionReports[bytes]):
    """Queues the newest directory of each replica."""

    NAME = "DirectoryAssignments"
    MAX_AT_ONCE = 2250
    """As in Kafka. The controller's batch for them stays below its size limit."""
    RETRY_MIN_S = 0.1
    RETRY_MAX_S = 10.0

    def __init__(
        self,
        node_id: int,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(node_id, channel, broker_epoch, loop, logger)

    def submit(self, topic_id: bytes, partition: int, directory_id: bytes) -> None:
        """Queues the directory of a replica, in place of one that was queued before."""
        self.enqueue((topic_id, partition), directory_id)

    def request(self, reports: dict[PartitionId, bytes]) -> AssignReplicasToDirsRequest:
        """Returns the request with these directories."""
        make = assign_replicas_to_dirs.AssignReplicasToDirsRequest
        directories: dict[bytes, dict[bytes, list[int]]] = {}
        for (topic_id, partition), directory_id in reports.items():
            directories.setdefault(directory_id, {}).setdefault(topic_id, []).append(partition)
        return make(
            broker_id=self.node_id,
            broker_epoch=self.broker_epoch(),
            directories=[
                make.DirectoryData(
                    id=directory_id,
                    topics=[
                        make.TopicData(
                            topic_id=topic_id,
                            partitions=[make.PartitionData(partition_index=index) for index in partitions],
                        )
                        for topic_id, partitions in topics.items()
                    ],
                )
                for directory_id, topics in directories.items()
            ],
        )

    def settle(
        self, reports: dict[PartitionId, bytes], answer: AssignReplicasToDirsResponse
    ) -> set[PartitionId]:
        """Returns the replicas whose directory the controller knows, or which this broker no longer has."""
        return {
            (topic.topic_id, part.partition_index)
            for directory in answer.directories
            for topic in directory.topics
            for part in topic.partitions
            if reports.get((topic.topic_id, part.partition_index)) == directory.id
            and part.error_code in _FINAL
        }
