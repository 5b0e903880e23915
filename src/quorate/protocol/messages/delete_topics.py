"""DeleteTopics, API key 20.

Versions
  1  the oldest
  2  the answer is sent before the throttle time is served (KIP-219)
  3  may be answered with TOPIC_DELETION_DISABLED
  4  flexible (KIP-482)
  5  may be answered with THROTTLING_QUOTA_EXCEEDED (KIP-599); response gains responses.error_message
  6  topics by id as well (KIP-516); request gains topics; request loses topic_names; response gains
     responses.topic_id; response: null allowed in responses.name
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, uuid


class DeleteTopicsRequest(Request, key=20, versions="1-6", flexible="4+", listeners={"broker", "controller"}):
    """Deletes topics by their names, from version 6 on also by their ids."""

    class DeleteTopicState(Struct):
        name: str | None = None
        topic_id: uuid = ZERO_UUID

    topics: list[DeleteTopicState] = field(default_factory=list, versions="6+")
    topic_names: list[str] = field(default_factory=list, versions="0-5", ignorable=True)
    timeout_ms: int32 = 0


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible="4+"):
    class DeletableTopicResult(Struct):
        name: str | None = field(default="", nullable="6+")
        topic_id: uuid = field(default=ZERO_UUID, versions="6+", ignorable=True)
        error_code: int16 = 0
        error_message: str | None = field(default=None, versions="5+", ignorable=True)

    throttle_time_ms: int32 = 0
    responses: list[DeletableTopicResult] = field(default_factory=list)
