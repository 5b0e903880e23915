"""Reports the log directories of replicas to the controller, if the metadata has other ones (KIP-858,
`AssignmentsManager` in Kafka).

The controller assigns new replicas of a broker with one directory to it. Such a broker must report them
after its disk was replaced: the new directory has another id, and a replica in an unknown directory is
never elected.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module
from quorate.net.errors import KafkaConnectionError, RequestTimedOut, UnsupportedVersion
from quorate.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from quorate.broker.controller_channel import ControllerChannel
    from quorate.protocol.messages import assign_replicas_to_dirs
else:
    assign_replicas_to_dirs = lazy_module("quorate.protocol.messages.assign_replicas_to_dirs")

logger = logging.getLogger("quorate.broker.directories")

MAX_ASSIGNMENTS = 2250
"""Replicas in one request, as in Kafka. The controller's batch for them stays below its size limit."""
_RETRY_MIN_S = 0.1
_RETRY_MAX_S = 10.0

_FINAL = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Codes after which a replica is not reported again. After an error among them this broker no longer has
the replica."""

_Key = tuple[bytes, int]
"""(topic id, partition)"""


class DirectoryAssignments:
    """Queues the newest directory of each replica and sends one request at a time."""

    def __init__(
        self,
        node_id: int,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._node_id = node_id
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._loop = loop
        self._queue: dict[_Key, bytes] = {}
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """The number of replicas whose directory the controller has not confirmed."""
        return len(self._queue)

    def submit(self, topic_id: bytes, partition: int, directory_id: bytes) -> None:
        """Queues the directory of a replica, in place of one that was queued before."""
        self._queue[(topic_id, partition)] = directory_id
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        """Cancels the request in flight and drops the queue."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        pause = _RETRY_MIN_S
        try:
            while self._queue:
                await asyncio.sleep(0)  # all replicas of one metadata delta go into one request
                sent = dict(itertools.islice(self._queue.items(), MAX_ASSIGNMENTS))
                try:
                    settled = await self._send(sent)
                except Exception:  # without a retry the controller keeps the wrong directories
                    logger.exception("[DirectoryAssignments broker=%d] Request failed", self._node_id)
                    settled = set()
                for key, directory_id in sent.items():
                    if self._queue[key] == directory_id:  # else another directory was submitted meanwhile
                        del self._queue[key]
                        if key not in settled:
                            self._queue[key] = directory_id  # after those that were not sent yet
                if len(settled) == len(sent):
                    pause = _RETRY_MIN_S
                else:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _RETRY_MAX_S)
        finally:
            self._task = None

    async def _send(self, sent: dict[_Key, bytes]) -> set[_Key]:
        """Sends one request. Returns the replicas that need no retry."""
        make = assign_replicas_to_dirs.AssignReplicasToDirsRequest
        directories: dict[bytes, dict[bytes, list[int]]] = {}
        for (topic_id, partition), directory_id in sent.items():
            directories.setdefault(directory_id, {}).setdefault(topic_id, []).append(partition)
        request = make(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
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
        settled: set[_Key] = set()
        try:
            answer = await self._channel.send(request)
        except (RequestTimedOut, KafkaConnectionError, UnsupportedVersion) as error:
            logger.warning("[DirectoryAssignments broker=%d] Request failed: %s", self._node_id, error)
            return settled
        if answer.error_code != ErrorCode.NONE:
            error_code = ErrorCode.of(answer.error_code)
            logger.warning(
                "[DirectoryAssignments broker=%d] The controller answered %s", self._node_id, error_code.name
            )
            return settled
        for directory in answer.directories:
            for topic in directory.topics:
                for part in topic.partitions:
                    key = (topic.topic_id, part.partition_index)
                    if sent.get(key) == directory.id and part.error_code in _FINAL:
                        settled.add(key)
        return settled
