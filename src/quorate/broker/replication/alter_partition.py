"""Sends ISR changes to the controller (AlterPartition, KIP-497): one request in flight, what is queued
meanwhile goes with the next."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from quorate.net.errors import KafkaConnectionError, RequestTimedOut, UnsupportedVersion
from quorate.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from quorate.broker.controller_channel import ControllerChannel
    from quorate.broker.replication.partition import Partition
    from quorate.broker.replication.replica_state import PendingIsr
    from quorate.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

log_ = logging.getLogger("quorate.broker.replication.alter_partition")

_RETRY_MIN_S = 0.05
_RETRY_MAX_S = 1.0

_Key = tuple[bytes, int]


MAX_PARTITIONS = 1_000
"""In one request: one that comes back as a follower of very many partitions joins their ISRs in some."""


class AlterPartitionManager:
    """An IsrSender over the controller channel."""

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

    def submit(self, partition: Partition, pending: PendingIsr) -> None:
        """Queues the newest wish for a partition; an older one that was not sent yet is dropped."""
        self._queue[(partition.topic_id, partition.partition)] = (partition, pending)
        if self._task is None:
            self._task = self._loop.create_task(self._send())

    async def close(self) -> None:
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
                except (
                    Exception
                ):  # without another try the ISR would be frozen until the partition changes otherwise
                    log_.exception("[AlterPartition broker=%d] Request failed", self._node_id)
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
        """Sends one request; returns the partitions of which nothing has to be sent again."""
        settled: set[_Key] = set()
        try:
            answer = await self._channel.send(self._request(sent), None)
        except (RequestTimedOut, KafkaConnectionError, UnsupportedVersion) as error:
            log_.warning("[AlterPartition broker=%d] Request failed: %s", self._node_id, error)
            return settled
        if answer.error_code != ErrorCode.NONE:
            error_code = ErrorCode.of(answer.error_code)
            log_.warning(
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
        """Tells a partition its answer; false when the request is to be sent again."""
        if part.error_code == ErrorCode.NONE:
            try:
                partition.isr_altered(pending, tuple(part.isr), part.leader_epoch, part.partition_epoch)
            except Exception:  # of this partition's log; the others must have their answers
                log_.exception(
                    "[AlterPartition broker=%d] %s-%d failed to take its new ISR",
                    self._node_id,
                    partition.topic,
                    partition.partition,
                )
            return True
        code = ErrorCode.of(part.error_code)
        log_.info(
            "[AlterPartition broker=%d] ISR %s of %s-%d was refused: %s",
            self._node_id,
            list(pending.isr),
            partition.topic,
            partition.partition,
            code.name,
        )
        return not partition.isr_refused(pending, code)

    def _request(self, sent: dict[_Key, tuple[Partition, PendingIsr]]) -> AlterPartitionRequest:
        from quorate.protocol.messages.alter_partition import AlterPartitionRequest as Request

        topics: dict[bytes, AlterPartitionRequest.TopicData] = {}
        epoch = self._broker_epoch()
        # Version 3 names the broker epochs; version 2 only the ids. The codec drops what the version lacks.
        names_epochs = self._names_epochs()
        for (topic_id, index), (partition, pending) in sent.items():
            topic = topics.setdefault(topic_id, Request.TopicData(topic_id=topic_id))
            data = Request.PartitionData(
                partition_index=index,
                leader_epoch=pending.leader_epoch,
                partition_epoch=pending.partition_epoch,
            )
            if names_epochs:
                data.new_isr_with_epochs = [
                    Request.BrokerState(
                        broker_id=replica, broker_epoch=self._epoch_of(partition, replica, epoch)
                    )
                    for replica in pending.isr
                ]
            else:
                data.new_isr = list(pending.isr)
            topic.partitions.append(data)
        return Request(broker_id=self._node_id, broker_epoch=epoch, topics=list(topics.values()))

    def _names_epochs(self) -> bool:
        known = self._channel.api_versions
        return known is None or known.get(56, (2, 3))[1] >= 3

    def _epoch_of(self, partition: Partition, replica: int, own_epoch: int) -> int:
        if replica == self._node_id:
            return own_epoch
        state = partition.followers.get(replica)
        # -1 skips the check for a member of old whose Fetch has not come yet: were it restarted, the
        # controller had taken it out of the ISR and changed the partition epoch.
        return -1 if state is None or state.broker_epoch is None else state.broker_epoch
