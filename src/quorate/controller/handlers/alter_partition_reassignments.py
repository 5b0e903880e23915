"""AlterPartitionReassignments (45): moves partitions to other brokers (KIP-455, KIP-860).

A reassignment first adds the new replicas: the replica list becomes the target replicas followed by the
replicas to remove. The next change of the ISR completes the reassignment when the ISR contains every
target replica (see `PartitionChangeBuilder`). If it does so already, the reassignment completes at once.

A request may replace a reassignment that is in progress. If its target has every current replica, nothing is
removed any more. Kafka's controller keeps the replicas to remove in this case, and removes replicas that the
target names.

If the new target adds a replica, it alone counts as added, as in Kafka, and not those that the earlier
reassignment was still adding: after [1, 2, 3] to [1, 2, 4], the target [1, 2, 4, 5] adds 5. If that is
cancelled, 4 stays a replica, and 3 too.
"""

from __future__ import annotations

from collections.abc import Generator

from quorate.controller.changes.batched_change import STEP_ITEMS, ChangeSteps, all_hold, in_one_turn
from quorate.controller.context import Context, Result, View, check_record_count
from quorate.controller.replication.new_partitions import check_manual_replicas
from quorate.controller.replication.partition_change import Election, partition_change_for
from quorate.controller.topic_names import shown
from quorate.metadata.image.partitions import PartitionImage
from quorate.metadata.image.topics import TopicImage
from quorate.protocol.errors import ErrorCode, KafkaError, listed
from quorate.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from quorate.protocol.schema import Data


def alter_partition_reassignments(
    view: View, request: AlterPartitionReassignmentsRequest, ctx: Context
) -> Result[AlterPartitionReassignmentsResponse]:
    """Starts or replaces reassignments, or cancels them if the replicas are null. Errors are reported
    for each partition, and all other partitions change together.

    Raises POLICY_VIOLATION for more records than one request may write, which are 10,000 unless
    configured.
    """
    return in_one_turn(alter_partition_reassignments_in_steps(view, request, ctx))


def alter_partition_reassignments_in_steps(
    view: View, request: AlterPartitionReassignmentsRequest, ctx: Context
) -> ChangeSteps[Result[AlterPartitionReassignmentsResponse]]:
    """Does the same as `alter_partition_reassignments` in steps, which yield the records."""
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    records: list[Data] = []
    changed: dict[tuple[str, int], Data] = {}
    visited = 0
    for wanted_topic in request.topics:
        answer = AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name=wanted_topic.name)
        response.responses.append(answer)
        visited += 1  # a topic counts too, since it may have no partitions
        if not visited % STEP_ITEMS:
            yield records
            records = []
        for wanted in wanted_topic.partitions:
            visited += 1
            if not visited % STEP_ITEMS:
                yield records
                records = []
            result = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
                partition_index=wanted.partition_index, error_message=None
            )
            answer.partitions.append(result)
            try:
                record = _alter(view, wanted_topic.name, wanted, request.allow_replication_factor_change)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
                continue
            if record is None:
                continue
            earlier = changed.setdefault((wanted_topic.name, wanted.partition_index), record)
            if earlier is record:
                records.append(record)
                check_record_count(len(changed), "Reassigning these partitions", view.max_records)
            elif earlier != record:
                # Both records are computed from the state before the change, and have null in unchanged
                # fields. Where the second has null, the value of the first would remain.
                result.error_code = ErrorCode.INVALID_REQUEST
                result.error_message = "The request moves this partition to other replicas already."
    yield records
    before = view.image.topics.by_name

    def recheck(newer: View) -> Generator[None, None, bool]:
        """Whether the brokers and the partitions are the same."""
        if not newer.has_same_brokers_and_settings(view):
            return False

        def is_same(place: tuple[str, int]) -> bool:
            name, partition_id = place
            current = newer.image.topics.by_name.get(name)
            return current is not None and (
                current.partitions.entry(partition_id) is before[name].partitions.entry(partition_id)
            )

        return (yield from all_hold(changed, is_same))

    return Result(response, recheck=recheck)


def _alter(
    view: View,
    name: str,
    wanted: AlterPartitionReassignmentsRequest.ReassignablePartition,
    allow_factor_change: bool,
) -> Data | None:
    """The record that starts, replaces or cancels one reassignment, or None if nothing changes."""
    topic = view.image.topics.by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {shown(name)}.")
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {name}:{wanted.partition_index}.",
            remedy=f"Its partitions are 0 to {len(topic.partitions) - 1}.",
        )
    if wanted.replicas is None:
        return _cancel(view, topic, wanted.partition_index, partition)
    target = tuple(wanted.replicas)
    check_manual_replicas(view, target, None)
    if not allow_factor_change and len(target) != (factor := _factor(partition)):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {len(target)}",
            remedy="Leave out --disallow-replication-factor-change to allow it.",
        )
    removing = tuple(sorted(set(partition.replicas) - set(target)))
    adding = tuple(sorted(set(target) - set(partition.replicas)))
    change = partition_change_for(view, topic, wanted.partition_index, election=Election.ONLINE)
    change.replicas = target + removing
    change.removing = removing
    change.adding = adding or tuple(r for r in partition.adding_replicas if r in target)
    return change.build()


def _factor(partition: PartitionImage) -> int:
    """The number of replicas after the reassignment in progress, if there is one."""
    if not partition.is_reassigning:
        return len(partition.replicas)
    replicas = {*partition.replicas, *partition.adding_replicas}
    return len(replicas - set(partition.removing_replicas))


def _cancel(view: View, topic: TopicImage, partition_id: int, partition: PartitionImage) -> Data | None:
    """The record that cancels a reassignment: the adding replicas leave, and the removing replicas stay.

    If no original replica is in the ISR, but one is in the ELR, the ISR becomes empty and the
    leader is elected from the ELR. (Kafka would elect the first replica uncleanly, or refuse.)
    """
    if not partition.is_reassigning:
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            "No partition reassignment is in progress.",
            remedy="kafka-reassign-partitions --list shows those that are.",
        )
    replicas = tuple(r for r in partition.replicas if r not in partition.adding_replicas)
    isr = tuple(r for r in partition.isr if r not in partition.adding_replicas)
    unclean_allowed = view.topic_settings(topic.name, len(topic.partitions[0].replicas))[1]
    if not isr and not set(partition.elr).intersection(replicas):
        if not replicas:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{partition_id} because "
                "every replica is one that the reassignment adds.",
            )
        if not unclean_allowed:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{partition_id} because it "
                "would require an unclean leader election.",
                remedy=f"No original replica ({listed(replicas)}) is in sync. "
                f"{view.broker_states()} Start one of them, or set "
                "unclean.leader.election.enable=true for the topic, which may lose records.",
            )
        isr = (replicas[0],)
    change = partition_change_for(view, topic, partition_id)
    change.isr, change.replicas = isr, replicas
    change.removing = change.adding = ()
    return change.build()
