"""CreatePartitions (37): adds partitions to topics (KIP-195). A reassignment in progress does not
prevent it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from quorate.controller.changes.batched_change import STEP_ITEMS, ChangeSteps, all_hold, in_one_turn, parts_of
from quorate.controller.context import Context, Result, View
from quorate.controller.replication.new_partitions import (
    Assignment,
    check_partition_total,
    manual_assignment,
    new_partition_records,
    placed_assignments,
    usable_brokers,
)
from quorate.controller.replication.placement import Racks
from quorate.metadata.image.topics import TopicImage
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from quorate.protocol.schema import Data

TopicResult = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_partitions(
    view: View, request: CreatePartitionsRequest, ctx: Context
) -> Result[CreatePartitionsResponse]:
    """Adds partitions. Errors are reported for each topic, and all other topics change together. Raises
    POLICY_VIOLATION for more new partitions than one request may write, which are 10,000 unless
    configured."""
    return in_one_turn(create_partitions_in_steps(view, request, ctx))


def create_partitions_in_steps(
    view: View, request: CreatePartitionsRequest, ctx: Context
) -> ChangeSteps[Result[CreatePartitionsResponse]]:
    """Does the same as `create_partitions` in steps, which yield the records."""
    counts: Counter[str] = Counter()
    for part in parts_of(request.topics):
        if counts:
            yield []
        counts.update(topic.name for topic in part)
    repeated = {name for name, count in counts.items() if count > 1}
    # Checked before the placement: a request of a few bytes may specify very many partitions.
    total = 0
    for number, part in enumerate(parts_of(request.topics)):
        if number:
            yield []
        total += sum(_additional(view, topic) for topic in part if topic.name not in repeated)
    check_partition_total(view, total, "additional partitions")
    usable = usable_brokers(view)
    response = CreatePartitionsResponse()
    for name in sorted(repeated):
        response.results.append(
            TopicResult(
                name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
            )
        )
    records: list[Data] = []  # those that the next step yields
    grown: list[TopicImage] = []
    for number, wanted in enumerate(request.topics):
        if number and not number % STEP_ITEMS:
            yield records
            records = []
        if wanted.name in repeated:
            continue
        try:
            topic = _growing(view, wanted)
            assignments = yield from _assignments(view, wanted, topic, usable, ctx)
        except KafkaError as error:
            response.results.append(
                TopicResult(name=wanted.name, error_code=error.code, error_message=error.message)
            )
            continue
        response.results.append(TopicResult(name=wanted.name))
        grown.append(topic)
        if request.validate_only:
            continue
        present = len(topic.partitions)
        for start in range(0, len(assignments), STEP_ITEMS):
            new = assignments[start : start + STEP_ITEMS]
            records += new_partition_records(view, topic.id, present + start, new)
            if len(records) >= STEP_ITEMS:
                yield records
                records = []
    yield records

    def recheck(newer: View) -> Generator[None, None, bool]:
        """Whether the brokers and the numbers of partitions and replicas are the same."""
        if not newer.has_same_brokers_and_settings(view):
            return False

        def is_same(topic: TopicImage) -> bool:
            current = newer.image.topics.by_id.get(topic.id)
            return current is not None and _shape(current) == _shape(topic)

        return (yield from all_hold(grown, is_same))

    return Result(response, recheck=recheck)


def _shape(topic: TopicImage) -> tuple[int, int]:
    """The number of partitions, and the number of replicas of the first partition."""
    return len(topic.partitions), len(topic.partitions[0].replicas)


def _additional(view: View, wanted: CreatePartitionsRequest.CreatePartitionsTopic) -> int:
    """The number of partitions to add, or 0 for a topic that does not exist or would not grow."""
    topic = view.image.topics.by_name.get(wanted.name)
    return 0 if topic is None else max(0, wanted.count - len(topic.partitions))


def _growing(view: View, wanted: CreatePartitionsRequest.CreatePartitionsTopic) -> TopicImage:
    """The topic. Raises an error if it does not exist or would not grow."""
    topic = view.image.topics.by_name.get(wanted.name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
            remedy=f"There is no topic '{wanted.name}'.",
        )
    present = len(topic.partitions)
    if wanted.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if wanted.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {present} partition(s); {wanted.count} would not be an "
            "increase.",
            remedy="Partitions cannot be removed.",
        )
    return topic


def _assignments(
    view: View,
    wanted: CreatePartitionsRequest.CreatePartitionsTopic,
    topic: TopicImage,
    usable: Racks,
    ctx: Context,
) -> ChangeSteps[list[Assignment]]:
    """The assignments of the new partitions of one topic, in steps."""
    present, factor = _shape(topic)
    additional = wanted.count - present
    if wanted.assignments is None:
        return (yield from placed_assignments(view, usable, ctx, additional, factor))
    if len(wanted.assignments) != additional:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)} "
            "assignment(s) were specified.",
        )
    assignments: list[Assignment] = []
    for index, assignment in enumerate(wanted.assignments):
        assignments.append(manual_assignment(view, assignment.broker_ids, factor, present + index))
        if not len(assignments) % STEP_ITEMS:
            yield []
    return assignments
