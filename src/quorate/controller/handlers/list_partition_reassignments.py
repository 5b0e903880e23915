"""ListPartitionReassignments (46): lists the reassignments in progress (KIP-455)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from quorate.controller.changes.batched_change import Continuation
from quorate.controller.context import Context, Result, View
from quorate.controller.replication.broker_changes import VISITS_PER_TURN
from quorate.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def list_partition_reassignments(
    view: View, request: ListPartitionReassignmentsRequest, ctx: Context
) -> Result[ListPartitionReassignmentsResponse]:
    """Lists reassignments, in portions. If the topics are null, it lists all of them. Unknown topics and
    partitions without a reassignment are omitted."""
    if ctx.continuation is None:
        response = ListPartitionReassignmentsResponse(error_message=None)
        cursor = _listed_places(view, request)
    else:
        response, cursor = ctx.continuation.cursor
    by_id = view.image.topics.by_id
    places = list(itertools.islice(cursor, VISITS_PER_TURN))
    for topic_id, index in places:
        topic = by_id.get(topic_id)
        partition = topic.partitions.get(index) if topic is not None else None
        if topic is None or partition is None or not partition.is_reassigning:
            continue
        if not response.topics or response.topics[-1].name != topic.name:
            response.topics.append(
                ListPartitionReassignmentsResponse.OngoingTopicReassignment(name=topic.name)
            )
        response.topics[-1].partitions.append(
            ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
        )
    if len(places) < VISITS_PER_TURN:
        return Result(response)
    return Result(response, continuation=Continuation((response, cursor)))


def _listed_places(view: View, request: ListPartitionReassignmentsRequest) -> Iterator[tuple[bytes, int]]:
    """(topic id, partition id) of every partition of the request whose topic exists."""
    topics = view.image.topics
    if request.topics is None:
        for topic in topics.by_name.values():
            for index in topic.partitions.ids():
                yield topic.id, index
        return
    for asked in request.topics:
        named = topics.get(asked.name)
        if named is not None:
            for index in asked.partition_indexes:
                yield named.id, index
