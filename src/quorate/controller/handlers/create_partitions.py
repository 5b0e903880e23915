"""CreatePartitions (37): adds partitions to topics (KIP-195). A reassignment in progress does not
prevent it."""

from __future__ import annotations

from collections import Counter

from quorate.controller.context import Context, Result, View, bounded
from quorate.controller.replication.new_partitions import (
    check_partition_total,
    manual_assignment,
    new_partition_record,
    placed_assignments,
    usable_brokers,
)
from quorate.controller.replication.placement import Racks
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from quorate.protocol.schema import Data

TopicResult = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_partitions(
    view: View, request: CreatePartitionsRequest, ctx: Context
) -> Result[CreatePartitionsResponse]:
    """Adds partitions. Errors are reported for each topic, and all other topics change in one batch.
    Raises POLICY_VIOLATION for more than 10,000 new partitions."""
    repeated = {name for name, count in Counter(topic.name for topic in request.topics).items() if count > 1}
    # Checked before the placement: a request of a few bytes may specify very many partitions.
    check_partition_total(
        sum(_additional(view, topic) for topic in request.topics if topic.name not in repeated)
    )
    usable = usable_brokers(view)
    response = CreatePartitionsResponse()
    for name in sorted(repeated):
        response.results.append(
            TopicResult(
                name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
            )
        )
    records: list[Data] = []
    for topic in request.topics:
        if topic.name in repeated:
            continue
        try:
            records += _add(view, topic, usable, ctx)
        except KafkaError as error:
            response.results.append(
                TopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            )
        else:
            response.results.append(TopicResult(name=topic.name))
    bounded(records, "Adding these partitions")
    return Result(response, [] if request.validate_only else records)


def _additional(view: View, wanted: CreatePartitionsRequest.CreatePartitionsTopic) -> int:
    """The number of partitions to add, or 0 for a topic that does not exist or would not grow."""
    topic = view.image.topics.by_name.get(wanted.name)
    return 0 if topic is None else max(0, wanted.count - len(topic.partitions))


def _add(
    view: View, wanted: CreatePartitionsRequest.CreatePartitionsTopic, usable: Racks, ctx: Context
) -> list[Data]:
    """The records of the new partitions of one topic."""
    topic = view.image.topics.by_name.get(wanted.name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    present = len(topic.partitions)
    if wanted.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if wanted.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {present} partition(s); {wanted.count} would not be an "
            "increase.",
        )
    additional = wanted.count - present
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        assignments = placed_assignments(view, usable, ctx, additional, factor)
    else:
        if len(wanted.assignments) != additional:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)} "
                "assignment(s) were specified.",
            )
        assignments = [
            manual_assignment(view, assignment.broker_ids, factor, present + index)
            for index, assignment in enumerate(wanted.assignments)
        ]
    return [
        new_partition_record(view, topic.id, present + index, replicas, isr)
        for index, (replicas, isr) in enumerate(assignments)
    ]
