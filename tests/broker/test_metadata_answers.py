"""Large Metadata responses: made in steps, cached, shared."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.metadata import encoded_responses as metadata_answers
from quorate.metadata.image import MetadataImage, PartitionImage
from quorate.net.dispatch import RequestContext
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse

from .fakes import broker, registration
from .world import Broker, image_of, topic_id_of


@pytest.fixture
def made(tmp_path: Path) -> Any:
    worlds: list[Broker] = []

    def make(image: MetadataImage) -> Broker:
        worlds.append(Broker(tmp_path, image_of({})))
        worlds[-1].metadata.image = image  # seen, but not hosted: thousands of logs are not the subject
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def no_collections() -> Iterator[None]:
    """The garbage collector is off: a collection of all objects of the test run would count as a turn."""
    gc.disable()
    yield
    gc.enable()


def many(topics: int, partitions: int = 1) -> MetadataImage:
    return image_of({f"topic-{n:05d}": {p: registration() for p in range(partitions)} for n in range(topics)})


def named(names: list[str], **flags: bool) -> MetadataRequest:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False, **flags)


def context(version: int) -> RequestContext:
    return RequestContext(ApiKey.METADATA, version, 1, "me", "PLAINTEXT")


def answered(world: Broker, request: MetadataRequest, version: int = 12) -> Any:
    """The response of the handler, awaited if necessary."""
    answer = world.ask(request, version)
    return answer if isinstance(answer, MetadataResponse) else world.wait(answer, ApiKey.METADATA, version)


@pytest.mark.parametrize(
    "image", [lambda: many(6000), lambda: many(1, 8000)], ids=["6000 topics", "8000 partitions"]
)
@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.usefixtures("no_collections")
def test_a_large_response_does_not_block_the_loop(
    made: Any, image: Callable[[], MetadataImage], everything: bool
) -> None:
    world = made(image())
    names = list(world.metadata.image.topics.by_name)
    request = MetadataRequest(topics=None) if everything else named(names)
    asked = MetadataRequest.decode(request.encode(12), 12)
    handler = world.handlers[ApiKey.METADATA]
    handler(context(12), named(["absent"]))  # loads and compiles what is needed
    turns = [time.thread_time()]

    async def measure() -> Any:
        answer = handler(context(12), asked)
        turns.append(time.thread_time())
        if asyncio.iscoroutine(answer) or asyncio.isfuture(answer):
            task = asyncio.ensure_future(answer)
            while not task.done():
                await asyncio.sleep(0)
                turns.append(time.thread_time())
            answer = task.result()
        return answer

    answer = world.coded(world.loop.run_until_complete(measure()), ApiKey.METADATA, 12)
    assert [topic.name for topic in answer.topics] == names
    assert (
        sum(len(topic.partitions) for topic in answer.topics) == world.metadata.image.topics.partition_count
    )
    longest = max(later - earlier for earlier, later in itertools.pairwise(turns))
    assert longest < (turns[-1] - turns[0]) / 3, (
        f"{longest * 1000:.1f} of {(turns[-1] - turns[0]) * 1000:.1f} ms at one go"
    )


@pytest.mark.usefixtures("no_collections")
def test_a_request_of_many_topics_does_not_block_the_loop(made: Any) -> None:
    world = made(many(10))
    names = [f"topic-{n % 20:05d}" for n in range(200_000)]
    asked = MetadataRequest.decode(named(names).encode(12), 12)
    handler = world.handlers[ApiKey.METADATA]
    handler(context(12), named(["absent"]))  # loads and compiles what is needed
    turns = [time.thread_time()]

    async def measure() -> Any:
        task = asyncio.ensure_future(handler(context(12), asked))
        while not task.done():
            turns.append(time.thread_time())
            await asyncio.sleep(0)
        turns.append(time.thread_time())
        return task.result()

    answer = world.coded(world.loop.run_until_complete(measure()), ApiKey.METADATA, 12)
    order = [*range(10, 20), *range(10)]  # those that do not exist come first
    assert [topic.name for topic in answer.topics] == [f"topic-{n:05d}" for n in order]
    longest = max(later - earlier for earlier, later in itertools.pairwise(turns))
    assert longest < (turns[-1] - turns[0]) / 3, (
        f"{longest * 1000:.1f} of {(turns[-1] - turns[0]) * 1000:.1f} ms at one go"
    )


@pytest.mark.parametrize("place", [0, 2500, 4999])
def test_a_request_of_many_topics_gets_the_same_errors_as_a_small_one(made: Any, place: int) -> None:
    world = made(many(1))
    request = named(["topic-00000"] * 5000)
    assert request.topics is not None
    request.topics[place].name = None
    with pytest.raises(KafkaError) as refused:
        answered(world, request, 12)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(14))
def test_a_response_that_is_built_in_steps_is_the_same(
    made: Any, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = {
        f"t{n}": {p: registration(replicas=(1, 9), leader=1 + n % 3) for p in range(n)} for n in range(70)
    }
    world = made(image_of(topics, brokers=(broker(1), broker(2), broker(3, fenced=True))))
    flags = {"include_topic_authorized_operations": True} if version >= 8 else {}
    if 8 <= version <= 10:
        flags["include_cluster_authorized_operations"] = True
    wanted = [MetadataRequest(topics=[] if version == 0 else None, **flags)]
    if version >= 4:
        wanted.append(named([*topics, "absent", "not valid!"], **flags))
    at_once = [answered(made(world.metadata.image), request, version) for request in wanted]
    monkeypatch.setattr(metadata_answers, "_STEP_S", -1.0)
    for _ in range(2):  # made, and kept
        assert [answered(world, request, version) for request in wanted] == at_once
    assert {len(topic.partitions) for topic in at_once[0].topics} == set(range(70))


@pytest.mark.parametrize("version", range(14))
def test_partitions_that_share_their_state_keep_their_own_index(made: Any, version: int) -> None:
    brokers = (broker(1), broker(2), broker(3, fenced=True))

    def answer(state: Any) -> Any:
        topics = {name: {p: state(p) for p in range(70)} for name in ("a", "b")}
        wanted = MetadataRequest(topics=[] if version == 0 else None)
        return answered(made(image_of(topics, brokers=brokers)), wanted, version)

    states = [registration(replicas=(1, 3), leader=1), registration(replicas=(2, 9), leader=9)]
    shared = answer(lambda p: states[p % 2])
    assert shared == answer(lambda p: PartitionImage(**states[p % 2]._asdict()))
    assert [p.partition_index for p in shared.topics[1].partitions] == list(range(70))
    assert [p.leader_id for p in shared.topics[1].partitions] == [1, -1] * 35


def test_requests_for_all_topics_share_one_response(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_answers, "_STEP_S", -1.0)
    world = made(many(200))
    handler = world.handlers[ApiKey.METADATA]
    everything = MetadataRequest(topics=None)
    first, second = handler(context(12), everything), handler(context(12), everything)
    assert first is second
    older = handler(context(4), everything)
    assert older is not first
    answer = world.loop.run_until_complete(first)
    world.loop.run_until_complete(older)
    assert handler(context(12), everything) is answer
    assert handler(context(4), everything) is older.result()


def test_a_request_after_a_change_sees_it(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_answers, "_STEP_S", -1.0)
    world = made(many(200))
    handler = world.handlers[ApiKey.METADATA]
    everything = MetadataRequest(topics=None)
    before = handler(context(12), everything)
    world.turn()
    world.metadata.image = many(201)
    after = handler(context(12), everything)
    assert len(world.wait(before, ApiKey.METADATA, 12).topics) == 200
    assert len(world.wait(after, ApiKey.METADATA, 12).topics) == 201
    assert len(answered(world, everything).topics) == 201
    world.metadata.image = image_of({"topic-00000": {0: registration(leader_epoch=9)}}, brokers=(broker(1),))
    (topic,) = answered(world, everything).topics
    assert topic.partitions[0].leader_epoch == 9


def test_a_topic_changes_while_a_large_response_is_built(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response has the state of one image, and its encoded topics are not used for the newer one."""
    monkeypatch.setattr(metadata_answers, "_STEP_S", -1.0)
    world = made(many(200))
    handler = world.handlers[ApiKey.METADATA]
    before = handler(context(12), MetadataRequest(topics=None))
    world.turn()
    fewer = {f"topic-{n:05d}": {0: registration(leader_epoch=9)} for n in range(200)}
    world.metadata.image = image_of(fewer, brokers=(broker(1), broker(2, fenced=True)))
    newer = answered(world, named(["topic-00199"]))
    assert (newer.topics[0].partitions[0].leader_epoch, len(newer.brokers)) == (9, 1)
    old = world.wait(before, ApiKey.METADATA, 12)
    assert {topic.partitions[0].leader_epoch for topic in old.topics} == {registration().leader_epoch}
    assert len(old.brokers) == 3
    assert {
        topic.partitions[0].leader_epoch for topic in answered(world, MetadataRequest(topics=None)).topics
    } == {9}


def test_the_cache_is_bounded(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_answers, "_KEPT_BYTES", 10_000)
    monkeypatch.setattr(metadata_answers, "_KEPT_ANSWERS_BYTES", 10_000)
    world = made(many(500))
    answers = metadata_answers.EncodedMetadataResponses(world.metadata, "c", 1, world.loop)
    for version in range(14):
        shape = metadata_answers.Shape("PLAINTEXT", version)
        for _ in range(2):
            answer = answers.all_topics(shape)
            if not isinstance(answer, metadata_answers.EncodedResponse):
                answer = world.loop.run_until_complete(answer)
            assert len(world.coded(answer, ApiKey.METADATA, version).topics) == 500
    kept = [chunk for topics in answers._topics.by_shape.values() for _, chunk in topics.values()]
    assert 0 < sum(map(len, kept)) <= 10_000
    assert (
        sum(len(answer.body) for answer in answers._whole.values() if not isinstance(answer, asyncio.Task))
        <= 10_000
    )


def test_topics_by_id_are_encoded_in_steps_too(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_answers, "_STEP_S", -1.0)
    world = made(many(100))
    ids = [topic_id_of(f"topic-{n:05d}") for n in range(100)]
    unique = sorted(set(ids))
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=None, topic_id=i) for i in [*ids, bytes(15) + b"z"]]
    )
    answer = answered(world, request, 13)
    assert [topic.topic_id for topic in answer.topics] == [bytes(15) + b"z", *unique]
