"""Changes of encoded partitions: the same result as that of decoding partition and change."""

from __future__ import annotations

import random
from collections import Counter
from struct import unpack_from
from typing import Any

import pytest

from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import decode_record, encode_record
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import apply_records
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.encoded import (
    count_leaders,
    decoded,
    divide_by_leader,
    epochs_at,
    form_of,
    leader_of,
)
from quorate.metadata.image.encoded_changes import changed
from quorate.metadata.image.topics import bits_of
from quorate.metadata.loader import apply_committed
from quorate.metadata.records import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from quorate.metadata.snapshot import SnapshotBatch

TOPICS = [bytes([n]) * 16 for n in range(1, 4)]
DIRECTORIES = {broker: bytes([broker]) * 16 for broker in range(1, 7)}


def partition(rng: random.Random, topic_id: bytes, partition_id: int, version: int = 1) -> PartitionRecord:
    replicas = rng.sample(range(1, 7), rng.randint(1, 4))
    isr = replicas[: rng.randint(1, len(replicas))]
    record = PartitionRecord(
        partition_id=partition_id, topic_id=topic_id, replicas=replicas, isr=isr, leader=isr[0],
        leader_epoch=rng.randrange(9), partition_epoch=rng.randrange(9),
    )  # fmt: skip
    if version:
        record.directories = [DIRECTORIES[broker] for broker in replicas]
    return record


def change(topic_id: bytes = TOPICS[0], partition_id: int = 0, **fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id, **fields)


def replayed(values: list[bytes], base: MetadataImage = EMPTY) -> MetadataImage:
    """The image after these values in one batch, as the loader replays them."""
    first = base.provenance.offset + 1
    return apply_committed(
        base, [SnapshotBatch(first, first + len(values) - 1, 1, 0, list(map(memoryview, values)), 0)]
    )


def decoded_image(values: list[bytes]) -> MetadataImage:
    """The image after the same records, each of them decoded."""
    return apply_records(
        EMPTY, [decode_record(value)[0] for value in values], offset=len(values) - 1, epoch=1, timestamp_ms=0
    )


USUAL = {
    "a smaller ISR": {"isr": [2, 3]},
    "a larger ISR": {"isr": [1, 2, 3]},
    "no ISR": {"isr": []},
    "another leader": {"leader": 2},
    "no leader": {"leader": -1},
    "the leader repeated": {"leader": 1},
    "ISR and leader": {"isr": [3], "leader": 3},
}
UNUSUAL: dict[str, dict[str, Any]] = {
    "replicas": {"replicas": [1, 2], "directories": [bytes(16)] * 2},
    "a reassignment": {"adding_replicas": [4]},
    "a recovery": {"isr": [2], "leader": 2, "leader_recovery_state": 1},
    "directories": {"directories": [bytes(16)] * 3},
    "eligible leaders": {"isr": [], "leader": -1, "eligible_leader_replicas": [1]},
    "a tag of the future": {"leader": 2, "unknown_tags": {99: b"x"}},
    "nothing": {},
}


def three_replicas(version: int) -> bytes:
    record = PartitionRecord(
        partition_id=0, topic_id=TOPICS[0], replicas=[1, 2, 3], isr=[1, 3], leader=1, leader_epoch=5,
        partition_epoch=7,
    )  # fmt: skip
    if version:
        record.directories = [DIRECTORIES[broker] for broker in (1, 2, 3)]
    return encode_record(record, version)


@pytest.mark.parametrize("version", (0, 1, 2))
@pytest.mark.parametrize("fields", USUAL.values(), ids=USUAL)
def test_a_change_of_isr_and_leader_keeps_the_partition_encoded(version: int, fields: dict[str, Any]) -> None:
    before, value = three_replicas(version), encode_record(change(**fields), version)
    assert form_of(before) is not None
    assert changed(before, value) is not None
    topic = encode_record(TopicRecord(name="t", topic_id=TOPICS[0]), 0)
    image = replayed([topic, before, value])
    assert isinstance(image.topics.by_id[TOPICS[0]].partitions.entry(0), bytes)
    assert image.topics == decoded_image([topic, before, value]).topics


@pytest.mark.parametrize("fields", UNUSUAL.values(), ids=UNUSUAL)
def test_another_change_is_decoded(fields: dict[str, Any]) -> None:
    before, value = three_replicas(2), encode_record(change(**fields), 2)
    assert form_of(before) is not None
    assert changed(before, value) is None
    topic = encode_record(TopicRecord(name="t", topic_id=TOPICS[0]), 0)
    assert replayed([topic, before, value]).topics == decoded_image([topic, before, value]).topics


def test_a_damaged_change_has_the_result_of_decoding_it() -> None:
    before, whole = three_replicas(1), encode_record(change(isr=[3], leader=3), 1)
    topic = encode_record(TopicRecord(name="t", topic_id=TOPICS[0]), 0)
    rng = random.Random(3)
    damaged = [whole[:end] for end in range(3, len(whole))] + [whole + b"\0"]
    for _ in range(300):
        value = bytearray(whole)
        value[rng.randrange(23, len(value))] = rng.randrange(256)
        damaged.append(bytes(value))
    refused = 0
    for value in damaged:
        try:
            expected = decoded_image([topic, before, value]).topics
        except MetadataError:
            refused += 1
            with pytest.raises(MetadataError):
                replayed([topic, before, value])
        else:
            assert replayed([topic, before, value]).topics == expected
    assert 50 < refused < len(damaged) - 50


@pytest.mark.parametrize("seed", range(20))
def test_random_changes_give_the_same_image_and_indexes(seed: int) -> None:
    """Several topics and batches; several changes of one partition in a batch; new partitions among them."""
    rng = random.Random(seed)
    values = [encode_record(TopicRecord(name=f"t{n}", topic_id=t), 0) for n, t in enumerate(TOPICS)]
    values += [encode_record(partition(rng, t, p), 1) for t in TOPICS for p in range(70)]
    batches = [values]
    for _ in range(3):
        batch = []
        for _ in range(60):
            where = {"topic_id": rng.choice(TOPICS), "partition_id": rng.randrange(70)}
            isr = rng.sample(range(1, 7), rng.randint(0, 4))
            fields: dict[str, Any] = rng.choice(
                [
                    {"isr": isr},
                    {"leader": rng.randint(-1, 6)},
                    {"isr": isr, "leader": 4},
                    {"replicas": [6, 5, 4]},
                ]
            )
            if "replicas" in fields:
                fields["directories"] = [DIRECTORIES[broker] for broker in fields["replicas"]]
            batch.append(encode_record(change(**where, **fields), 1))
            if rng.random() < 0.1:
                batch.append(encode_record(partition(rng, **where), 1))
        batches.append(batch)
    image = EMPTY
    for batch in batches:
        image = replayed(batch, image)
    expected = decoded_image([value for batch in batches for value in batch]).topics
    assert image.topics == expected
    assert image.topics.leader_counts == expected.leader_counts
    assert image.topics.leaderless_index == expected.leaderless_index
    assert image.topics.replica_index == expected.replica_index


@pytest.mark.parametrize("encoded", (True, False), ids=("encoded", "decoded"))
@pytest.mark.parametrize("seed", range(5))
def test_the_changes_of_one_broker_are_those_of_its_replicas(seed: int, encoded: bool) -> None:
    rng = random.Random(seed)
    make = replayed if encoded else lambda values, _base=EMPTY: decoded_image(values)
    names = [encode_record(TopicRecord(name=f"t{n}", topic_id=t), 0) for n, t in enumerate(TOPICS)]
    kept = [encode_record(partition(rng, t, p), 1) for t in TOPICS[:2] for p in range(50)]
    created = [encode_record(partition(rng, TOPICS[2], p), 1) for p in range(50)]
    changes = [
        encode_record(change(TOPICS[0], p, isr=rng.sample(range(1, 7), 2), leader=rng.randint(1, 6)), 1)
        for p in range(0, 50, 2)
    ]
    moved = change(TOPICS[0], 1, replicas=[6, 5], directories=[DIRECTORIES[6], DIRECTORIES[5]])
    removed = encode_record(RemoveTopicRecord(topic_id=TOPICS[1]), 0)
    before = names[:2] + kept
    after = [*before, *changes, encode_record(moved, 1), removed, names[2], *created]
    delta = MetadataDelta(make(before), make(after))
    everything = list(delta.partition_changes())
    assert len(everything) > 100
    for broker in range(8):
        own = [c for c in everything if any(p is not None and broker in p.replicas for p in (c.old, c.new))]
        assert list(delta.partition_changes_of(broker)) == own


@pytest.mark.parametrize("seed", range(5))
def test_the_topics_of_several_brokers_come_once(seed: int) -> None:
    rng = random.Random(seed)
    ids = [bytes([n, 9]) * 8 for n in range(60)]
    values = [encode_record(TopicRecord(name=f"t{n}", topic_id=t), 0) for n, t in enumerate(ids)]
    values += [encode_record(partition(rng, t, p), 1) for t in ids for p in range(rng.randint(0, 4))]
    topics = replayed(values).topics
    brokers = (1, 3, 4)
    every = list(topics.topics_of(brokers))
    found = {topic_id: bits for topic_id, bits in every if bits}
    places = {(topic_id, n) for topic_id, bits in found.items() for n in bits_of(bits)}
    assert places == {place for broker in brokers for place in topics.partitions_of(broker)}
    assert len(found) == len([bits for _, bits in every if bits])
    assert len(found) < len(every), "the caller may pause between topics that it has seen"


@pytest.mark.parametrize("version", (0, 1, 2))
@pytest.mark.parametrize("leader", (-1, 0, 255, 2**31 - 1))
def test_the_leader_and_the_epochs_of_an_encoded_partition_have_a_known_position(
    version: int, leader: int
) -> None:
    for replicas in ([], [1], [1, 2, 3], list(range(126))):
        record = PartitionRecord(
            partition_id=0, topic_id=TOPICS[0], replicas=replicas, isr=replicas[:2], leader=leader,
            leader_epoch=5, partition_epoch=7,
        )  # fmt: skip
        if version:
            record.directories = [bytes(16)] * len(replicas)
        value = encode_record(record, version)
        assert form_of(value) is not None
        assert unpack_from(">iii", value, epochs_at(value) - 4) == (leader, 5, 7)
        assert leader_of(value) == leader
        for count in (1, 20):
            assert count_leaders([value] * count) == {leader: count}
            assert count_leaders([value] * count + [decoded(value)]) == {leader: count + 1}
        pairs = [(0, value), (1, decoded(value))]
        assert divide_by_leader(pairs, {leader.to_bytes(4, "big", signed=True)}) == (pairs, [])
        assert divide_by_leader(pairs, {bytes([0, 0, 0, 9])}) == ([], [0, 1])


@pytest.mark.parametrize("seed", range(10))
def test_leaders_that_move_within_a_batch_and_to_nobody_are_counted(seed: int) -> None:
    """The leaders of one change for each partition are counted from the changes, others from the states."""
    rng = random.Random(seed)
    values = [encode_record(TopicRecord(name=f"t{n}", topic_id=t), 0) for n, t in enumerate(TOPICS)]
    values += [encode_record(partition(rng, t, p), 1) for t in TOPICS for p in range(20)]
    image = replayed(values)
    for _ in range(10):
        batch: list[bytes] = []
        for topic_id in rng.sample(TOPICS, 2):
            for partition_id in rng.sample(range(20), rng.randint(1, 8)):
                leader = rng.choice((1, 2, 3, 4, 255, -1)) if rng.random() < 0.3 else rng.randint(1, 4)
                fields: dict[str, Any] = {"leader": leader} if rng.random() < 0.8 else {"isr": [1]}
                batch.append(encode_record(change(topic_id, partition_id, **fields), 1))
        batch += rng.sample(batch, rng.randint(0, 1))
        if rng.random() < 0.3:
            batch.insert(rng.randrange(len(batch)), encode_record(partition(rng, TOPICS[0], 3), 1))
        values += batch
        image = replayed(batch, image)
        every = [p for topic in image.topics.by_id.values() for p in topic.partitions]
        assert dict(image.topics.leader_counts) == Counter([p.leader for p in every])
        assert set(image.topics.leaderless()) == {
            (topic.id, n)
            for topic in image.topics.by_id.values()
            for n, p in topic.partitions.items()
            if p.leader == -1
        }
    assert image.topics == decoded_image(values).topics
