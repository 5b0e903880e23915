"""The records of `__consumer_offsets`: encoding, decoding, logs of Apache Kafka, invalid bytes, and the
partition of a group."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.coordinators import loader as coordinator_loader
from quorate.broker.coordinators.group.config import GroupCoordinatorConfig
from quorate.broker.coordinators.group.model import (
    GroupRecord,
    OffsetAndMetadata,
    OffsetRecord,
    StoredGroup,
    StoredMember,
    UnsupportedGroupRecord,
    UnsupportedGroupType,
)
from quorate.broker.coordinators.group.record_serde import decode_record, encode_record
from quorate.broker.coordinators.group.shard import GroupCoordinatorShard
from quorate.broker.coordinators.loader import CoordinatorLoader
from quorate.broker.coordinators.partitioning import java_string_hash, partition_for
from quorate.broker.coordinators.records import OffsetCommitKey, OffsetCommitValue
from quorate.broker.coordinators.shard import UnknownRecordTypeError
from quorate.log.scheduler import run_steps
from quorate.protocol.errors import DecodeError
from quorate.records.batch import build_batch, decode_records, iter_batches
from tests.broker.coordinators.client import Turns
from tests.log.logs import DIRECTORY_IDS, NOW, TOPIC_ID, manager, open_log
from tests.support.golden import ALL_KINDS, unpack_golden

text = st.text(max_size=30)
offset_records = st.builds(
    OffsetRecord,
    group_id=text,
    topic=text,
    partition=st.integers(0, 2**31 - 1),
    value=st.none()
    | st.builds(
        OffsetAndMetadata,
        offset=st.integers(-1, 2**63 - 1),
        leader_epoch=st.integers(-1, 2**31 - 1),
        metadata=text | st.text("é", min_size=60, max_size=130),
        commit_timestamp_ms=st.integers(-1, 2**62),
        topic_id=st.just(bytes(16)) | st.binary(min_size=16, max_size=16),
        expire_timestamp_ms=st.none(),
        record_offset=st.just(-1),
    ),
)
expiring_offset_records = st.builds(
    OffsetRecord,
    group_id=text,
    topic=text,
    partition=st.integers(0, 2**31 - 1),
    value=st.builds(
        OffsetAndMetadata,
        offset=st.integers(-1, 2**63 - 1),
        leader_epoch=st.integers(-1, 2**31 - 1),
        metadata=text,
        commit_timestamp_ms=st.integers(-1, 2**62),
        topic_id=st.binary(min_size=16, max_size=16),
        expire_timestamp_ms=st.integers(1, 2**62),
        record_offset=st.just(-1),
    ),
)
members = st.builds(
    StoredMember,
    member_id=text,
    instance_id=st.none() | text,
    client_id=text,
    client_host=text,
    rebalance_timeout_ms=st.integers(-1, 2**31 - 1),
    session_timeout_ms=st.integers(0, 2**31 - 1),
    subscription=st.binary(max_size=40),
    assignment=st.binary(max_size=40),
)
group_records = st.builds(
    GroupRecord,
    group_id=text,
    value=st.none()
    | st.builds(
        StoredGroup,
        protocol_type=text,
        generation=st.integers(-1, 2**31 - 1),
        protocol=st.none() | text,
        leader=st.none() | text,
        state_timestamp_ms=st.integers(-1, 2**62),
        members=st.lists(members, max_size=3).map(tuple),
    ),
)


@given(offset_records | group_records)
def test_records_are_decoded_from_their_bytes(record: OffsetRecord | GroupRecord) -> None:
    assert decode_record(*encode_record(record)) == record


@given(offset_records | expiring_offset_records)
def test_offsets_are_encoded_by_their_schema(record: OffsetRecord) -> None:
    key, value = encode_record(record)
    wanted = OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
    assert key == b"\0\1" + wanted.encode(0)
    if record.value is None:
        assert value is None
        return
    offset, leader_epoch, metadata, timestamp_ms, expires_ms, topic_id, _ = record.value
    version = 4 if expires_ms is None else 1
    message = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=timestamp_ms,
        expire_timestamp=expires_ms or -1,
        topic_id=topic_id,
    )
    assert value == version.to_bytes(2, "big") + message.encode(version)


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_invalid_bytes_raise_one_kind_of_error(key: bytes, value: bytes | None) -> None:
    try:
        decode_record(key, value)
    except (DecodeError, UnknownRecordTypeError):
        pass


@given(offset_records | group_records, st.data())
def test_truncated_records_raise_one_kind_of_error(
    record: OffsetRecord | GroupRecord, data: st.DataObject
) -> None:
    key, value = encode_record(record)
    cut = data.draw(st.integers(0, len(key) - 1))
    with pytest.raises((DecodeError, UnknownRecordTypeError)):
        decode_record(key[:cut], value)
    if value is not None and len(value) > 2:
        with pytest.raises(DecodeError):
            decode_record(key, value[: data.draw(st.integers(0, 1))])


@pytest.mark.parametrize(
    ("kind", "group_type", "member"),
    [
        (3, UnsupportedGroupType.CONSUMER, None),
        (5, UnsupportedGroupType.CONSUMER, "m"),
        (8, UnsupportedGroupType.CONSUMER, None),
        (16, UnsupportedGroupType.CONSUMER, None),
        (10, UnsupportedGroupType.SHARE, "m"),
        (15, UnsupportedGroupType.SHARE, None),
        (19, UnsupportedGroupType.STREAMS, "m"),
        (23, UnsupportedGroupType.STREAMS, None),
    ],
)
def test_foreign_records_are_kept_byte_for_byte(
    kind: int, group_type: UnsupportedGroupType, member: str | None
) -> None:
    key = kind.to_bytes(2, "big") + b"\0\1g\0\1m"
    record = decode_record(key, b"\0\0anything")
    assert record == UnsupportedGroupRecord("g", group_type, kind, key, b"\0\0anything", member)
    assert encode_record(record) == (key, b"\0\0anything")


def test_unknown_record_types_are_named() -> None:
    with pytest.raises(UnknownRecordTypeError, match="77"):
        decode_record(b"\0\x4d\0\1g", None)


def test_unknown_later_versions_are_refused() -> None:
    with pytest.raises(DecodeError, match="version 5"):
        decode_record(b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\5")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", 0),
        ("a", 97),
        ("g1", 3242),
        ("console-consumer-12345", 158455506),
        ("polygenelubricants", -(2**31)),
        ("grüße", 98768023),
        ("\U0001f600", 1772899),
    ],
)
def test_strings_hash_as_in_java(name: str, value: int) -> None:
    assert java_string_hash(name) == value


def test_the_hash_without_an_absolute_value_counts_as_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_a_large_batch_is_loaded_in_several_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of the largest size has thousands of offsets, which would hold the event loop too long."""
    monkeypatch.setattr(coordinator_loader, "RECORDS_AT_ONCE", 10)
    log = open_log(tmp_path)
    records = [OffsetRecord("g", "t", p, OffsetAndMetadata(p)) for p in range(100)]
    log.append_as_leader(build_batch([(*encode_record(r), (), 1) for r in records]), 0, 1)
    shard = GroupCoordinatorShard(GroupCoordinatorConfig())
    loader = CoordinatorLoader("GroupCoordinator", shard, decode_record)
    counted = Turns()
    assert asyncio.run(counted.during(loader.load(lambda: log))) == 100
    assert counted.count >= 100 / 10
    assert {key[1]: value.offset for key, value in shard.state.offsets["g"].items()} == {
        p: p for p in range(100)
    }


def golden_logs(tmp_path: Path, kind: str, state: str) -> list[Path]:
    unpack_golden(kind, tmp_path, under=f"{state}/__consumer_offsets-")
    return sorted(tmp_path.rglob("__consumer_offsets-*/*.log"))


@pytest.mark.parametrize("state", ["data", "running"])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_records_of_kafka_are_loaded_and_encoded_to_the_same_bytes(
    tmp_path: Path, kind: str, state: str
) -> None:
    found = {}
    for path in golden_logs(tmp_path, kind, state):
        shard = GroupCoordinatorShard(GroupCoordinatorConfig())
        loader = CoordinatorLoader("GroupCoordinator", shard, decode_record)
        data = path.read_bytes()
        loader.replay_bytes(data, 0)
        for group_id, offsets in shard.state.offsets.items():
            found[group_id] = {key: value.offset for key, value in offsets.items()}
            assert partition_for(group_id, 3) == int(path.parent.name.rpartition("-")[2])
        for header, batch in iter_batches(data):
            if header.is_control:
                continue
            for record in decode_records(batch):
                assert record.key is not None
                key, value = encode_record(decode_record(record.key, record.value))
                assert (key, value) == (record.key, record.value)
    assert "g1" in found
    assert {topic for topic, _ in found["g1"]} == {"plain"}


def test_a_load_yields_to_the_event_loop_between_slices(tmp_path: Path) -> None:
    from quorate.records.batch import build_batch
    from tests.broker.coordinators.fakes import OFFSETS, FakeClock, Replicas

    turns = 0

    async def run() -> None:
        nonlocal turns
        replicas = Replicas(tmp_path, FakeClock())
        replicas.lead(0)
        for index in range(300):
            record = OffsetRecord("g", "t" * 40, index, OffsetAndMetadata(index))
            replicas.append_internal(OFFSETS, 0, build_batch([(*encode_record(record), (), 1)] * 20))
        shard = GroupCoordinatorShard(GroupCoordinatorConfig())
        loader = CoordinatorLoader("GroupCoordinator", shard, decode_record)
        work = asyncio.ensure_future(loader.load(lambda: replicas.log(0)))
        while not work.done():
            turns += 1
            await asyncio.sleep(0)
        assert await work == 6000
        assert len(shard.state.offsets["g"]) == 300
        replicas.logs.close(broker_epoch=1)

    asyncio.run(run())
    assert turns >= 3


def test_a_log_whose_end_was_compacted_away_is_loaded(tmp_path: Path) -> None:
    """Kafka's cleaner may leave segments without records below the end of the log."""
    from quorate.records.batch import build_batch
    from tests.broker.coordinators.fakes import OFFSETS, FakeClock, Replicas

    directory = tmp_path / f"{OFFSETS}-0"

    async def run() -> None:
        replicas = Replicas(tmp_path, FakeClock())
        replicas.lead(0)
        replicas.append_internal(
            OFFSETS, 0, build_batch([(*encode_record(GroupRecord("g", None)), (), 1)] * 2)
        )
        replicas.logs.close(broker_epoch=1)
        for base in (0, 2):
            for index in directory.glob(f"{base:020d}.*"):
                index.unlink()
            (directory / f"{base:020d}.log").touch()
        replicas = Replicas(tmp_path, FakeClock())
        replicas.logs.load(lambda _: {"cleanup.policy": "compact"})
        replicas.lead(0)
        assert (replicas.log(0).log_start_offset, replicas.log(0).log_end_offset) == (0, 2)
        shard = GroupCoordinatorShard(GroupCoordinatorConfig())
        assert (
            await CoordinatorLoader("GroupCoordinator", shard, decode_record).load(lambda: replicas.log(0))
            == 2
        )
        assert not shard.state.groups
        replicas.logs.close(broker_epoch=1)

    asyncio.run(run())


def test_a_load_continues_in_the_directory_to_which_the_log_moves_meanwhile(tmp_path: Path) -> None:
    """The old directory is removed after `file.delete.delay.ms`, which a long load may outlast.

    The missing files must not be taken for a failure of the log directory.
    """
    logs = manager(tmp_path / "a", tmp_path / "b")
    logs.load()
    log = logs.get_or_create("__consumer_offsets", 0, TOPIC_ID, directory_id=DIRECTORY_IDS[0])
    for offset in range(20):
        record = OffsetRecord("g", "t", offset, OffsetAndMetadata(offset, metadata="x" * 30_000))
        log.append_as_leader(build_batch([(*encode_record(record), (), 1)]), 0, 1)
    log.high_watermark = 20
    future = logs.futures.create(log, tmp_path / "b", NOW)
    run_steps(logs.futures.purge_checkpoints(future))
    future.create_files()
    future.append_as_follower(log.read_bytes(0, 1 << 20))

    def replayed(end: int) -> None:
        if end == 1:
            logs.futures.replace_current("__consumer_offsets", 0, NOW)
            shutil.rmtree(tmp_path / "a" / "__consumer_offsets-0")

    shard = GroupCoordinatorShard(GroupCoordinatorConfig())
    loader = CoordinatorLoader("GroupCoordinator", shard, decode_record, replayed)
    assert asyncio.run(loader.load(lambda: logs.get("__consumer_offsets", 0))) == 20
    assert sorted(value.offset for value in shard.state.offsets["g"].values()) == list(range(20))


def test_a_load_continues_at_the_new_start_of_its_log(tmp_path: Path) -> None:
    """With `cleanup.policy=compact,delete`, retention may delete segments of the topic while it is loaded."""
    log = open_log(tmp_path / "__consumer_offsets-0")
    for offset in range(40):
        record = OffsetRecord("g", "t", offset, OffsetAndMetadata(offset, metadata="x" * 30_000))
        log.append_as_leader(build_batch([(*encode_record(record), (), 1)]), 0, 1)
    log.high_watermark = 40

    def replayed(end: int) -> None:
        if end == 1:
            log.increment_log_start_offset(30, "retention")

    shard = GroupCoordinatorShard(GroupCoordinatorConfig())
    loader = CoordinatorLoader("GroupCoordinator", shard, decode_record, replayed)
    assert asyncio.run(loader.load(lambda: log)) == 40
    found = {value.offset for value in shard.state.offsets["g"].values()}
    assert found >= set(range(30, 40))
    assert len(found) < 40
