"""Sends ISR changes to the controller (AlterPartition, KIP-497). One request is in flight at a time;
changes that are submitted meanwhile are sent with the next one."""

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
    from quorate.broker.replication.partition import Partition
    from quorate.broker.replication.replica_state import PendingIsr
    from quorate.protocol.messages import alter_partition
    from quorate.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
else:
    alter_partition = lazy_module("quorate.protocol.messages.alter_partition")

logger = logging.getLogger("quorate.broker.replication.alter_partition")

_RETRY_MIN_S = 0.05
_RETRY_MAX_S = 1.0

_Key = tuple[bytes, int]
"""(topic id, partition)"""

MAX_PARTITIONS = 1_000
"""Partitions in one request. A broker that rejoins very many ISRs causes several requests."""


class AlterPartitionManager:
    """Queues ISR changes and sends them over the controller channel."""

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
        self._queue: dict[_Key, tuple[Partition, PendingIsr]] = {}
        self._task: asyncio.Task[None] | None = None
        self.expansions = 0
        """ISR expansions that the controller has committed."""
        self.shrinks = 0
        self.failures = 0
        """Changes that the controller has refused."""

    def submit(self, partition: Partition, pending: PendingIsr) -> None:
        """Queues a change. An older one of the same partition that was not sent yet is dropped."""
        self._queue[(partition.topic_id, partition.partition)] = (partition, pending)
        if self._task is None:
            self._task = self._loop.create_task(self._send())

    async def close(self) -> None:
        """Cancels the request in flight and drops the queue."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send(self) -> None:
        pause = _RETRY_MIN_S
        try:
            while self._queue:
                sent = {
                    key: self._queue.pop(key) for key in list(itertools.islice(self._queue, MAX_PARTITIONS))
                }
                try:
                    settled = await self._exchange(sent)
                except Exception:  # without a retry no ISR change of these partitions could be sent again
                    logger.exception("[AlterPartition broker=%d] Request failed", self._node_id)
                    settled = set()
                if len(settled) == len(sent):
                    pause = _RETRY_MIN_S
                    continue
                for key in sent.keys() - settled:
                    partition, pending = sent[key]
                    if partition.pending_isr is pending:
                        self._queue.setdefault(key, (partition, pending))
                if self._queue:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _RETRY_MAX_S)
        finally:
            self._task = None

    async def _exchange(self, sent: dict[_Key, tuple[Partition, PendingIsr]]) -> set[_Key]:
        """Sends one request. Returns the partitions that need no retry."""
        settled: set[_Key] = set()
        try:
            answer = await self._channel.send(self._request(sent), None)
        except (RequestTimedOut, KafkaConnectionError, UnsupportedVersion) as error:
            logger.warning("[AlterPartition broker=%d] Request failed: %s", self._node_id, error)
            return settled
        if answer.error_code != ErrorCode.NONE:
            error_code = ErrorCode.of(answer.error_code)
            logger.warning(
                "[AlterPartition broker=%d] The controller answered %s", self._node_id, error_code.name
            )
            return settled
        for topic in answer.topics:
            for part in topic.partitions:
                key = (topic.topic_id, part.partition_index)
                if key in sent and self._settle(*sent[key], part):
                    settled.add(key)
        return settled

    def _settle(
        self, partition: Partition, pending: PendingIsr, part: AlterPartitionResponse.PartitionData
    ) -> bool:
        """Applies the controller's answer for a partition. Returns False if the change must be sent again."""
        if part.error_code == ErrorCode.NONE:
            if pending.expands:
                self.expansions += 1
            else:
                self.shrinks += 1
            try:
                partition.isr_altered(pending, tuple(part.isr), part.leader_epoch, part.partition_epoch)
            except Exception:  # an error of this partition's log must not keep the others from their answers
                logger.exception(
                    "[AlterPartition broker=%d] %s-%d failed to take its new ISR",
                    self._node_id,
                    partition.topic,
                    partition.partition,
                )
            return True
        self.failures += 1
        code = ErrorCode.of(part.error_code)
        logger.info(
            "[AlterPartition broker=%d] ISR %s of %s-%d was refused: %s",
            self._node_id,
            list(pending.isr),
            partition.topic,
            partition.partition,
            code.name,
        )
        return not partition.isr_rejected(pending, code)

    def _request(self, sent: dict[_Key, tuple[Partition, PendingIsr]]) -> AlterPartitionRequest:
        topics: dict[bytes, AlterPartitionRequest.TopicData] = {}
        epoch = self._broker_epoch()
        # Version 3 has broker ids with epochs, version 2 only ids.
        sends_epochs = self._sends_epochs()
        for (topic_id, index), (partition, pending) in sent.items():
            topic = topics.setdefault(
                topic_id, alter_partition.AlterPartitionRequest.TopicData(topic_id=topic_id)
            )
            data = alter_partition.AlterPartitionRequest.PartitionData(
                partition_index=index,
                leader_epoch=pending.leader_epoch,
                partition_epoch=pending.partition_epoch,
                metadata_offset=pending.metadata_offset,
            )
            if sends_epochs:
                data.new_isr_with_epochs = [
                    alter_partition.AlterPartitionRequest.BrokerState(
                        broker_id=replica, broker_epoch=self._epoch_of(partition, replica, epoch)
                    )
                    for replica in pending.isr
                ]
            else:
                data.new_isr = list(pending.isr)
            topic.partitions.append(data)
        return alter_partition.AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=epoch, topics=list(topics.values())
        )

    def _sends_epochs(self) -> bool:
        known = self._channel.api_versions
        return known is None or known.get(56, (2, 3))[1] >= 3

    def _epoch_of(self, partition: Partition, replica: int, own_epoch: int) -> int:
        if replica == self._node_id:
            return own_epoch
        state = partition.followers.get(replica)
        # -1 skips the check for a member whose Fetch has not arrived in this leader epoch. If it had
        # restarted, the controller would have removed it from the ISR and changed the partition epoch.
        return -1 if state is None or state.broker_epoch is None else state.broker_epoch
