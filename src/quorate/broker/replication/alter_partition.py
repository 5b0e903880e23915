"""Reports ISR changes to the controller (AlterPartition, KIP-497)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from quorate.broker.replication.partition_reports import PartitionId, PartitionReports
from quorate.lazy import lazy_module
from quorate.protocol.api import ApiKey
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


class AlterPartitionManager(PartitionReports["tuple[Partition, PendingIsr]"]):
    """Queues ISR changes and sends them over the controller channel."""

    NAME = "AlterPartition"
    MAX_AT_ONCE = 1_000
    RETRY_MIN_S = 0.05
    RETRY_MAX_S = 1.0

    def __init__(
        self,
        node_id: int,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(node_id, channel, broker_epoch, loop, logger)
        self.expansions = 0
        """ISR expansions that the controller has committed."""
        self.shrinks = 0
        self.failures = 0
        """Changes that the controller has refused."""

    def submit(self, partition: Partition, pending: PendingIsr) -> None:
        """Queues a change. An older one of the same partition that was not sent yet is dropped."""
        self.enqueue((partition.topic_id, partition.partition), (partition, pending))

    def is_current(self, report: tuple[Partition, PendingIsr]) -> bool:
        """Whether the partition still waits for this change."""
        partition, pending = report
        return partition.pending_isr is pending

    def settle(
        self, reports: dict[PartitionId, tuple[Partition, PendingIsr]], answer: AlterPartitionResponse
    ) -> set[PartitionId]:
        """Applies the response. Returns the partitions that need no retry."""
        settled: set[PartitionId] = set()
        for topic in answer.topics:
            for part in topic.partitions:
                key = (topic.topic_id, part.partition_index)
                if key in reports and self._settle(*reports[key], part):
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
                    self.node_id,
                    partition.topic,
                    partition.partition,
                )
            return True
        self.failures += 1
        code = ErrorCode.of(part.error_code)
        logger.info(
            "[AlterPartition broker=%d] ISR %s of %s-%d was refused: %s",
            self.node_id,
            list(pending.isr),
            partition.topic,
            partition.partition,
            code.name,
        )
        return not partition.isr_rejected(pending, code)

    def request(self, reports: dict[PartitionId, tuple[Partition, PendingIsr]]) -> AlterPartitionRequest:
        """Returns the request with these changes."""
        topics: dict[bytes, AlterPartitionRequest.TopicData] = {}
        epoch = self.broker_epoch()
        # Version 3 has broker ids with epochs, version 2 only ids.
        sends_epochs = self._sends_epochs()
        for (topic_id, index), (partition, pending) in reports.items():
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
            broker_id=self.node_id, broker_epoch=epoch, topics=list(topics.values())
        )

    def _sends_epochs(self) -> bool:
        known = self.channel.api_versions
        return known is None or known.get(ApiKey.ALTER_PARTITION, (2, 3))[1] >= 3

    def _epoch_of(self, partition: Partition, replica: int, own_epoch: int) -> int:
        if replica == self.node_id:
            return own_epoch
        state = partition.followers.get(replica)
        # -1 skips the check for a member whose Fetch has not arrived in this leader epoch. If it had
        # restarted, the controller would have removed it from the ISR and changed the partition epoch.
        return -1 if state is None or state.broker_epoch is None else state.broker_epoch
