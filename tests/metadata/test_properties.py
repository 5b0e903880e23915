from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from streams import any_record, stream

from quorate.metadata import records as r
from quorate.metadata.features import record_version
from quorate.metadata.framing import decode_record, encode_record
from quorate.metadata.image import EMPTY, MetadataDelta, MetadataImage
from quorate.metadata.image.builder import ImageBuilder, apply_records
from quorate.metadata.image.writer import image_records
from quorate.metadata.json import dump_json, record_from_json, record_json
from quorate.metadata.snapshot import image_from_snapshot, parse_name, snapshot_batches, snapshot_name
from quorate.protocol.schema import Data

SEEDS = st.integers(0, 2**32)


def whole(values: list[Data]) -> MetadataImage:
    return apply_records(EMPTY, values, offset=len(values) - 1, epoch=1, timestamp_ms=5)


@settings(max_examples=80, deadline=None)
@given(SEEDS, st.lists(st.integers(1, 120), max_size=12))
def test_any_split_of_the_same_records_gives_the_same_image(seed: int, cuts: list[int]) -> None:
    values = stream(seed, 120)
    image = EMPTY
    bounds = [0, *sorted({min(cut, len(values)) for cut in cuts}), len(values)]
    for start, stop in pairwise(bounds):
        if stop > start:
            image = apply_records(image, values[start:stop], offset=stop - 1, epoch=1, timestamp_ms=5)
    assert image == whole(values)


@settings(max_examples=80, deadline=None)
@given(SEEDS)
def test_an_image_survives_its_own_records(seed: int) -> None:
    image = whole(stream(seed, 150))
    builder = ImageBuilder(EMPTY)
    for record in image_records(image):
        builder.replay(record, 0)
    assert builder.finish(offset=image.provenance.offset, epoch=1, timestamp_ms=5) == image


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_an_image_survives_a_snapshot_unknown_tags_included(seed: int) -> None:
    image = whole(stream(seed, 150))
    data = b"".join(
        snapshot_batches(image, kraft_version=0, voters=None, last_contained_timestamp_ms=5, now_ms=9)
    )
    name = snapshot_name(image.provenance.offset + 1, 1)
    snapshot_id = parse_name(name)
    assert snapshot_id is not None
    assert image_from_snapshot(data, snapshot_id) == image


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(0, 119), st.integers(1, 40))
def test_a_delta_finds_what_differs_by_its_journal_and_without_it(seed: int, at: int, step: int) -> None:
    values = stream(seed, 160)
    image = EMPTY
    seen: list[MetadataImage] = []
    for start in range(0, len(values), step):
        stop = min(start + step, len(values))
        image = apply_records(image, values[start:stop], offset=stop - 1, epoch=1, timestamp_ms=5)
        seen.append(image)
    old = seen[at % len(seen)]
    delta, scan = MetadataDelta(old, image), MetadataDelta(old, whole(values))
    for found in (delta, scan):
        before, after = old.topics.by_id, image.topics.by_id
        assert set(found.topics_created) == {i for i in after if i not in before}
        assert set(found.topics_deleted) == {i for i in before if i not in after}
        assert set(found.topics_changed) == {i for i in after if i in before and before[i] != after[i]}
        resources = {*old.configs.resources, *image.configs.resources}
        assert set(found.configs_changed) == {
            k for k in resources if old.configs.get(*k) != image.configs.get(*k)
        }
        expected = {
            (topic_id, n)
            for topic_id in {*before, *after}
            for n in range(71)
            if old.topics.partition(topic_id, n) != image.topics.partition(topic_id, n)
        }
        assert {(c.topic.id, c.partition) for c in found.partition_changes()} == expected
        for c in found.partition_changes():
            assert c.old == old.topics.partition(c.topic.id, c.partition)
            assert c.new == image.topics.partition(c.topic.id, c.partition)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_the_indexes_agree_with_the_partitions(seed: int) -> None:
    topics = whole(stream(seed, 150)).topics
    every = [(i, n, p) for i, topic in topics.by_id.items() for n, p in topic.partitions.items()]
    assert topics.partition_count == len(every)
    for broker in range(-1, 6):
        assert sorted(topics.partitions_of(broker)) == sorted(
            (i, n) for i, n, p in every if broker in p.replicas
        )
        assert topics.leader_count(broker) == len([p for _, _, p in every if broker == p.leader])
    assert sorted(topics.leaderless()) == sorted((i, n) for i, n, p in every if p.leader == -1)


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.sampled_from(sorted(r.RECORD_TYPES)))
def test_every_record_survives_its_frame_and_its_json(seed: int, kind: int) -> None:
    rng = random.Random(seed)
    cls = r.RECORD_TYPES[kind]
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        record = any_record(rng, cls, version)
        data = encode_record(record, version)
        assert decode_record(data) == (record, version)
        again, _ = decode_record(memoryview(data))
        shown = record_json(again, version)
        assert dump_json(shown)
        _without_tags(again)
        assert record_from_json(shown) == (again, version)


def _without_tags(value: object) -> None:
    fields = getattr(value, "fields", None)
    if fields is None:
        return
    value.unknown_tags = None  # type: ignore[attr-defined]
    for spec in fields():
        inner = getattr(value, spec.name)
        for item in inner if isinstance(inner, list) else [inner]:
            _without_tags(item)


def test_record_versions_exist() -> None:
    for kind, cls in r.RECORD_TYPES.items():
        for level in range(7, 30):
            assert cls.MIN_VERSION <= record_version(kind, level) <= cls.MAX_VERSION
