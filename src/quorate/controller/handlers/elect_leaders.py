"""ElectLeaders (43): elects leaders on request and for the periodic tasks (KIP-460)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import islice

from quorate.controller.changes.batched_change import Continuation
from quorate.controller.context import Context, Result, View
from quorate.controller.replication.broker_changes import CHANGES_PER_TURN, VISITS_PER_TURN, Located
from quorate.controller.replication.partition_change import Election, partition_change_for
from quorate.controller.topic_names import shown
from quorate.metadata.image.partitions import NO_LEADER
from quorate.protocol.errors import ErrorCode, KafkaError, explained
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from quorate.protocol.schema import Data

logger = logging.getLogger(__name__)
NONE = ErrorCode.NONE
PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1
_FOUND_WITHOUT_ELECTION = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.ELECTION_NOT_NEEDED)
"""The errors of partitions that are only read and not changed."""
_MESSAGES = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


def elect_leaders(view: View, request: ElectLeadersRequest, ctx: Context) -> Result[ElectLeadersResponse]:
    """Elects preferred leaders, or leaders uncleanly. A request may name every partition of the cluster,
    so it is handled in portions.

    Raises INVALID_REQUEST for an unknown election type.
    """
    kind = request.election_type
    if kind not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
    everything = request.topic_partitions is None
    records: list[Data] = []
    if ctx.continuation is None:
        response = ElectLeadersResponse()
        cursor = _election_places(view, request, response)
    else:
        response, cursor = ctx.continuation.cursor
    changes = 0
    for visits, (answer, partition_id) in enumerate(cursor, 1):
        if partition_id is not None:
            error = elect_leader(view, answer.topic, partition_id, kind, records)
            changes += error not in _FOUND_WITHOUT_ELECTION
            # A request for all partitions reports only those that needed an election.
            if not everything or error != ErrorCode.ELECTION_NOT_NEEDED:
                answer.partition_result.append(
                    ElectLeadersResponse.PartitionResult(
                        partition_id=partition_id,
                        error_code=error,
                        error_message=_message(view, answer.topic, partition_id, kind, error),
                    )
                )
        if changes == CHANGES_PER_TURN or visits == VISITS_PER_TURN:
            return Result(response, records, atomic=False, continuation=Continuation((response, cursor)))
    return Result(response, records, atomic=False)


def _election_places(
    view: View, request: ElectLeadersRequest, response: ElectLeadersResponse
) -> Iterator[tuple[ElectLeadersResponse.ReplicaElectionResult, int | None]]:
    """Each partition of the request, with the topic of the response that its result belongs to. Each topic
    begins with None in place of a partition: a topic without partitions takes time, too."""
    topics: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        topics = ((topic.name, topic.partitions.ids()) for topic in view.image.topics.by_name.values())
    else:
        topics = ((wanted.topic, wanted.partitions) for wanted in request.topic_partitions)
    for name, partition_ids in topics:
        answer = ElectLeadersResponse.ReplicaElectionResult(topic=name)
        response.replica_election_results.append(answer)
        yield answer, None
        for partition_id in partition_ids:
            yield answer, partition_id


def elect_leader(view: View, name: str, partition_id: int, kind: int, records: list[Data]) -> ErrorCode:
    """Adds the record of one election. Returns the error."""
    topic = view.image.topics.by_name.get(name)
    partition = None if topic is None else topic.partitions.get(partition_id)
    if topic is None or partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    preferred = kind == PREFERRED_ELECTION
    if partition.leader == partition.replicas[0] if preferred else partition.leader != NO_LEADER:
        return ErrorCode.ELECTION_NOT_NEEDED
    election = Election.PREFERRED if preferred else Election.UNCLEAN
    record = partition_change_for(view, topic, partition_id, election=election).build()
    if record is None:
        if preferred:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    records.append(record)
    return NONE


def _message(view: View, name: str, partition_id: int, kind: int, error: ErrorCode) -> str | None:
    """The message for the error of an election.

    It names the replicas that would have to lead, with what keeps each of them from it.
    """
    topic = view.image.topics.by_name.get(name)
    if topic is None:
        return f"No such topic as {shown(name)}"
    partition = topic.partitions.get(partition_id)
    if partition is None:
        return f"No such partition as {name}-{partition_id}"
    if error in (NONE, ErrorCode.ELECTION_NOT_NEEDED):
        return _MESSAGES.get(error)
    replicas = partition.replicas[:1] if kind == PREFERRED_ELECTION else partition.replicas
    found = [
        f"Broker {replica} is {view.broker_state(replica)}"
        f" and {'in' if replica in partition.isr else 'not in'} the ISR."
        for replica in replicas
    ]
    return explained(_MESSAGES[error], " ".join(found))


def preferred_elections(view: View, candidates: Iterable[Located], limit: int) -> list[Data]:
    """Makes preferred replicas the leaders of these partitions. Returns at most `limit` records, for one
    run of the periodic task."""
    other_leaders = (found for found in candidates if found[2].leader != found[2].replicas[0])
    return _elections(view, other_leaders, Election.PREFERRED, limit)


def clean_elections(view: View, candidates: Iterable[Located], limit: int) -> list[Data]:
    """Elects leaders for leaderless partitions as if their brokers were just unfenced: from the ISR, from
    the ELR if there is no ISR, or the last known leader if there is neither. Returns at most `limit`
    records."""
    electable = (
        (topic, partition_id, partition)
        for topic, partition_id, partition in candidates
        if partition.leader == NO_LEADER
        and any(map(view.is_active, partition.isr or partition.elr or partition.last_known_elr))
    )
    return _elections(view, electable, Election.ONLINE, limit)


def _elections(view: View, candidates: Iterable[Located], election: Election, limit: int) -> list[Data]:
    """Returns at most `limit` records, for the partitions in which the election changes something."""
    changes = (
        partition_change_for(view, topic, partition_id, election=election).build()
        for topic, partition_id, _ in candidates
    )
    return list(islice((record for record in changes if record is not None), limit))


def unclean_elections(view: View, candidates: Iterable[Located], limit: int) -> list[Data]:
    """Elects leaders for partitions without a leader whose topic allows unclean elections. Returns at
    most `limit` records."""
    records: list[Data] = []
    for topic, partition_id, partition in candidates:
        if partition.leader != NO_LEADER:
            continue
        if not view.topic_settings(topic.name, len(topic.partitions[0].replicas))[1]:
            continue
        error = elect_leader(view, topic.name, partition_id, UNCLEAN_ELECTION, records)
        if error == NONE:
            logger.info("Electing a leader uncleanly for offline partition %s-%d.", topic.name, partition_id)
        if len(records) >= limit:
            break
    return records
