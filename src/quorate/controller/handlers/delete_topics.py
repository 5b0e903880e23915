"""DeleteTopics (20): KIP-516. A RemoveTopicRecord deletes a topic; its replay also removes the
partitions and configurations of the topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from quorate.controller.changes.batched_change import STEP_ITEMS, ChangeSteps, all_hold, in_one_turn, parts_of
from quorate.controller.context import Context, Result, View, bounded
from quorate.metadata.records import RemoveTopicRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from quorate.protocol.schema import Data
from quorate.protocol.uuids import ZERO_UUID

NONE = ErrorCode.NONE


def delete_topics(view: View, request: DeleteTopicsRequest, ctx: Context) -> Result[DeleteTopicsResponse]:
    """Deletes topics by name or by id. Raises INVALID_REQUEST or TOPIC_DELETION_DISABLED if deletion is
    disabled."""
    return in_one_turn(delete_topics_in_steps(view, request, ctx))


def delete_topics_in_steps(
    view: View, request: DeleteTopicsRequest, ctx: Context
) -> ChangeSteps[Result[DeleteTopicsResponse]]:
    """Does the same as `delete_topics` in steps, which yield the records."""
    if not view.config.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST if ctx.api_version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        raise KafkaError(
            code,
            "Topic deletion is disabled.",
            remedy="Set delete.topic.enable=true in the properties of the controllers and restart them.",
        )
    response = DeleteTopicsResponse()
    topics = view.image.topics
    wanted: dict[bytes, str | None] = {}
    """The ids of the topics to delete, with the name from the request, or None if the request has the id."""

    def answer(name: str | None, topic_id: bytes, code: ErrorCode, message: str | None = None) -> None:
        response.responses.append(
            DeleteTopicsResponse.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=message
            )
        )

    names: list[str] = list(request.topic_names)
    ids: list[bytes] = []
    for number, state in enumerate(request.topics):
        if number and not number % STEP_ITEMS:
            yield []
        if state.name is None and state.topic_id == ZERO_UUID:
            answer(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif state.name is None:
            ids.append(state.topic_id)
        elif state.topic_id == ZERO_UUID:
            names.append(state.name)
        else:
            answer(
                state.name,
                state.topic_id,
                ErrorCode.INVALID_REQUEST,
                "You may not specify both topic name and topic id.",
            )
    repeated_ids = {topic_id for topic_id, count in Counter(ids).items() if count > 1}
    for topic_id in sorted(repeated_ids):
        answer(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    for number, topic_id in enumerate(ids):
        if number and not number % STEP_ITEMS:
            yield []
        if topic_id in repeated_ids:
            continue
        if topic_id in topics.by_id:
            wanted[topic_id] = None
        else:
            answer(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    for number, (name, count) in enumerate(Counter(names).items()):
        if number and not number % STEP_ITEMS:
            yield []
        if count > 1:
            answer(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            continue
        named = topics.by_name.get(name)
        if named is None:
            answer(
                name,
                ZERO_UUID,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"This server does not host this topic-partition. There is no topic '{name}'.",
            )
        elif named.id in repeated_ids or named.id in wanted:
            wanted.pop(named.id, None)
            answer(
                name,
                named.id,
                ErrorCode.INVALID_REQUEST,
                "The provided topic name maps to an ID that was already supplied.",
            )
        else:
            wanted[named.id] = name
    records: list[Data] = [RemoveTopicRecord(topic_id=topic_id) for topic_id in wanted]
    bounded(records, "Deleting these topics")
    for topic_id in wanted:
        answer(topics.by_id[topic_id].name, topic_id, NONE)
    yield from parts_of(records)

    def recheck(newer: View) -> Generator[None, None, bool]:
        """Whether all these topics still exist."""
        return all_hold(wanted, newer.image.topics.by_id.__contains__)

    return Result(response, recheck=recheck)
