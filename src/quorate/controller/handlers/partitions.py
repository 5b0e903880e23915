"""AlterPartition, ElectLeaders, AssignReplicasToDirs and the two sweeps that elect leaders (KIP-497, KIP-460, KIP-858)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from quorate.controller.context import Context, Rest, Result, View
from quorate.controller.replication.broker_changes import CHANGES_PER_TURN, LOOKS_PER_TURN, Located, update_partitions
from quorate.controller.replication.partition_change import Election, PartitionChange
from quorate.metadata.features import FIRST_DIRECTORIES
from quorate.metadata.image.partitions import NO_LEADER, NO_LEADER_CHANGE, RECOVERED, RECOVERING, PartitionImage
from quorate.metadata.image.topics import TopicImage
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from quorate.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from quorate.protocol.schema import Data

log = logging.getLogger(__name__)

NONE = ErrorCode.NONE
PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1

_FOUND_WITHOUT_ELECTION = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.ELECTION_NOT_NEEDED)
"""Answers that cost only a look."""

_MESSAGES = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


def change_of(view: View, topic: TopicImage, partition_id: int, *, election: Election | None = None) -> PartitionChange:
    """A change of one partition under its topic's settings; election: instead of what the topic allows."""
    min_isr, unclean = view.topic_settings(topic.name, len(topic.partitions[0].replicas))
    if election is None:
        election = Election.UNCLEAN if unclean else Election.ONLINE
    return PartitionChange(view, topic.id, partition_id, topic.partitions[partition_id], min_isr=min_isr, election=election)


# -- AlterPartition


def alter_partition(view: View, request: AlterPartitionRequest, ctx: Context) -> Result[AlterPartitionResponse]:
    """ISR changes by leaders. Raises STALE_BROKER_EPOCH; other errors are per partition."""
    view.check_broker_epoch(request.broker_id, request.broker_epoch)
    records: list[Data] = []
    if ctx.rest is None:
        response = AlterPartitionResponse()
        wishes = _wishes(request, response)
    else:
        response, wishes = ctx.rest.places
    for handled, (answer, wanted) in enumerate(wishes, 1):
        topic = view.image.topics.by_id.get(answer.topic_id)
        answer.partitions.append(_alter_one(view, request.broker_id, topic, wanted, ctx, records))
        if handled == CHANGES_PER_TURN:
            return Result(response, records, atomic=False, rest=Rest((response, wishes)))
    return Result(response, records, atomic=False)


def _wishes(
    request: AlterPartitionRequest, response: AlterPartitionResponse
) -> Iterator[tuple[AlterPartitionResponse.TopicData, AlterPartitionRequest.PartitionData]]:
    """Each wish of the request beside the part of the response that takes its answer."""
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
    index = wanted.partition_index
    if topic is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if ctx.api_version < 3:
        members = [(member, -1) for member in wanted.new_isr]
    else:
        members = [(state.broker_id, state.broker_epoch) for state in wanted.new_isr_with_epochs]
    error, why = _why_refused(view, broker_id, partition, wanted, members)
    if error != NONE:
        log.info("AlterPartition of %s-%d by broker %d is refused: %s", topic.name, index, broker_id, why)
        return _refused(index, error)
    change = change_of(view, topic, index)
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
                # The change completed a reassignment that takes the leadership from its sender: it happens, and the
                # sender is told to wait for it in the log.
                return _refused(index, ErrorCode.NEW_LEADER_ELECTED)
    return AlterPartitionResponse.PartitionData(
        partition_index=index,
        leader_id=leader,
        leader_epoch=leader_epoch,
        isr=list(isr),
        leader_recovery_state=wanted.leader_recovery_state,
        partition_epoch=epoch,
    )


def _refused(index: int, error: ErrorCode) -> AlterPartitionResponse.PartitionData:
    return AlterPartitionResponse.PartitionData(partition_index=index, error_code=error)


def _why_refused(
    view: View,
    broker_id: int,
    partition: PartitionImage,
    wanted: AlterPartitionRequest.PartitionData,
    members: list[tuple[int, int]],
) -> tuple[ErrorCode, str]:
    """In the order in which Kafka's controller checks."""
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        # The sender knows more than this controller: it has been replaced, most likely.
        return ErrorCode.NOT_CONTROLLER, "its epochs are newer than this controller knows"
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
    return NONE, ""


# -- ElectLeaders and sweeps


def elect_leaders(view: View, request: ElectLeadersRequest, ctx: Context) -> Result[ElectLeadersResponse]:
    """Preferred or unclean elections on request, in portions: a request may be about every partition that there is.

    Raises INVALID_REQUEST for an unknown kind of election.
    """
    kind = request.election_type
    if kind not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
    everything = request.topic_partitions is None
    records: list[Data] = []
    if ctx.rest is None:
        response = ElectLeadersResponse()
        places = _election_places(view, request, response)
    else:
        response, places = ctx.rest.places
    changes = 0
    for looks, (answer, partition_id) in enumerate(places, 1):
        error, message = elect_leader(view, answer.topic, partition_id, kind, records)
        changes += error not in _FOUND_WITHOUT_ELECTION
        if not everything or error != ErrorCode.ELECTION_NOT_NEEDED:  # asked about all: only where something was to be done
            answer.partition_result.append(
                ElectLeadersResponse.PartitionResult(partition_id=partition_id, error_code=error, error_message=message)
            )
        if changes == CHANGES_PER_TURN or looks == LOOKS_PER_TURN:
            return Result(response, records, atomic=False, rest=Rest((response, places)))
    return Result(response, records, atomic=False)


def _election_places(
    view: View, request: ElectLeadersRequest, response: ElectLeadersResponse
) -> Iterator[tuple[ElectLeadersResponse.ReplicaElectionResult, int]]:
    """Each partition that the request is about beside the part of the response that takes its answer."""
    topics: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        topics = ((topic.name, topic.partitions.ids()) for topic in view.image.topics.by_name.values())
    else:
        topics = ((wanted.topic, wanted.partitions) for wanted in request.topic_partitions)
    for name, partition_ids in topics:
        answer = ElectLeadersResponse.ReplicaElectionResult(topic=name)
        response.replica_election_results.append(answer)
        for partition_id in partition_ids:
            yield answer, partition_id


def elect_leader(view: View, name: str, partition_id: int, kind: int, records: list[Data]) -> tuple[ErrorCode, str | None]:
    """Adds the record of one election; returns the error and its message."""
    topic = view.image.topics.by_name.get(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    partition = topic.partitions.get(partition_id)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{partition_id}"
    preferred = kind == PREFERRED_ELECTION
    if partition.leader == partition.replicas[0] if preferred else partition.leader != NO_LEADER:
        return ErrorCode.ELECTION_NOT_NEEDED, _MESSAGES[ErrorCode.ELECTION_NOT_NEEDED]
    election = Election.PREFERRED if preferred else Election.UNCLEAN
    record = change_of(view, topic, partition_id, election=election).build()
    if record is None:
        error = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        return error, _MESSAGES[error]
    records.append(record)
    return NONE, None


def preferred_elections(view: View, candidates: Iterable[Located], limit: int) -> list[Data]:
    """Gives leaderships back to preferred replicas; at most `limit` records, one run of the periodic task."""
    records: list[Data] = []
    for topic, partition_id, partition in candidates:
        if partition.leader == partition.replicas[0]:
            continue
        record = change_of(view, topic, partition_id, election=Election.PREFERRED).build()
        if record is not None:
            records.append(record)
            if len(records) >= limit:
                break
    return records


def unclean_elections(view: View, candidates: Iterable[Located], limit: int) -> list[Data]:
    """Leaders for leaderless partitions whose topic allows unclean elections."""
    records: list[Data] = []
    for topic, partition_id, partition in candidates:
        if partition.leader != NO_LEADER:
            continue
        if not view.topic_settings(topic.name, len(topic.partitions[0].replicas))[1]:
            continue
        error, _ = elect_leader(view, topic.name, partition_id, UNCLEAN_ELECTION, records)
        if error == NONE:
            log.info("Electing a leader uncleanly for offline partition %s-%d.", topic.name, partition_id)
        if len(records) >= limit:
            break
    return records


# -- AssignReplicasToDirs


def assign_replicas_to_dirs(
    view: View, request: AssignReplicasToDirsRequest, ctx: Context
) -> Result[AssignReplicasToDirsResponse]:
    """A broker tells where its replicas lie; done in portions. Raises UNSUPPORTED_VERSION, STALE_BROKER_EPOCH."""
    if view.metadata_version < FIRST_DIRECTORIES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not know directories.")
    broker_id = view.check_broker_epoch(request.broker_id, request.broker_epoch).id
    if ctx.rest is None:
        response = AssignReplicasToDirsResponse()
        assignments = _assignments(request, response)
    else:
        response, assignments = ctx.rest.places
    records: list[Data] = []
    lost: list[Located] = []
    rest: Rest | None = None
    for handled, (answer, index, directory) in enumerate(assignments, 1):
        topic = view.image.topics.by_id.get(answer.topic_id)
        error = _assign_one(view, broker_id, topic, index, directory, records, lost)
        answer.partitions.append(AssignReplicasToDirsResponse.PartitionData(partition_index=index, error_code=error))
        if handled == CHANGES_PER_TURN:
            rest = Rest((response, assignments))
            break
    update_partitions(view, records, lost, removed=broker_id)
    return Result(response, records, atomic=False, rest=rest)


def _assignments(
    request: AssignReplicasToDirsRequest, response: AssignReplicasToDirsResponse
) -> Iterator[tuple[AssignReplicasToDirsResponse.TopicData, int, bytes]]:
    """Each partition of the request with its directory, beside the part of the response that takes its answer."""
    for directory in request.directories:
        directory_answer = AssignReplicasToDirsResponse.DirectoryData(id=directory.id)
        response.directories.append(directory_answer)
        for topic in directory.topics:
            answer = AssignReplicasToDirsResponse.TopicData(topic_id=topic.topic_id)
            directory_answer.topics.append(answer)
            for partition in topic.partitions:
                yield answer, partition.partition_index, directory.id


def _assign_one(
    view: View,
    broker_id: int,
    topic: TopicImage | None,
    index: int,
    directory: bytes,
    records: list[Data],
    lost: list[Located],
) -> ErrorCode:
    """Adds the record of one assignment, and to `lost` the partition if that directory is offline."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    change = change_of(view, topic, index, election=Election.ONLINE)
    change.directories = {broker_id: directory}
    record = change.build()
    if record is not None:
        records.append(record)
    if not view.has_online_directory(broker_id, directory):
        lost.append((topic, index, partition))
    return NONE
