"""Partitions in encoded form: for any bytes, the result is the same as that of decoding them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import decode_record, encode_record
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import ImageBuilder
from quorate.metadata.image.encoded import decoded, form_of
from quorate.metadata.image.partition_table import PartitionTable
from quorate.metadata.image.writer import image_records
from quorate.metadata.loader import apply_committed
from quorate.metadata.records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from quorate.metadata.snapshot import SnapshotBatch, SnapshotId, image_from_snapshot, snapshot_batches
from quorate.protocol.schema import Data

TOPIC = bytes(range(16))
LEVELS = {0: 16, 1: 17, 2: 27}
"""Version of a PartitionRecord -> a metadata.version under which it is written."""


def partition(rng: random.Random, version: int, partition_id: int = 0, **changes: Any) -> PartitionRecord:
    replicas = rng.sample(range(20), rng.randint(0, 5))
    fields: dict[str, Any] = {
        "partition_id": partition_id,
        "topic_id": TOPIC,
        "replicas": replicas,
        "isr": rng.choice([replicas, replicas[:1], [], replicas[::-1]]),
        "leader": rng.choice([*replicas, -1]),
        "leader_epoch": rng.randrange(1 << 31),
        "partition_epoch": rng.randrange(1 << 31),
    }
    if version:
        fields["directories"] = [rng.choice([bytes(16), bytes([broker]) * 16]) for broker in replicas]
    return PartitionRecord(**{**fields, **changes})


def head(version: int) -> list[bytes]:
    return [
        encode_record(FeatureLevelRecord(name="metadata.version", feature_level=LEVELS[version]), 0),
        encode_record(TopicRecord(name="t", topic_id=TOPIC), 0),
    ]


def loaded(values: list[bytes]) -> MetadataImage:
    """The image after loading these values as the loader does."""
    return apply_committed(
        EMPTY, [SnapshotBatch(0, len(values) - 1, 1, 5, [memoryview(v) for v in values], 0)]
    )


def replayed(values: list[bytes]) -> MetadataImage:
    """The image after decoding and replaying each value."""
    builder = ImageBuilder(EMPTY)
    for offset, value in enumerate(values):
        try:
            record, _ = decode_record(value)
        except MetadataError as error:
            raise error.at(offset) from error.__cause__
        builder.replay(record, offset)
    return builder.finish(offset=len(values) - 1, epoch=1, timestamp_ms=5)


def outcome(make: Any, values: list[bytes]) -> tuple[object, ...]:
    try:
        image = make(values)
    except MetadataError as error:
        return ("refused", str(error))
    topics = image.topics
    tables = [(topic, dict(topic.partitions.items())) for topic in topics.by_id.values()]
    leaders = topics.leader_counts, topics.leaderless_index
    return tables, topics.partition_count, topics.replica_index, leaders, image.unknown_tags


def held(image: MetadataImage) -> list[bool]:
    """Whether each partition is stored in encoded form."""
    return [
        isinstance(entry, bytes)
        for topic in image.topics.by_id.values()
        for _, entry in topic.partitions.entries()
    ]


@pytest.mark.parametrize("version", LEVELS)
def test_usual_partitions_stay_encoded_and_mean_what_their_records_say(version: int) -> None:
    rng = random.Random(version)
    # Partition ids of every kind: in a row, with a gap, and beyond what the index collects as bits.
    ids = [*range(100), 130, 2_047, 2_048, 5_000]
    values = head(version) + [encode_record(partition(rng, version, n), version) for n in ids]
    assert held(loaded(values)) == [True] * len(ids)
    assert outcome(loaded, values) == outcome(replayed, values)
    assert loaded(values) == replayed(values)


@pytest.mark.parametrize("size", [1, 3, 64, 1_000])
def test_partitions_of_an_existing_topic_stay_encoded(size: int) -> None:
    """The topic is in an earlier batch, as in a metadata transaction. Some partitions are written twice."""
    rng = random.Random(size)
    ids = [*range(200), 2_047, 2_048, 5_000, 5_001, 3]
    values = head(2) + [encode_record(partition(rng, 2, n), 2) for n in ids]
    image = EMPTY
    for start in range(0, len(values), size):
        part = [memoryview(value) for value in values[start : start + size]]
        image = apply_committed(image, [SnapshotBatch(start, start + len(part) - 1, 1, 5, part, 0)])
    assert held(image) == [True] * (len(ids) - 1)
    assert outcome(lambda _: image, values) == outcome(replayed, values)


UNUSUAL: dict[str, dict[str, Any]] = {
    "being removed": {
        "replicas": [1, 2],
        "isr": [1],
        "removing_replicas": [2],
        "directories": [bytes(16)] * 2,
    },
    "being added": {"replicas": [1, 2], "isr": [1], "adding_replicas": [2], "directories": [bytes(16)] * 2},
    "recovering": {"leader_recovery_state": 1},
    "with an ELR": {"eligible_leader_replicas": [7]},
    "with a last known ELR": {"last_known_elr": [7]},
    "without directories": {"replicas": [1, 2], "isr": [1], "directories": []},
    "of 200 replicas": {
        "replicas": list(range(200)),
        "isr": list(range(200)),
        "directories": [bytes(16)] * 200,
    },
}


@pytest.mark.parametrize("changes", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_partitions_are_decoded(changes: dict[str, Any]) -> None:
    values = [*head(2), encode_record(partition(random.Random(1), 2, **changes), 2)]
    assert held(loaded(values)) == [False]
    assert outcome(loaded, values) == outcome(replayed, values)


def test_a_partition_with_unknown_tags_is_decoded_and_keeps_them() -> None:
    record = partition(random.Random(1), 2)
    record.unknown_tags = {9: b"x"}
    values = [*head(2), encode_record(record, 2)]
    image = loaded(values)
    assert held(image) == [False]
    assert image.unknown_tags == replayed(values).unknown_tags != {}


REFUSED: dict[str, list[bytes]] = {
    "of no topic": [encode_record(partition(random.Random(1), 2, topic_id=bytes(16)), 2)],
    "with a negative id": [encode_record(partition(random.Random(1), 2, partition_id=-1), 2)],
    "with an id beyond all": [encode_record(partition(random.Random(1), 2, partition_id=1 << 24), 2)],
    "of a topic that was removed": [
        encode_record(RemoveTopicRecord(topic_id=TOPIC), 0),
        encode_record(partition(random.Random(1), 2), 2),
    ],
}


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED)
def test_a_partition_that_cannot_be_replayed_is_refused_with_offset_and_reason(values: list[bytes]) -> None:
    assert outcome(loaded, head(2) + values) == outcome(replayed, head(2) + values)
    with pytest.raises(MetadataError, match=f"offset {len(values) + 1}"):
        loaded(head(2) + values)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2))
def test_modified_bytes_give_the_same_result_as_decoding_them(seed: int, version: int) -> None:
    rng = random.Random(seed)
    value = bytearray(encode_record(partition(rng, version), version))
    for _ in range(rng.randint(1, 3)):
        match rng.randrange(4):
            case 0:
                value[rng.randrange(len(value))] = rng.randrange(256)
            case 1:
                value = value[: rng.randrange(1, len(value) + 1)]
            case 2:
                value += rng.randbytes(rng.randint(1, 5))
            case 3:
                place = rng.randrange(len(value))
                value[place:place] = bytes([rng.choice([0, 1, 2, 127, 128, 255])])
    usual = encode_record(partition(rng, version, 1), version)
    values = [*head(version), bytes(value), usual]
    assert outcome(loaded, values) == outcome(replayed, values)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_runs_of_equal_partitions_give_the_same_result_as_decoding_each(seed: int) -> None:
    """Partitions of two topics with equal numbers of replicas, in any order, some of them twice, and in half
    of the cases one with a modified byte."""
    rng = random.Random(seed)
    other = bytes(range(1, 17))
    values = []
    for _ in range(rng.randint(1, 4)):
        replicas = rng.sample(range(5), rng.randint(1, 3))
        topic_id, first = rng.choice([TOPIC, TOPIC, other]), rng.choice([0, 0, 30, 2_040])
        ids = list(range(first, first + rng.randint(1, 30)))
        if rng.random() < 0.3:
            rng.shuffle(ids)
        if rng.random() < 0.2:
            ids += rng.choices(ids, k=3)
        for number in ids:
            rng.shuffle(replicas)
            record = partition(
                rng, 2, number, topic_id=topic_id, replicas=[*replicas], isr=[*replicas], leader=replicas[0]
            )
            record.directories = [bytes([broker]) * 16 for broker in replicas]
            values.append(encode_record(record, 2))
    if rng.random() < 0.5:
        place = rng.randrange(len(values))
        value = bytearray(values[place])
        value[rng.randrange(len(value))] = rng.randrange(256)
        values[place] = bytes(value)
    before = [*head(2), encode_record(TopicRecord(name="u", topic_id=other), 0)]
    assert outcome(loaded, before + values) == outcome(replayed, before + values)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_changes_to_encoded_partitions_are_those_to_decoded_ones(seed: int) -> None:
    rng = random.Random(seed)
    values = head(2) + [encode_record(partition(rng, 2, n), 2) for n in range(70)]
    for _ in range(40):
        change: Data = PartitionChangeRecord(
            topic_id=TOPIC,
            partition_id=rng.randrange(70),
            isr=rng.choice([None, [1, 2]]),
            leader=rng.choice([-2, -1, 3]),
        )
        if rng.random() < 0.2:  # a whole record again
            change = partition(rng, 2, rng.randrange(70))
        values.append(encode_record(change, 2))
    assert outcome(loaded, values) == outcome(replayed, values)
    in_two = apply_committed(loaded(values[:60]), [SnapshotBatch(60, len(values) - 1, 1, 5, values[60:], 0)])  # type: ignore[arg-type]
    assert in_two.topics == replayed(values).topics


def test_tables_are_compared_by_their_partitions() -> None:
    rng = random.Random(5)
    entries = {n: encode_record(partition(rng, 2, n), 2) for n in range(200)}
    as_bytes = PartitionTable().updated(entries)
    as_images = PartitionTable().updated({n: decoded(value) for n, value in entries.items()})
    mixed = as_bytes.updated({n: decoded(entries[n]) for n in range(0, 200, 3)})
    assert as_bytes == as_images == mixed == as_bytes
    assert list(mixed.changes_since(as_bytes)) == []
    other = mixed.updated({77: decoded(entries[77])._replace(partition_epoch=4)})
    assert other != as_bytes
    assert [(n, old) for n, old, _ in other.changes_since(as_bytes)] == [(77, decoded(entries[77]))]
    assert [n for n, _, _ in as_bytes.changes_since(other)] == [77]
    assert (as_bytes.get(3), as_bytes.get(200), 199 in as_bytes, list(as_bytes)[5]) == (
        as_images[3],
        None,
        True,
        as_images[5],
    )


@pytest.mark.parametrize("level", (16, 17, 24, 27))
def test_a_snapshot_is_the_same_bytes_whether_partitions_are_encoded_or_not(level: int) -> None:
    """This also holds for a snapshot at a higher metadata.version than that of the loaded records."""
    rng = random.Random(level)
    version = 0 if level == 16 else 1
    values = head(version) + [encode_record(partition(rng, version, n), version) for n in range(300)]
    values.append(encode_record(FeatureLevelRecord(name="metadata.version", feature_level=level), 0))

    def written(image: MetadataImage) -> bytes:
        batches = snapshot_batches(
            image, kraft_version=0, voters=None, last_contained_timestamp_ms=5, now_ms=9
        )
        return b"".join(batches)

    assert any(held(loaded(values)))
    assert written(loaded(values)) == written(replayed(values))
    again = image_from_snapshot(written(loaded(values)), SnapshotId(len(values), 1))
    assert again.topics == replayed(values).topics
    assert list(image_records(again)) == list(image_records(replayed(values)))


def test_values_without_the_usual_form_are_not_stored() -> None:
    assert form_of(b"") is None
    assert form_of(b"\x01\x03\x02") is None
    assert form_of(encode_record(TopicRecord(name="t" * 100, topic_id=TOPIC), 0)) is None
