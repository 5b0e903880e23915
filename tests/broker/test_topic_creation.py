"""The automatic creation of topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quorate.broker.topic_creation import TopicCreator
from quorate.config.kafka_config import KafkaConfig
from quorate.metadata.image import EMPTY
from quorate.net.dispatch import RequestContext
from quorate.net.errors import RequestTimedOut
from quorate.protocol.api import ApiKey, decode_request
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.create_topics import CreateTopicsResponse

from .controllers import run
from .world import PROPERTIES, image_of


class Publisher:
    """Metadata that gets the topic when the channel has created it."""

    def __init__(self) -> None:
        self.image = EMPTY

    async def wait_until(self, condition: Any, timeout_s: float) -> bool:
        return bool(condition(self.image))


class Channel:
    """A controller that creates a topic, rejects it, or does not respond."""

    api_versions = None

    def __init__(self, publisher: Publisher, error: ErrorCode | None = ErrorCode.NONE) -> None:
        self.publisher = publisher
        self.error = error
        self.plain: list[Any] = []
        self.forwarded: list[tuple[RequestContext, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, request: Any, timeout_s: float) -> Any:
        self.plain.append(request)
        return await self._answer(request)

    async def forward_frame(
        self, context: RequestContext, request: Any, frame: bytes, timeout_s: float
    ) -> Any:
        self.forwarded.append((context, decode_request(frame)[1]))
        return await self._answer(request)

    async def _answer(self, request: Any) -> Any:
        await self.gate.wait()
        if self.error is None:
            raise RequestTimedOut("silent")
        names = [topic.name for topic in request.topics]
        if self.error == ErrorCode.NONE:
            self.publisher.image = image_of(
                {name: {} for name in [*self.publisher.image.topics.by_name, *names]}
            )
        result = CreateTopicsResponse.CreatableTopicResult
        return CreateTopicsResponse(topics=[result(name=name, error_code=self.error) for name in names])


def creator(error: ErrorCode | None = ErrorCode.NONE) -> tuple[TopicCreator, Channel]:
    publisher = Publisher()
    channel = Channel(publisher, error)
    config = KafkaConfig(PROPERTIES | {"num.partitions": "5", "offsets.topic.num.partitions": "7"})
    loop = asyncio.get_running_loop()
    return TopicCreator(config, channel, publisher, loop), channel  # type: ignore[arg-type]


def test_a_clients_topic_is_created_in_its_name_with_the_defaults():
    async def body() -> None:
        make, channel = creator()
        context = RequestContext(int(ApiKey.METADATA), 12, 4, "me", "PLAINTEXT", principal="User:alice")
        await make.create("t", context)
        ((inner, request),) = channel.forwarded
        assert (inner.api_key, inner.principal, inner.correlation_id) == (
            int(ApiKey.CREATE_TOPICS),
            "User:alice",
            4,
        )
        (topic,) = request.topics
        assert (topic.name, topic.num_partitions, topic.replication_factor, topic.configs) == ("t", 5, 1, [])

    run(body)


@pytest.mark.parametrize(
    ("name", "partitions", "configs"),
    [
        (
            "__consumer_offsets",
            7,
            {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
        ),
        (
            "__transaction_state",
            50,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "2",
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            },
        ),
    ],
)
def test_internal_topics_have_settings_of_their_own(name, partitions, configs):
    async def body() -> None:
        make, channel = creator()
        await make.create(name)
        (topic,) = channel.plain[0].topics
        assert (topic.num_partitions, topic.replication_factor) == (partitions, 3)
        assert {config.name: config.value for config in topic.configs} == configs

    run(body)


def test_concurrent_requests_share_one_creation():
    async def body() -> None:
        make, channel = creator()
        channel.gate.clear()
        waiting = [make.create("t"), make.create("t")]
        await asyncio.sleep(0)
        waiting.append(make.create("t"))
        channel.gate.set()
        await asyncio.gather(*waiting)
        assert len(channel.plain) == 1

    run(body)


def test_a_client_that_gives_up_does_not_stop_the_creation():
    async def body() -> None:
        make, channel = creator()
        channel.gate.clear()
        impatient, patient = make.create("t"), make.create("t")
        await asyncio.sleep(0)
        impatient.cancel()
        channel.gate.set()
        await patient
        assert "t" in channel.publisher.image.topics.by_name

    run(body)


@pytest.mark.parametrize(
    "error", [ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.TOPIC_ALREADY_EXISTS, None]
)
def test_a_failed_creation_raises_nothing_and_can_be_retried(error):
    async def body() -> None:
        make, channel = creator(error)
        await make.create("t")
        await make.create("t")
        assert len(channel.plain) == 2

    run(body)


def test_many_topics_are_created_with_few_requests():
    async def body() -> None:
        make, channel = creator()
        names = [f"t{number}" for number in range(250)]
        (creation,) = make.create_all(names)
        await creation
        assert [len(request.topics) for request in channel.plain] == [100, 100, 50]
        assert set(channel.publisher.image.topics.by_name) == set(names)

    run(body)


def test_requests_for_many_topics_are_sent_one_after_the_other():
    async def body() -> None:
        make, channel = creator()
        channel.gate.clear()
        (creation,) = make.create_all([f"t{number}" for number in range(250)])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(channel.plain) == 1
        channel.gate.set()
        await creation

    run(body)


def test_a_creation_of_many_topics_ends_with_the_first_request_that_is_not_answered():
    async def body() -> None:
        make, channel = creator(None)
        names = [f"t{number}" for number in range(250)]
        await make.create_all(names)[0]
        assert len(channel.plain) == 1
        channel.error = ErrorCode.NONE
        await make.create_all(names)[0]
        assert set(channel.publisher.image.topics.by_name) == set(names)

    run(body)


def test_topics_of_a_creation_under_way_are_not_created_twice():
    async def body() -> None:
        make, channel = creator()
        channel.gate.clear()
        first = make.create_all(["a", "b"])
        both = make.create_all(["b", "c"])
        await asyncio.sleep(0)
        channel.gate.set()
        await asyncio.gather(*first, *both)
        assert [[topic.name for topic in request.topics] for request in channel.plain] == [["a", "b"], ["c"]]

    run(body)
