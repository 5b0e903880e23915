"""AlterPartition (56): leaders change the ISR of their partitions (KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from quorate.controller.changes.batched_change import Continuation
from quorate.controller.context import Context, Result, View
from quorate.controller.replication.broker_changes import CHANGES_PER_TURN
from quorate.controller.replication.partition_change import partition_change_for
from quorate.metadata.image.partitions import NO_LEADER_CHANGE, RECOVERED, RECOVERING, PartitionImage
from quorate.metadata.image.topics import TopicImage
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from quorate.protocol.schema import Data

logger = logging.getLogger(__name__)
NONE = ErrorCode.NONE


def alter_partition(
    view: View, request: AlterPartitionRequest, ctx: Context
) -> Result[AlterPartitionResponse]:
    """Changes the ISR of partitions at the request of their leader. Raises STALE_BROKER_EPOCH; other
    errors are reported for each partition."""
    view.check_broker_epoch(request.broker_id, request.broker_epoch)
    records: list[Data] = []
    if ctx.continuation is None:
        response = AlterPartitionResponse()
        requested = _requested_changes(request, response)
    else:
        response, requested = ctx.continuation.cursor
    for handled, (answer, wanted) in enumerate(requested, 1):
        topic = view.image.topics.by_id.get(answer.topic_id)
        answer.partitions.append(_alter_one(view, request.broker_id, topic, wanted, ctx, records))
        if handled == CHANGES_PER_TURN:
            return Result(response, records, atomic=False, continuation=Continuation((response, requested)))
    return Result(response, records, atomic=False)


def _requested_changes(
    request: AlterPartitionRequest, response: AlterPartitionResponse
) -> Iterator[tuple[AlterPartitionResponse.TopicData, AlterPartitionRequest.PartitionData]]:
    """Adds the requested topics to the response. Yields (topic of the response, requested change)."""
    for topic in request.topics:
        answer = AlterPartitionResponse.TopicData(topic_id=topic.topic_id)
        response.topics.append(answer)
        for wanted in topic.partitions:
            yield answer, wanted


def _alter_one(
    view: View,
    broker_id: int,
    topic: TopicImage | None,
    wanted: AlterPartitionRequest.PartitionData,
    ctx: Context,
    records: list[Data],
) -> AlterPartitionResponse.PartitionData:
    """Adds the record of one partition. Returns its result."""
    index = wanted.partition_index
    if topic is None:
        return _rejected(index, ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        return _rejected(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if ctx.api_version < 3:
        members = [(member, -1) for member in wanted.new_isr]
    else:
        members = [(state.broker_id, state.broker_epoch) for state in wanted.new_isr_with_epochs]
    error, why = _rejection_reason(view, broker_id, partition, wanted, members)
    if error != NONE:
        logger.info("AlterPartition of %s-%d by broker %d is rejected: %s", topic.name, index, broker_id, why)
        return _rejected(index, error)
    change = partition_change_for(view, topic, index)
    change.isr = tuple(member for member, _ in members)
    change.leader_recovery_state = wanted.leader_recovery_state
    record = change.build()
    leader, leader_epoch, epoch = partition.leader, partition.leader_epoch, partition.partition_epoch
    isr: Sequence[int] = partition.isr
    if record is not None:
        records.append(record)
        epoch += 1
        if record.isr is not None:
            isr = record.isr
        if record.leader != NO_LEADER_CHANGE:
            leader, leader_epoch = record.leader, leader_epoch + 1
            if leader != broker_id:
                # The change completes a reassignment that moves the leadership to another broker. Its
                # record is written, and the sender learns the new leader from the metadata log.
                return _rejected(index, ErrorCode.NEW_LEADER_ELECTED)
    return AlterPartitionResponse.PartitionData(
        partition_index=index,
        leader_id=leader,
        leader_epoch=leader_epoch,
        isr=list(isr),
        leader_recovery_state=wanted.leader_recovery_state,
        partition_epoch=epoch,
    )


def _rejected(index: int, error: ErrorCode) -> AlterPartitionResponse.PartitionData:
    return AlterPartitionResponse.PartitionData(partition_index=index, error_code=error)


def _rejection_reason(
    view: View,
    broker_id: int,
    partition: PartitionImage,
    wanted: AlterPartitionRequest.PartitionData,
    members: list[tuple[int, int]],
) -> tuple[ErrorCode, str]:
    """The error and the reason why a change is rejected, or NONE. The checks are in the order of Kafka's
    controller."""
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        # The sender has newer metadata, so this controller has most likely been replaced.
        return ErrorCode.NOT_CONTROLLER, "its epochs are newer than those this controller knows"
    if wanted.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {partition.leader_epoch}"
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST, f"the leader is {partition.leader}"
    if wanted.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION, f"the partition epoch is {partition.partition_epoch}"
    isr = [member for member, _ in members]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST, f"{isr} cannot be an ISR of replicas {list(partition.replicas)}"
    if partition.leader not in isr:
        return ErrorCode.INVALID_REQUEST, f"{isr} lacks the leader"
    if wanted.leader_recovery_state not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST, f"unknown leader recovery state {wanted.leader_recovery_state}"
    if wanted.leader_recovery_state == RECOVERING:
        if len(isr) > 1:
            return ErrorCode.INVALID_REQUEST, "an ISR cannot grow while its leader is recovering"
        if partition.leader_recovery_state == RECOVERED:
            return ErrorCode.INVALID_REQUEST, "a recovered leader cannot start recovering"
    for member, epoch in members:
        registration = view.broker(member)
        if registration is None:
            return ErrorCode.INELIGIBLE_REPLICA, f"broker {member} is not registered"
        if registration.in_controlled_shutdown:
            return ErrorCode.INELIGIBLE_REPLICA, f"broker {member} is shutting down"
        if registration.fenced or view.is_leaving(member):
            return ErrorCode.INELIGIBLE_REPLICA, f"broker {member} is fenced, or about to be"
        if epoch not in (-1, registration.epoch):
            return (
                ErrorCode.INELIGIBLE_REPLICA,
                f"broker {member} is registered with broker epoch {registration.epoch}, not {epoch}",
            )
        # A leader repeats a request after a timeout. If the repetition was refused because a new member was
        # fenced, the high watermark no longer waits for this member, and the first copy must not add it
        # later. Both were prepared before the member was unfenced again. (Kafka does not check this.)
        is_new = member not in partition.isr and wanted.metadata_offset >= 0
        if is_new and wanted.metadata_offset < registration.unfenced_offset:
            return ErrorCode.INELIGIBLE_REPLICA, f"broker {member} was fenced after the request was prepared"
    return NONE, ""
