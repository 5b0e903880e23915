"""Encodes Metadata responses in steps of a few milliseconds and caches them.

A response about ten thousand topics takes 100 ms. Therefore it is encoded in steps, and the event loop
serves other requests in between. All steps read the image that was the latest one when the request
arrived. Encoded topics are cached until they or the cluster change, and responses about all topics until
any topic changes. Requests for the same response share it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from quorate.broker.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from quorate.broker.metadata.cache import MetadataCache
from quorate.protocol.compiler import struct_encoder
from quorate.protocol.encoded import EncodedResponse, EncodedStructs
from quorate.protocol.messages.metadata import MetadataResponse

if TYPE_CHECKING:
    from quorate.metadata.image import ClusterImage, MetadataImage, PartitionImage, TopicImage, TopicsImage

Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition
Steps = Generator[None, None, MetadataResponse]

_STEP_S = 0.003
"""The time of a step. No callback of the event loop should take more than 5 ms."""

_GROUP = 32
"""Topics, or partitions of a large topic, between two reads of the clock: half a millisecond if none of them
is cached."""

_KEPT_STATES = 8_192
"""The number of encoded states of partitions that are cached."""

_INDEX = Struct(">i")
_INDEX_AT = 2
"""The position of the partition index in an encoded partition, behind the error code in all versions."""

_KEPT_BYTES = 64 << 20
"""The size of the cache of encoded topics: about a million partitions."""

_ENTRY_BYTES = 200
"""The approximate overhead of a cached topic."""

_KEPT_ANSWERS_BYTES = 32 << 20
"""The size of the cache of responses about all topics, of all listeners and versions."""


class Shape(NamedTuple):
    """The parameters of a response besides the image."""

    listener: str
    version: int
    topic_operations: bool = False
    cluster_operations: bool = False

    @property
    def of_topics(self) -> tuple[str, int, bool]:
        """The parameters of an encoded topic."""
        return self.listener, self.version, self.topic_operations


_States = dict[int, tuple["PartitionImage", bytes, bytes]]
"""Encoded states of partitions by `id(image)`: the image, which keeps the id from being reused, and the
bytes before and after the partition index. New partitions often share one image."""


class _Topics:
    """Encoded topics and brokers for one state of the cluster. `by_shape[shape][topic id]` is (topic, encoded
    topic)."""

    __slots__ = ("brokers", "by_shape", "bytes", "cluster", "states")

    def __init__(self, cluster: ClusterImage | None) -> None:
        self.cluster = cluster
        self.by_shape: dict[tuple[str, int, bool], dict[bytes, tuple[TopicImage, bytes]]] = {}
        self.bytes = 0
        self.brokers: dict[tuple[str, int], EncodedStructs] = {}
        self.states: dict[tuple[str, int], _States] = {}


class EncodedMetadataResponses:
    """The encoded responses of one broker."""

    def __init__(
        self, metadata: MetadataCache, cluster_id: str, node_id: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._metadata = metadata
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._loop = loop
        self._topics = _Topics(None)
        self._whole: dict[Shape, EncodedResponse | asyncio.Task[EncodedResponse]] = {}
        self._whole_bytes = 0
        self._whole_of: tuple[TopicsImage, ClusterImage] | None = None
        self._making = asyncio.Lock()
        """Held while a response is encoded in steps, so that each turn of the loop has only one step."""

    def all_topics(self, shape: Shape) -> Any:
        """Returns the response about all topics: an EncodedResponse, or a task for it, which callers share
        and must not cancel."""
        image = self._metadata.image
        if (
            self._whole_of is None
            or self._whole_of[0] is not image.topics
            or self._whole_of[1] is not image.cluster
        ):
            self._whole.clear()
            self._whole_bytes = 0
            self._whole_of = (image.topics, image.cluster)
        found = self._whole.get(shape)
        if found is not None:
            return found
        steps = self._steps(image, shape, image.topics.by_name.values())
        try:
            next(steps)
        except StopIteration as end:
            response = EncodedResponse(end.value.encode(shape.version), shape.version)
            self._keep(shape, response)
            return response
        made = (image.topics, image.cluster)
        task = self._whole[shape] = self._loop.create_task(self._finish_whole(made, shape, steps))
        return task

    def some_topics(self, shape: Shape, topics: Iterable[TopicImage | Topic]) -> Any:
        """Returns the response about some topics, or a coroutine for it. `topics` are topics of the latest
        image, or response entries for topics that do not exist. It may be a lazy iterator."""
        steps = self._steps(self._metadata.image, shape, topics)
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        return self._finish(steps)

    async def _finish(self, steps: Steps) -> MetadataResponse:
        async with self._making:
            while True:
                await asyncio.sleep(0)
                try:
                    next(steps)
                except StopIteration as end:
                    response: MetadataResponse = end.value
                    return response

    async def _finish_whole(
        self, made: tuple[TopicsImage, ClusterImage], shape: Shape, steps: Steps
    ) -> EncodedResponse:
        this = asyncio.current_task()
        try:
            response = EncodedResponse((await self._finish(steps)).encode(shape.version), shape.version)
        finally:
            if self._whole.get(shape) is this:
                del self._whole[shape]
        if self._whole_of is not None and self._whole_of[0] is made[0] and self._whole_of[1] is made[1]:
            self._keep(shape, response)
        return response

    def _keep(self, shape: Shape, response: EncodedResponse) -> None:
        if self._whole_bytes + len(response.body) <= _KEPT_ANSWERS_BYTES:
            self._whole[shape] = response
            self._whole_bytes += len(response.body)

    def _steps(self, image: MetadataImage, shape: Shape, topics: Iterable[TopicImage | Topic]) -> Steps:
        """Encodes a response. Yields when the time of a step has elapsed."""
        view = MetadataCache(image)
        version = shape.version
        with_operations = shape.topic_operations and version >= 8
        encode = struct_encoder(MetadataResponse, Topic, version)
        store, kept = self._kept(image, shape)
        states = store.states.setdefault((shape.listener, version), {})
        chunks = EncodedStructs()
        items = iter(topics)
        ends = time.monotonic() + _STEP_S
        while True:
            before = len(chunks)
            for topic in islice(items, _GROUP):
                if isinstance(topic, Topic):
                    if with_operations and topic.name is not None:  # as for an existing topic
                        topic.topic_authorized_operations = TOPIC_OPERATIONS
                    chunks.append(encode(topic))
                    continue
                found = kept.get(topic.id)
                if found is not None and found[0] is topic:
                    chunks.append(found[1])
                    continue
                described = view.metadata_topic(topic)
                if with_operations:
                    described.topic_authorized_operations = TOPIC_OPERATIONS
                partitions = EncodedStructs()
                rest = _encoded_partitions(view, topic, shape, states)
                while len(partitions) < len(topic.partitions):
                    partitions += islice(rest, _GROUP)
                    if len(partitions) < len(topic.partitions) and time.monotonic() >= ends:
                        yield
                        ends = time.monotonic() + _STEP_S
                described.partitions = partitions  # type: ignore[assignment]
                chunk = encode(described)
                chunks.append(chunk)
                store.bytes += len(chunk) + _ENTRY_BYTES
                if store.bytes > _KEPT_BYTES:
                    store.by_shape.clear()  # mostly topics that are gone or have changed
                    store.bytes = 0
                    kept = store.by_shape.setdefault(shape.of_topics, {})
                kept[topic.id] = (topic, chunk)
            if len(chunks) - before < _GROUP:
                break
            if time.monotonic() >= ends:
                yield
                ends = time.monotonic() + _STEP_S
        brokers = store.brokers.get((shape.listener, version))
        if brokers is None:
            encode_broker = struct_encoder(MetadataResponse, MetadataResponse.MetadataResponseBroker, version)
            brokers = EncodedStructs(
                [encode_broker(broker) for broker in view.metadata_brokers(shape.listener)]
            )
            store.brokers[shape.listener, version] = brokers
        response = MetadataResponse(
            brokers=brokers,  # type: ignore[arg-type]
            cluster_id=self._cluster_id,
            controller_id=view.some_alive_broker(self._node_id),
            topics=chunks,  # type: ignore[arg-type]
        )
        if 8 <= version <= 10 and shape.cluster_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response

    def _kept(
        self, image: MetadataImage, shape: Shape
    ) -> tuple[_Topics, dict[bytes, tuple[TopicImage, bytes]]]:
        """Returns the cache for this state of the cluster. For an older state than the latest it is empty and
        is not kept."""
        store = self._topics
        if store.cluster is not image.cluster:
            store = _Topics(image.cluster)
            if image.cluster is self._metadata.image.cluster:
                self._topics = store
        return store, store.by_shape.setdefault(shape.of_topics, {})


def _encoded_partitions(
    view: MetadataCache, topic: TopicImage, shape: Shape, states: _States
) -> Iterator[bytes]:
    """The encoded partitions of a topic. Partitions in the same state differ in their index only."""
    version = shape.version
    encode = struct_encoder(MetadataResponse, Partition, version)
    pack = _INDEX.pack
    for partition_id, image in topic.partitions.items():
        found = states.get(id(image))
        if found is not None:
            yield found[1] + pack(partition_id) + found[2]
            continue
        partition = encode(
            view.metadata_partition(
                partition_id,
                image,
                shape.listener,
                filter_unavailable=version == 0,
                listener_errors=version >= 6,
            )
        )
        if len(states) >= _KEPT_STATES:
            states.clear()
        states[id(image)] = (image, partition[:_INDEX_AT], partition[_INDEX_AT + _INDEX.size :])
        yield partition
