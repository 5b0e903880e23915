"""CreatePartitions (KIP-195): adds partitions to topics; a pending reassignment does not matter."""

from __future__ import annotations

from collections import Counter

from quorate.controller.context import Context, Result, View, bounded
from quorate.controller.topics import manual_assignment, new_partition_record, placed_assignments, usable_brokers
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from quorate.protocol.schema import Data

TopicResult = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_partitions(view: View, request: CreatePartitionsRequest, ctx: Context) -> Result[CreatePartitionsResponse]:
    """Errors are per topic; the others are done in one batch."""
    repeated = {name for name, count in Counter(topic.name for topic in request.topics).items() if count > 1}
    response = CreatePartitionsResponse()
    for name in sorted(repeated):
        response.results.append(
            TopicResult(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name.")
        )
    records: list[Data] = []
    for topic in request.topics:
        if topic.name in repeated:
            continue
        try:
            records += _add(view, topic, ctx)
        except KafkaError as error:
            response.results.append(TopicResult(name=topic.name, error_code=error.code, error_message=error.message))
        else:
            response.results.append(TopicResult(name=topic.name))
    bounded(records, "Adding these partitions")
    return Result(response, [] if request.validate_only else records)


def _add(view: View, wanted: CreatePartitionsRequest.CreatePartitionsTopic, ctx: Context) -> list[Data]:
    topic = view.image.topics.by_name.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    present = len(topic.partitions)
    if wanted.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if wanted.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {present} partition(s); {wanted.count} would not be an increase.",
        )
    additional = wanted.count - present
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        assignments = placed_assignments(view, usable_brokers(view), ctx, additional, factor)
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
        new_partition_record(view, topic.id, present + index, replicas, isr) for index, (replicas, isr) in enumerate(assignments)
    ]
