"""Metadata (3), versions 0 to 13.

0 no topics means all topics · 1 null means all topics · 4 auto creation can be declined · 6
LISTENER_NOT_FOUND · 8 authorized operations · 9 start time of brokers in a tagged field of Quorate · 10
topic ids in responses · 12 requests by topic id · 13 a top-level error.

If a topic is created automatically, the response waits for a short time until this broker has applied the
creation. Kafka does not wait, and the client retries.
"""

from __future__ import annotations

import asyncio
from inspect import iscoroutine
from itertools import chain
from typing import TYPE_CHECKING, Any

from quorate.broker.metadata.cache import unknown_topic_error
from quorate.broker.metadata.encoded_responses import EncodedMetadataResponses, Shape
from quorate.broker.metadata.frame_answers import LARGEST_BYTES, FrameAnswers
from quorate.broker.topic_names import is_internal
from quorate.protocol.api import ApiKey
from quorate.protocol.encoded import EncodedResponse
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext

_CREATION_WAIT_S = 1.0
"""How long a response may wait for automatic creation: far more than it takes, and far less than the request
timeouts of clients."""

_MOST_PARTITIONS = 10_000
"""The number of partitions that one CreateTopics may create. Kafka creates all missing topics of a request
with one CreateTopics, which is then rejected completely."""

_AT_ONCE = 2000
"""Topics of a request that are processed in one turn of the event loop: one to two milliseconds."""

Wanted = MetadataRequest.MetadataRequestTopic


class MetadataHandler:
    """Describes brokers, topics and leaders."""

    __slots__ = ("_answers", "_frames", "_services", "answer_frame")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._frames = FrameAnswers(services.metadata)
        self.answer_frame = self._frames.answer
        self._answers = EncodedMetadataResponses(
            services.metadata, services.cluster_id, services.node_id, services.loop
        )

    def __call__(self, context: RequestContext, request: MetadataRequest) -> Any:
        version = context.api_version
        wanted = request.topics
        everything = wanted is None or (version == 0 and not wanted)
        if everything:
            return self._kept(context, self._answers.all_topics(_shape(context, request)))
        assert wanted is not None
        if len(wanted) > _AT_ONCE:
            return self._many(context, request, wanted)
        _check(wanted, version)
        ids = {topic.topic_id for topic in wanted if topic.topic_id != ZERO_UUID}
        names = dict.fromkeys([topic.name for topic in wanted if topic.name is not None])
        return self._respond(context, request, ids, names)

    async def _many(self, context: RequestContext, request: MetadataRequest, wanted: list[Wanted]) -> Any:
        """Answers a request for many topics, some thousand in each turn of the event loop. The elements of
        the request are freed as they are read, because freeing all at once would take long, too."""
        for begin in range(0, len(wanted), _AT_ONCE):
            _check(wanted[begin : begin + _AT_ONCE], context.api_version)
            await asyncio.sleep(0)
        ids: set[bytes] = set()
        names: dict[str, None] = {}
        wanted.reverse()
        while wanted:
            part = wanted[-_AT_ONCE:]
            del wanted[-_AT_ONCE:]
            ids.update([topic.topic_id for topic in part if topic.topic_id != ZERO_UUID])
            names.update(dict.fromkeys([topic.name for topic in reversed(part) if topic.name is not None]))
            await asyncio.sleep(0)
        answer = self._respond(context, request, ids, names)
        return await answer if iscoroutine(answer) else answer

    def _respond(
        self, context: RequestContext, request: MetadataRequest, ids: set[bytes], names: dict[str, None]
    ) -> Any:
        """Answers a request by topic ids if it has any, else by names."""
        services = self._services
        version = context.api_version
        if ids:
            by_id = services.metadata.image.topics.by_id
            ordered = sorted(ids)
            answer = self._answers.some_topics(
                _shape(context, request),
                chain(
                    (
                        MetadataResponse.MetadataResponseTopic(
                            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=i
                        )
                        for i in ordered
                        if i not in by_id
                    ),
                    (by_id[i] for i in ordered if i in by_id),
                ),
            )
            return self._kept(context, answer)
        missing = [name for name in names if services.metadata.topic(name) is None]
        may_create = services.config.auto_create_topics_enable and (
            version < 4 or request.allow_auto_topic_creation
        )
        if missing and may_create:
            creatable = [
                name for name in missing if unknown_topic_error(name) != ErrorCode.INVALID_TOPIC_EXCEPTION
            ]
            if creatable and len(creatable) * services.config.num_partitions <= _MOST_PARTITIONS:
                return self._create(context, request, list(names), creatable)
        answer = self._named(context, request, list(names))
        # The response about a topic that does not exist also depends on the broker's configuration.
        return answer if missing else self._kept(context, answer)

    def _kept(self, context: RequestContext, answer: Any) -> Any:
        """Returns the answer, and keeps it for equal requests unless it is awaitable."""
        version = context.api_version
        if isinstance(answer, EncodedResponse):
            self._frames.keep(context, answer.body)
        elif isinstance(answer, MetadataResponse) and context.frame_size <= LARGEST_BYTES:
            answer = EncodedResponse(answer.encode(version), version)
            self._frames.keep(context, answer.body)
        return answer

    async def _create(
        self, context: RequestContext, request: MetadataRequest, names: list[str], creatable: list[str]
    ) -> Any:
        creations = self._services.creator.create_all(creatable, context)
        await asyncio.wait(creations, timeout=_CREATION_WAIT_S)
        answer = self._named(context, request, names)
        return await answer if iscoroutine(answer) else answer

    def _named(self, context: RequestContext, request: MetadataRequest, names: list[str]) -> Any:
        """Answers a request by names. Topics that do not exist come first in the response."""
        by_name = self._services.metadata.image.topics.by_name
        return self._answers.some_topics(
            _shape(context, request),
            chain(
                (
                    MetadataResponse.MetadataResponseTopic(
                        error_code=unknown_topic_error(name), name=name, is_internal=is_internal(name)
                    )
                    for name in names
                    if name not in by_name
                ),
                (by_name[name] for name in names if name in by_name),
            ),
        )


def _check(wanted: list[Wanted], version: int) -> None:
    """Raises INVALID_REQUEST if a topic has a name or an id that the version does not allow."""
    for topic in wanted:
        if topic.name is None and topic.topic_id == ZERO_UUID and version >= 12:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "A topic is requested by its name or by its id; one has neither"
            )
        if version < 12 and topic.name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic name can not be null for version {version}")
        if version < 12 and topic.topic_id != ZERO_UUID:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Topic IDs are not supported in requests for version {version}"
            )


def _shape(context: RequestContext, request: MetadataRequest) -> Shape:
    version = context.api_version
    return Shape(
        context.listener,
        version,
        version >= 8 and request.include_topic_authorized_operations,
        8 <= version <= 10 and request.include_cluster_authorized_operations,
    )


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {int(ApiKey.METADATA): MetadataHandler(services)}
