from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from quorate.metadata import bootstrap
from quorate.metadata import records as r
from quorate.metadata.bootstrap import FIRST_SNAPSHOT_NAME
from quorate.metadata.errors import MetadataError
from quorate.metadata.features import LATEST_STABLE_LEVEL, METADATA_VERSION, default_levels
from quorate.metadata.image import EMPTY
from quorate.metadata.image.builder import apply_records
from quorate.metadata.image.image import EMPTY_WITHOUT_INDEXES
from quorate.metadata.loader import load_snapshot
from quorate.metadata.snapshot import (
    MAX_BATCH_RECORDS,
    SnapshotId,
    frame_batches,
    image_from_snapshot,
    parse_name,
    read_snapshot,
    snapshot_batches,
    snapshot_name,
    write_snapshot,
)
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.protocol.schema import Data
from quorate.records.batch import iter_batches
from quorate.records.control import VotersRecord
from tests.support.golden import ALL_KINDS, NEW_KINDS


def test_names_hold_end_offset_and_epoch() -> None:
    assert snapshot_name(38, 1) == "00000000000000000038-0000000001.checkpoint"
    assert parse_name("00000000000000000038-0000000001.checkpoint") == SnapshotId(38, 1)
    assert parse_name("bootstrap.checkpoint") is None
    assert parse_name("00000000000000000038-0000000001.checkpoint.part") is None


def timestamps(data: bytes) -> list[int]:
    return [header.max_timestamp for header, _ in iter_batches(data)]


@pytest.mark.parametrize("kind", NEW_KINDS)
def test_the_first_snapshot_is_byte_for_byte_that_of_kafka(golden: dict[str, Path], kind: str) -> None:
    directory = golden[kind] / "formatted"
    theirs = (directory / METADATA_DIRECTORY / FIRST_SNAPSHOT_NAME).read_bytes()
    read = read_snapshot(theirs)
    records = bootstrap.bootstrap_records({METADATA_VERSION: 33, **default_levels(33)})
    assert (read.kraft_version, read.voters is None) == ((0, True) if "static" in kind else (1, False))
    ours = bootstrap.encode_first_snapshot(
        records,
        kraft_version=read.kraft_version,
        voters=read.voters,
        now_ms=read.last_contained_timestamp_ms,
    )
    # Each batch of Kafka has the time of its creation. The bytes are equal except for these times and the
    # checksums.
    for (mine, a), (his, b) in zip(iter_batches(ours), iter_batches(theirs), strict=True):
        assert (mine.base_offset, mine.size_bytes, mine.attributes) == (
            his.base_offset,
            his.size_bytes,
            his.attributes,
        )
        assert a[:17] == b[:17]
        assert a[43:] == b[43:]
    assert bootstrap.read_bootstrap(directory) == records


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_bootstrap_records_of_a_directory_that_kafka_4_1_formatted_are_read(
    golden: dict[str, Path], kind: str
) -> None:
    expected = bootstrap.bootstrap_records({METADATA_VERSION: 27, **default_levels(27)})
    assert bootstrap.read_bootstrap(golden[kind] / "formatted") == expected


@pytest.mark.parametrize("kind", NEW_KINDS)
def test_a_snapshot_of_kafka_4_4_has_the_cordoned_directories(golden: dict[str, Path], kind: str) -> None:
    found = sorted((golden[kind] / "data" / METADATA_DIRECTORY).glob("*.checkpoint"))
    image = image_from_snapshot(found[-1].read_bytes(), parse_name(found[-1].name) or SnapshotId(0, 0))
    broker = image.cluster.brokers[1]
    assert broker.cordoned_log_dirs is not None
    assert set(broker.cordoned_log_dirs) <= set(broker.log_dirs)
    assert (image.features.metadata_version, image.features.level("share.version")) == (33, 2)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_snapshots_of_kafka_load(golden: dict[str, Path], kind: str) -> None:
    found = sorted((golden[kind] / "data" / "__cluster_metadata-0").glob("*.checkpoint"))
    image = image_from_snapshot(found[-1].read_bytes(), parse_name(found[-1].name) or SnapshotId(0, 0))
    assert sorted(image.topics.by_name) == ["__consumer_offsets", "__transaction_state", "compact", "plain"]
    assert len(image.topics.by_name["plain"].partitions) == 3
    assert image.configs.get(ConfigResourceType.TOPIC, "plain")["retention.ms"] == "86400000"
    assert (image.features.metadata_version, image.features.level("group.version")) == (27, 1)
    assert image.cluster.brokers[1].endpoint("PLAINTEXT") == ("PLAINTEXT", "127.0.0.1", 29092, 0)
    assert image.producer_ids.next_producer_id == 1000
    assert image.topics.partition_of("plain", 0).elr == (1,)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_an_image_without_indexes_has_the_same_topics(golden: dict[str, Path], kind: str) -> None:
    path = sorted((golden[kind] / "data" / "__cluster_metadata-0").glob("*.checkpoint"))[-1]
    batches = read_snapshot(path.read_bytes()).batches
    indexed = load_snapshot(9, 1, batches)
    image = load_snapshot(9, 1, batches, base=EMPTY_WITHOUT_INDEXES)
    assert image.topics.by_name == indexed.topics.by_name
    assert image.topics.by_id == indexed.topics.by_id
    assert (image.topics.partition_count, image.configs) == (indexed.topics.partition_count, indexed.configs)
    gone = r.RemoveTopicRecord(topic_id=next(iter(image.topics.by_id)))
    after = apply_records(image, [gone], offset=9, epoch=1, timestamp_ms=1).topics
    assert len(after.by_id) == len(image.topics.by_id) - 1
    assert (after.indexed, after.replica_index) == (False, EMPTY.topics.replica_index)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_snapshot_equals_that_of_kafka_except_for_the_order(golden: dict[str, Path], kind: str) -> None:
    path = sorted((golden[kind] / "data" / "__cluster_metadata-0").glob("*.checkpoint"))[-1]
    theirs = read_snapshot(path.read_bytes())
    image = image_from_snapshot(path.read_bytes(), parse_name(path.name) or SnapshotId(0, 0))
    ours = read_snapshot(
        b"".join(
            snapshot_batches(
                image,
                kraft_version=theirs.kraft_version,
                voters=theirs.voters,
                last_contained_timestamp_ms=theirs.last_contained_timestamp_ms,
                now_ms=1,
            )
        )
    )
    mine, his = (sorted(bytes(v) for b in s.batches for v in b.values) for s in (ours, theirs))
    assert mine == his
    assert (ours.voters, ours.last_contained_timestamp_ms) == (
        theirs.voters,
        theirs.last_contained_timestamp_ms,
    )


def test_a_big_snapshot_is_written_in_small_batches(tmp_path: Path) -> None:
    topic_id = bytes([1] * 16)
    values = [r.TopicRecord(name="t", topic_id=topic_id)]
    values += [
        r.PartitionRecord(partition_id=n, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
        for n in range(3000)
    ]  # type: ignore[misc]
    image = apply_records(EMPTY, values, offset=3000, epoch=4, timestamp_ms=1)
    path = tmp_path / snapshot_name(3001, 4)
    voters = VotersRecord(voters=[VotersRecord.Voter(voter_id=1, voter_directory_id=topic_id)])
    size = write_snapshot(
        path, image, kraft_version=1, voters=voters, last_contained_timestamp_ms=7, now_ms=8
    )
    data = path.read_bytes()
    assert size == len(data)
    headers = [header for header, _ in iter_batches(data)]
    whole, rest = divmod(3001, MAX_BATCH_RECORDS)
    counts = [3, *[MAX_BATCH_RECORDS] * whole, rest]
    assert [h.count for h in headers] == [*counts, 1]
    assert [h.base_offset for h in headers] == [0, *itertools.accumulate(counts)]
    assert {h.leader_epoch for h in headers} == {4}
    assert image_from_snapshot(data, SnapshotId(3001, 4)).topics == image.topics


def snapshot_bytes() -> bytes:
    image = apply_records(
        EMPTY, [r.TopicRecord(name="t", topic_id=bytes([1] * 16))], offset=0, epoch=1, timestamp_ms=1
    )
    return b"".join(
        snapshot_batches(image, kraft_version=0, voters=None, last_contained_timestamp_ms=7, now_ms=8)
    )


def test_a_snapshot_cut_anywhere_is_refused() -> None:
    data = snapshot_bytes()
    for cut in range(len(data)):
        with pytest.raises(MetadataError):
            read_snapshot(data[:cut])


def test_a_snapshot_with_a_flipped_byte_is_refused_or_equal() -> None:
    """The checksum of a batch does not cover its offset, length and leader epoch. A flipped length is
    detected by the framing."""
    data = snapshot_bytes()
    values = [bytes(v) for b in read_snapshot(data).batches for v in b.values]
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        try:
            again = read_snapshot(bytes(damaged))
        except MetadataError:
            continue
        assert [bytes(v) for b in again.batches for v in b.values] == values


def test_parts_out_of_order_are_refused() -> None:
    parts = [bytes(batch) for _, batch in iter_batches(snapshot_bytes())]
    for order in ([1, 0, 2], [0, 2, 1], [0, 0, 1, 2], [0, 1], [1, 2], [0, 1, 2, 2]):
        with pytest.raises(MetadataError):
            read_snapshot(b"".join([parts[n] for n in order]))


def test_bootstrap_is_written_and_read(tmp_path: Path) -> None:
    scram = r.UserScramCredentialRecord(
        name="admin", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    written = bootstrap.bootstrap_records(
        {METADATA_VERSION: 27, "group.version": 1, "kraft.version": 1, "share.version": 0}, [scram]
    )
    bootstrap.write_first_snapshot(tmp_path, written, kraft_version=1, voters=None, now_ms=5)
    assert [path.name for path in tmp_path.rglob("*")] == [METADATA_DIRECTORY, FIRST_SNAPSHOT_NAME]
    assert bootstrap.read_bootstrap(tmp_path) == written
    assert bootstrap.metadata_version_of(written) == 27


def test_records_of_the_first_snapshot_come_before_those_of_an_older_bootstrap_file(
    tmp_path: Path, golden: dict[str, Path]
) -> None:
    older = (golden["static"] / "formatted" / "bootstrap.checkpoint").read_bytes()
    (tmp_path / "bootstrap.checkpoint").write_bytes(older)
    for records, level in (([], 27), (bootstrap.default_bootstrap(30), 30)):
        first = encode_snapshot(records)
        (tmp_path / METADATA_DIRECTORY).mkdir(exist_ok=True)
        (tmp_path / METADATA_DIRECTORY / FIRST_SNAPSHOT_NAME).write_bytes(first)
        assert bootstrap.metadata_version_of(bootstrap.read_bootstrap(tmp_path)) == level


def encode_snapshot(records: list[Data]) -> bytes:
    """A first snapshot, which has no records if Kafka before 4.4 wrote it."""
    if records:
        return bootstrap.encode_first_snapshot(records, kraft_version=0, voters=None, now_ms=5)
    batches = frame_batches(
        [], epoch=0, last_contained_timestamp_ms=5, kraft_version=0, voters=None, now_ms=5
    )
    return b"".join(batches)


def test_without_a_bootstrap_file_the_default_metadata_version_is_used(tmp_path: Path) -> None:
    assert bootstrap.metadata_version_of(bootstrap.read_bootstrap(tmp_path)) == LATEST_STABLE_LEVEL


def test_a_damaged_bootstrap_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bootstrap.checkpoint").write_bytes(b"nonsense" * 20)
    with pytest.raises(MetadataError, match=r"bootstrap\.checkpoint"):
        bootstrap.read_bootstrap(tmp_path)


def test_scram_needs_a_metadata_version_that_has_it() -> None:
    with pytest.raises(ValueError, match=r"3\.5-IV2"):
        bootstrap.bootstrap_records(
            {METADATA_VERSION: 10}, [r.UserScramCredentialRecord(name="u", mechanism=1)]
        )
