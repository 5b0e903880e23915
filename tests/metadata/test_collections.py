"""Changes of very many partitions leave little to each collection of garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import apply_records
from quorate.metadata.records import FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from quorate.node.process_setup import enable_garbage_collection
from tests.support.garbage import freeze_garbage_collector

TOPICS = 8_000
PORTION = 500


def topic_id(number: int) -> bytes:
    return b"\1" + number.to_bytes(15, "big")


@pytest.fixture
def settings_of_a_node() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    yield
    gc.set_threshold(*before)
    freeze_garbage_collector()


def cluster() -> MetadataImage:
    records = [
        record
        for n in range(TOPICS)
        for record in (
            TopicRecord(name=f"t{n}", topic_id=topic_id(n)),
            PartitionRecord(
                partition_id=0, topic_id=topic_id(n), replicas=[1, 2, 3], isr=[1, 2, 3], leader=1
            ),
        )
    ]
    level = FeatureLevelRecord(name="metadata.version", feature_level=25)
    return apply_records(EMPTY, [level, *records], offset=len(records), epoch=1, timestamp_ms=0)


@pytest.mark.usefixtures("settings_of_a_node")
def test_each_collection_visits_few_objects() -> None:
    """The collector counts allocations minus deallocations, so objects that replace older ones escape it."""
    image = cluster()
    enable_garbage_collection()
    visited: list[int] = []

    def begins(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            young = [gc.get_objects(generation) for generation in range(info["generation"] + 1)]
            visited.append(sum(map(len, young)))

    gc.callbacks.append(begins)
    try:
        for first in range(0, TOPICS, PORTION):
            changes = [
                PartitionChangeRecord(partition_id=0, topic_id=topic_id(n), isr=[2, 3], leader=2)
                for n in range(first, first + PORTION)
            ]
            image = apply_records(image, changes, offset=first, epoch=1, timestamp_ms=0)
        gc.collect(1)
    finally:
        gc.callbacks.remove(begins)
    assert image.topics.leader_count(2) == TOPICS
    assert max(visited) < 20_000
    assert sum(visited) > 3 * TOPICS
