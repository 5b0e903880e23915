"""The offset APIs in all their versions. Appends are real batches in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from quorate.broker.coordinators.group.offset_metadata_manager import ExpiryCursor
from quorate.broker.coordinators.group.record_serde import decode_record
from quorate.broker.coordinators.group.requests import offset_requests
from quorate.broker.coordinators.group.shard import GroupCoordinatorShard
from quorate.broker.coordinators.service import CoordinatorService
from quorate.net import turns
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.describe_groups import DescribeGroupsRequest
from quorate.protocol.messages.heartbeat import HeartbeatRequest
from quorate.protocol.messages.list_groups import ListGroupsRequest
from quorate.protocol.messages.offset_delete import OffsetDeleteRequest
from quorate.protocol.messages.offset_fetch import OffsetFetchRequest
from quorate.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from quorate.protocol.uuids import ZERO_UUID
from quorate.records.batch import decode_records, parse_header
from quorate.records.compression import Compression
from tests.broker.coordinators.client import (
    Turns,
    commit_request,
    fetch_request,
    fetched,
    in_loop,
    joined,
    versions,
)
from tests.broker.coordinators.fakes import World, id_of

E = ErrorCode


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
@in_loop
async def test_offsets_are_committed_in_every_version(version: int) -> None:
    async with World() as w:
        answer = await w.call(ApiKey.OFFSET_COMMIT, commit_request(7, partitions=(0, 2)), version)
        assert [p.error_code for p in answer.topics[0].partitions] == [E.NONE, E.NONE]
        got = await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9)
        assert fetched(got, 9) == {("t", 0): 7, ("t", 2): 7}


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
@in_loop
async def test_offsets_are_fetched_in_every_version(version: int) -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(7), 8)
        got = await w.call(
            ApiKey.OFFSET_FETCH, fetch_request(version, topics=[("t", [0, 1]), ("none", [3])]), version
        )
        assert fetched(got, version) == {("t", 0): 7, ("t", 1): -1, ("none", 3): -1}
        if version >= 2:
            assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(version), version), version) == {
                ("t", 0): 7
            }


@in_loop
async def test_offsets_survive_a_restart() -> None:
    async with World() as w:
        for offset in (1, 2, 3):
            await w.call(ApiKey.OFFSET_COMMIT, commit_request(offset), 9)
        await w.restart()
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {("t", 0): 3}
        groups = (await w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(), 5)).groups
        assert [(g.group_id, g.group_state, g.protocol_type) for g in groups] == [("g", "Empty", "")]


@in_loop
async def test_the_topics_batches_are_compressed_as_configured() -> None:
    async with World(offsets_topic_compression_codec=4) as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(7), 9)
        (batch,) = w.replicas.batches(w.service.groups.partition_for("g"))
        assert parse_header(batch).compression == Compression.ZSTD
        await w.restart()
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {("t", 0): 7}


@in_loop
async def test_records_are_what_kafka_writes() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(7), 9)
        (batch,) = w.replicas.batches(w.service.groups.partition_for("g"))
        (record,) = decode_records(batch)
        assert record.key == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"
        timestamp = (1_700_000_000_000).to_bytes(8, "big")
        assert record.value == b"\x00\x04" + (7).to_bytes(
            8, "big"
        ) + b"\xff\xff\xff\xff" + b"\x02m" + timestamp + b"\x01\x00\x10" + id_of("t")


@in_loop
async def test_a_request_with_retention_keeps_its_expire_timestamp() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(7, retention_time_ms=1000), 3)
        (batch,) = w.replicas.batches(w.service.groups.partition_for("g"))
        (record,) = decode_records(batch)
        assert record.key is not None and record.value is not None
        assert record.value[:2] == b"\x00\x01"
        decoded: Any = decode_record(record.key, record.value)
        assert decoded.value.expire_timestamp_ms == 1_700_000_001_000


@in_loop
async def test_unknown_topics_are_refused_one_by_one() -> None:
    async with World() as w:
        answer = await w.call(ApiKey.OFFSET_COMMIT, commit_request(7, partitions=(0, 3)), 9)
        codes = {p.partition_index: p.error_code for t in answer.topics for p in t.partitions}
        assert codes == {0: E.NONE, 3: E.UNKNOWN_TOPIC_OR_PARTITION}
        answer = await w.call(ApiKey.OFFSET_COMMIT, commit_request(7, topic="none"), 9)
        assert answer.topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_unknown_topic_ids_are_refused_one_by_one() -> None:
    """Version 10 has ids instead of names: each unknown id has a topic of its own in the response."""
    async with World() as w:
        request = commit_request(7, partitions=(0, 3))
        for unknown in (id_of("gone"), id_of("never"), ZERO_UUID):
            request.topics += commit_request(7).topics
            request.topics[-1].topic_id = unknown
        answer = await w.call(ApiKey.OFFSET_COMMIT, request, 10)
        codes = {
            (t.topic_id, p.partition_index): ErrorCode(p.error_code)
            for t in answer.topics
            for p in t.partitions
        }
        assert codes == {
            (id_of("t"), 0): E.NONE,
            (id_of("t"), 3): E.UNKNOWN_TOPIC_OR_PARTITION,
            (id_of("gone"), 0): E.UNKNOWN_TOPIC_ID,
            (id_of("never"), 0): E.UNKNOWN_TOPIC_ID,
            (ZERO_UUID, 0): E.UNKNOWN_TOPIC_ID,
        }


@in_loop
async def test_offsets_of_unknown_topic_ids_are_an_error_beside_the_others() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(7), 10)
        answer = await w.call(
            ApiKey.OFFSET_FETCH, fetch_request(10, topics=[("t", [0]), ("gone", [0, 1])]), 10
        )
        (group,) = answer.groups
        assert group.error_code == E.NONE
        assert {
            (t.topic_id, p.partition_index): (p.committed_offset, ErrorCode(p.error_code))
            for t in group.topics
            for p in t.partitions
        } == {
            (id_of("t"), 0): (7, E.NONE),
            (id_of("gone"), 0): (-1, E.UNKNOWN_TOPIC_ID),
            (id_of("gone"), 1): (-1, E.UNKNOWN_TOPIC_ID),
        }


@in_loop
async def test_all_offsets_by_id_are_those_of_topics_that_exist() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(7), 9)
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(10), 10), 10) == {("t", 0): 7}
        w.metadata.ids.clear()
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(10), 10), 10) == {}


@in_loop
async def test_a_transactional_commit_by_id_is_answered_by_id() -> None:
    async with World() as w:
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=2)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
            topic_id=id_of("t"), partitions=[partition]
        )
        answer = await w.call(ApiKey.TXN_OFFSET_COMMIT, TxnOffsetCommitRequest(topics=[topic]), 6)
        (answered,) = answer.topics
        assert answered.topic_id == id_of("t")
        assert [p.partition_index for p in answered.partitions] == [2]


@in_loop
async def test_long_metadata_is_refused() -> None:
    async with World(offset_metadata_max_bytes=3) as w:
        request = commit_request(7, partitions=(0, 1))
        request.topics[0].partitions[1].committed_metadata = "long"
        answer = await w.call(ApiKey.OFFSET_COMMIT, request, 9)
        assert [p.error_code for p in answer.topics[0].partitions] == [E.NONE, E.OFFSET_METADATA_TOO_LARGE]


@pytest.mark.parametrize(
    ("metadata", "code"), [("é" * 4, E.NONE), ("😀" * 2, E.NONE), ("😀" * 3, E.OFFSET_METADATA_TOO_LARGE)]
)
@in_loop
async def test_metadata_is_measured_as_java_does(metadata: str, code: ErrorCode) -> None:
    async with World(offset_metadata_max_bytes=4) as w:
        request = commit_request(7)
        request.topics[0].partitions[0].committed_metadata = metadata
        answer = await w.call(ApiKey.OFFSET_COMMIT, request, 9)
        assert answer.topics[0].partitions[0].error_code == code


@in_loop
async def test_a_commit_too_large_for_one_batch_is_rejected_before_its_records_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request of some megabytes would delay the event loop for as long as a broker session lasts."""
    async with World() as w:
        made: list[Any] = []
        replay = GroupCoordinatorShard.replay
        monkeypatch.setattr(
            GroupCoordinatorShard, "replay", lambda *args: (made.append(args[1]), replay(*args))[-1]
        )
        fits, too_many = (0, 1, 2) * 4_000, (0, 1, 2) * 20_000
        answer = await w.call(ApiKey.OFFSET_COMMIT, commit_request(7, partitions=fits), 8)
        assert {p.error_code for p in answer.topics[0].partitions} == {E.NONE}
        made.clear()
        answer = await w.call(ApiKey.OFFSET_COMMIT, commit_request(8, partitions=too_many), 8)
        assert [p.partition_index for p in answer.topics[0].partitions] == list(too_many)
        assert {p.error_code for p in answer.topics[0].partitions} == {E.UNKNOWN_SERVER_ERROR}
        assert not made
        got = await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9)
        assert set(fetched(got, 9).values()) == {7}


@pytest.mark.parametrize("codec", [0, 4])
@in_loop
async def test_the_size_of_a_commit_is_that_of_its_compressed_batch(codec: int) -> None:
    """Compressed, these records fit into one batch."""
    async with World(**{"offsets.topic.compression.codec": codec}) as w:
        request = commit_request(8, partitions=(0, 1, 2) * 10_000)
        answer = await w.call(ApiKey.OFFSET_COMMIT, request, 8)
        expected = E.NONE if codec else E.UNKNOWN_SERVER_ERROR
        assert {p.error_code for p in answer.topics[0].partitions} == {expected}


@in_loop
async def test_the_longest_retention_is_for_ever() -> None:
    async with World() as w:
        answer = await w.call(ApiKey.OFFSET_COMMIT, commit_request(7, retention_time_ms=2**63 - 1), 4)
        assert answer.topics[0].partitions[0].error_code == E.NONE
        w.clock.offset_ms = 1_000_000_000_000
        runtime = w.service.groups.runtime.context(w.service.groups.partition_for("g"))
        assert not runtime.shard.offsets.expire_offsets(
            ExpiryCursor(["g"]), w.service.groups.runtime.step_time()
        ).records


@in_loop
async def test_a_topic_that_is_named_twice_is_answered_once_beside_one_that_is_refused() -> None:
    async with World() as w:
        request = commit_request(7)
        request.topics += (
            commit_request(8, partitions=(1,)).topics + commit_request(9, topic="none").topics * 2
        )
        answer = await w.call(ApiKey.OFFSET_COMMIT, request, 8)
        assert {t.name: [(p.partition_index, p.error_code) for p in t.partitions] for t in answer.topics} == {
            "t": [(0, E.NONE), (1, E.NONE)], "none": [(0, E.UNKNOWN_TOPIC_OR_PARTITION)] * 2,
        }  # fmt: skip


@in_loop
async def test_a_commit_is_answered_and_read_only_when_it_is_committed() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(1), 9)
        w.replicas.hold = True
        commit = asyncio.ensure_future(w.start(ApiKey.OFFSET_COMMIT, commit_request(2), 9))
        await asyncio.sleep(0)
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {("t", 0): 1}
        stable = asyncio.ensure_future(w.start(ApiKey.OFFSET_FETCH, fetch_request(9, stable=True), 9))
        await asyncio.sleep(0.01)
        assert not commit.done() and not stable.done()
        w.replicas.release()
        assert (await commit).topics[0].partitions[0].error_code == E.NONE
        assert fetched(await stable, 9) == {("t", 0): 2}
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {("t", 0): 2}


@pytest.mark.parametrize(
    ("append", "told"),
    [
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
@in_loop
async def test_a_commit_that_is_not_appended_changes_nothing(append: ErrorCode, told: ErrorCode) -> None:
    async with World() as w:
        w.replicas.fail_with = KafkaError(append)
        answer = await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        assert answer.topics[0].partitions[0].error_code == told
        w.replicas.fail_with = None
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {}
        assert (await w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(), 5)).groups == []


@in_loop
async def test_a_commit_that_times_out_is_visible_when_it_is_committed() -> None:
    async with World(offsets_commit_timeout_ms=50) as w:
        w.replicas.hold = True
        answer = await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        assert answer.topics[0].partitions[0].error_code == E.COORDINATOR_NOT_AVAILABLE
        w.replicas.release()
        w.replicas.hold = False
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(3, partitions=(1,)), 9)
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {
            ("t", 0): 2,
            ("t", 1): 3,
        }


@in_loop
async def test_only_the_leader_of_the_partition_answers() -> None:
    async with World(lead=False) as w:
        answer = await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        assert answer.topics[0].partitions[0].error_code == E.NOT_COORDINATOR
        for version in versions(ApiKey.OFFSET_FETCH):
            got = await w.call(ApiKey.OFFSET_FETCH, fetch_request(version, topics=[("t", [0])]), version)
            code = (
                got.groups[0].error_code
                if version >= 8
                else got.error_code
                if version >= 2
                else got.topics[0].partitions[0].error_code
            )
            assert code == E.NOT_COORDINATOR
        assert (
            await w.call(ApiKey.HEARTBEAT, HeartbeatRequest(group_id="g"), 4)
        ).error_code == E.NOT_COORDINATOR
        groups = (await w.call(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["g"]), 6)).groups
        assert groups[0].error_code == E.NOT_COORDINATOR


@in_loop
async def test_requests_fail_while_the_group_loads() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        partition = w.service.groups.partition_for("g")
        w.replicas.lead(partition, None)
        w.replicas.lead(partition, 1)
        answer = await w.call(ApiKey.OFFSET_COMMIT, commit_request(3), 9)
        assert answer.topics[0].partitions[0].error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        assert (await w.call(ApiKey.HEARTBEAT, HeartbeatRequest(group_id="g"), 4)).error_code == E.NONE
        assert (
            await w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(), 4)
        ).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        await w.loaded()
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {("t", 0): 2}


@in_loop
async def test_a_damaged_log_is_not_served() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        (segment,) = w.replicas.log(w.service.groups.partition_for("g")).dir.glob("*.log")
        whole = segment.read_bytes()
        segment.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
        await w.restart()
        got = await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9)
        assert got.groups[0].error_code == E.NOT_COORDINATOR
        segment.write_bytes(whole)
        w.replicas.lead(w.service.groups.partition_for("g"), 9)
        await w.loaded()
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {("t", 0): 2}


@in_loop
async def test_offsets_of_many_groups_are_fetched_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_requests, "TURN_S", 0.0)
    async with World() as w:
        groups = [f"g{i}" for i in range(20)]
        for group in groups:
            await w.call(ApiKey.OFFSET_COMMIT, commit_request(2, group=group), 9)
        asked = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
        turns = Turns()
        answer = await turns.during(w.call(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=asked), 9))
        assert [g.group_id for g in answer.groups] == groups
        assert all(g.topics[0].partitions[0].committed_offset == 2 for g in answer.groups)
        assert turns.count >= len(groups) - 1


@in_loop
async def test_single_offsets_are_deleted_unless_a_member_is_subscribed() -> None:
    async with World() as w:
        w.metadata.topics["u"] = 1
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(2, topic="u"), 9)
        await joined(w, 9)
        entry = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
        topics = [
            OffsetDeleteRequest.OffsetDeleteRequestTopic(name=n, partitions=[entry])
            for n in ("t", "u", "none")
        ]
        answer = await w.call(ApiKey.OFFSET_DELETE, OffsetDeleteRequest(group_id="g", topics=topics), 0)
        assert {t.name: t.partitions[0].error_code for t in answer.topics} == {
            "t": E.GROUP_SUBSCRIBED_TO_TOPIC, "u": E.NONE, "none": E.UNKNOWN_TOPIC_OR_PARTITION,
        }  # fmt: skip
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {("t", 0): 2}
        counts = w.service.groups.counts
        assert (counts.offset_commits, counts.offset_deletions, counts.offset_expirations) == (2, 1, 0)


def offset_delete(*wanted: tuple[str, list[int]]) -> OffsetDeleteRequest:
    make = OffsetDeleteRequest
    return make(
        group_id="g",
        topics=[
            make.OffsetDeleteRequestTopic(
                name=name,
                partitions=[make.OffsetDeleteRequestPartition(partition_index=p) for p in partitions],
            )
            for name, partitions in wanted
        ],
    )


def deletions(response: Any) -> list[tuple[str, int, int]]:
    return sorted(
        (topic.name, part.partition_index, part.error_code)
        for topic in response.topics
        for part in topic.partitions
    )


@pytest.mark.parametrize("member", [False, True])
@in_loop
async def test_a_deletion_of_very_many_offsets_takes_several_turns(
    monkeypatch: pytest.MonkeyPatch, member: bool
) -> None:
    """Its result is that of a small one, also if its tombstones do not fit into one batch."""
    wanted = [
        ("t", [0, 1, 2, 9]),
        ("u", list(range(60)) * 2),
        ("none", list(range(30))),
        ("empty", []),
        ("u", [1]),
    ]
    results = []
    for at_once in (1000, 10):
        monkeypatch.setattr(offset_requests, "DELETED_AT_ONCE", at_once)
        async with World() as w:
            w.metadata.topics["u"] = 50
            await w.call(ApiKey.OFFSET_COMMIT, commit_request(2, partitions=(0, 2)), 9)
            every = tuple(range(50))
            await w.call(ApiKey.OFFSET_COMMIT, commit_request(2, topic="u", partitions=every), 9)
            if member:
                await joined(w, 9)
            if at_once < 1000:
                monkeypatch.setattr(turns, "SLICE_S", 0.0)
                for partition in range(4):
                    log = w.replicas.log(partition)
                    log.update_config(replace(log.config, max_message_bytes=2000))
            counted = Turns()
            answer = await counted.during(w.call(ApiKey.OFFSET_DELETE, offset_delete(*wanted), 0))
            left = fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9)
            results.append((answer.error_code, deletions(answer), left))
    assert results[0] == results[1]
    assert set(results[0][2]) == ({("t", 0), ("t", 2)} if member else set())
    assert counted.count >= 150 / 10


@in_loop
async def test_the_error_of_a_deletion_of_very_many_offsets_is_that_of_the_group() -> None:
    async with World() as w:
        w.metadata.topics["u"] = 1000
        answer = await w.call(ApiKey.OFFSET_DELETE, offset_delete(("u", list(range(1000)))), 0)
        assert (answer.error_code, answer.topics) == (E.GROUP_ID_NOT_FOUND, [])


@in_loop
async def test_offsets_of_deleted_topics_are_deleted() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        w.service.groups.topics_deleted(frozenset({"t"}))
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {}
        await w.restart()
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {}


@in_loop
async def test_offsets_of_topics_deleted_during_the_loading_are_deleted() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        await w.service.close()
        w.service = CoordinatorService(w.settings, w.replicas, w.metadata, w.replicas, w, w.clock)
        await w.service.start()
        w.service.groups.topics_deleted(
            frozenset({"t"})
        )  # it is there again at once, so that the metadata still has the name
        await w.loaded()
        assert await until_gone(w) == {}


@in_loop
async def test_offsets_of_topics_deleted_without_a_leader_are_deleted_after_loading() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(3, group="h", topic="u"), 9)
        w.metadata.topics |= {"u": 1}
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(3, topic="u"), 9)
        del w.metadata.topics["t"]
        await w.restart()
        assert await until_gone(w) == {("u", 0): 3}
        await w.restart()
        assert await until_gone(w) == {("u", 0): 3}


async def until_gone(w: World) -> dict[tuple[str, int], int]:
    """The offsets of a group when topic t has none, or after many turns of the loop."""
    for _ in range(100):
        found = fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9)
        if ("t", 0) not in found:
            break
        await asyncio.sleep(0.002)
    return found
