"""Metadata answers, encoded a few milliseconds at a time and kept for the next request.

An answer about ten thousand topics takes a tenth of a second to make. It is therefore made in steps,
between which the event loop serves others, from the one image that was the latest when the request
came. Topics stay encoded until they or the cluster change, and whole answers about all topics until any
topic changes; requests for the same answer share it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from quorate.broker.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from quorate.broker.metadata.cache import MetadataCache
from quorate.protocol.compiler import struct_encoder
from quorate.protocol.encoded import EncodedResponse, EncodedStructs
from quorate.protocol.messages.metadata import MetadataResponse

if TYPE_CHECKING:
    from quorate.metadata.image import ClusterImage, MetadataImage, TopicImage, TopicsImage

Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition
Steps = Generator[None, None, MetadataResponse]

_STEP_S = 0.003
"""Work between two turns of the loop: no callback should take more than 5 ms."""

_GROUP = 32
"""Topics, or partitions of a large topic, between two looks at the clock: half a millisecond where
nothing is kept."""

_KEPT_BYTES = 64 << 20
"""Encoded topics that are kept: about a million partitions."""

_ENTRY_BYTES = 200
"""What a kept topic takes besides its encoded bytes, roughly."""

_KEPT_ANSWERS_BYTES = 32 << 20
"""Whole answers that are kept, of all listeners and versions together."""


class Shape(NamedTuple):
    """What else besides the image decides how an answer looks."""

    listener: str
    version: int
    topic_operations: bool = False
    cluster_operations: bool = False

    @property
    def of_topics(self) -> tuple[str, int, bool]:
        """The part of it that decides how a topic looks."""
        return self.listener, self.version, self.topic_operations


class _Topics:
    """Encoded topics and brokers, valid for one state of the cluster: `by_shape[shape][topic id]` is
    (topic, encoded)."""

    __slots__ = ("brokers", "by_shape", "bytes", "cluster")

    def __init__(self, cluster: ClusterImage | None) -> None:
        self.cluster = cluster
        self.by_shape: dict[tuple[str, int, bool], dict[bytes, tuple[TopicImage, bytes]]] = {}
        self.bytes = 0
        self.brokers: dict[tuple[str, int], EncodedStructs] = {}


class EncodedMetadataResponses:
    """Makes the answers of one broker."""

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
        """Held while an answer is made in steps, so that there is one step in a turn of the loop,
        however many wait."""

    def all_topics(self, shape: Shape) -> Any:
        """The answer about all topics: an EncodedResponse, or a task for one, which must not be cancelled."""
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
        """The answer about these topics (those that do not exist as they are to be told): a response or
        a coroutine. The topics are those of the latest image; `topics` may be an iterator that looks
        them up one by one."""
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
        """Makes an answer; yields where others should have their turn."""
        view = MetadataCache(image)
        version = shape.version
        with_operations = shape.topic_operations and version >= 8
        encode = struct_encoder(MetadataResponse, Topic, version)
        store, kept = self._kept(image, shape)
        chunks = EncodedStructs()
        items = iter(topics)
        ends = time.monotonic() + _STEP_S
        while True:
            before = len(chunks)
            for topic in islice(items, _GROUP):
                if isinstance(topic, Topic):
                    if with_operations and topic.name is not None:  # allowed to do all that, were it there
                        topic.topic_authorized_operations = TOPIC_OPERATIONS
                    chunks.append(encode(topic))
                    continue
                found = kept.get(topic.id)
                if found is not None and found[0] is topic:
                    chunks.append(found[1])
                    continue
                told = view.metadata_topic(topic)
                if with_operations:
                    told.topic_authorized_operations = TOPIC_OPERATIONS
                partitions = view.metadata_partitions(
                    topic, shape.listener, filter_unavailable=version == 0, listener_errors=version >= 6
                )
                if len(topic.partitions) <= _GROUP:
                    told.partitions = list(partitions)
                else:
                    encoded = EncodedStructs()
                    for _ in self._large_topic(partitions, version, encoded):
                        if time.monotonic() >= ends:
                            yield
                            ends = time.monotonic() + _STEP_S
                    told.partitions = encoded  # type: ignore[assignment]
                chunk = encode(told)
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

    @staticmethod
    def _large_topic(
        partitions: Iterator[Partition], version: int, encoded: EncodedStructs
    ) -> Iterator[None]:
        """Encodes the partitions, a group at a time."""
        encode = struct_encoder(MetadataResponse, Partition, version)
        while group := [encode(partition) for partition in islice(partitions, _GROUP)]:
            encoded += group
            yield

    def _kept(
        self, image: MetadataImage, shape: Shape
    ) -> tuple[_Topics, dict[bytes, tuple[TopicImage, bytes]]]:
        """Where topics encoded under this state of the cluster are kept; for an older state than the
        latest, nowhere."""
        store = self._topics
        if store.cluster is not image.cluster:
            store = _Topics(image.cluster)
            if image.cluster is self._metadata.image.cluster:
                self._topics = store
        return store, store.by_shape.setdefault(shape.of_topics, {})
