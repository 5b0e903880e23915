"""The group APIs over all their versions, with appends that are real batches in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import wraps
from typing import Any

import pytest

from quorate.broker.coordinators import offset_handlers
from quorate.broker.coordinators.offsets import ExpiryCursor
from quorate.broker.coordinators.record_codec import decode_record
from quorate.broker.coordinators.service import GroupService
from quorate.broker.coordinators.shard import Shard
from quorate.net import turns
from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from quorate.protocol.messages.delete_groups import DeleteGroupsRequest
from quorate.protocol.messages.describe_groups import DescribeGroupsRequest
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.heartbeat import HeartbeatRequest
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest
from quorate.protocol.messages.join_group import JoinGroupRequest
from quorate.protocol.messages.leave_group import LeaveGroupRequest
from quorate.protocol.messages.list_groups import ListGroupsRequest
from quorate.protocol.messages.offset_commit import OffsetCommitRequest
from quorate.protocol.messages.offset_delete import OffsetDeleteRequest
from quorate.protocol.messages.offset_fetch import OffsetFetchRequest
from quorate.protocol.messages.sync_group import SyncGroupRequest
from quorate.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from quorate.records.batch import decode_records, parse_header
from quorate.records.compression import Compression
from tests.broker.coordinators.fakes import OFFSETS, World

E = ErrorCode


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 20))

    return run


def versions(key: ApiKey) -> range:
    spec = REGISTRY[key]
    return range(spec.min_version, spec.max_version + 1)


def commit_request(
    offset: int = 5, *, group: str = "g", topic: str = "t", partitions: tuple[int, ...] = (0,), **kwargs: Any
) -> OffsetCommitRequest:
    entries = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=p, committed_offset=offset, committed_metadata="m"
        )
        for p in partitions
    ]
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=entries)]
    return OffsetCommitRequest(group_id=group, topics=topics, **kwargs)


def fetch_request(
    version: int, *, group: str = "g", topics: list[tuple[str, list[int]]] | None = None, stable: bool = False
) -> OffsetFetchRequest:
    if version >= 8:
        entries = (
            None
            if topics is None
            else [OffsetFetchRequest.OffsetFetchRequestTopics(name=t, partition_indexes=p) for t, p in topics]
        )
        return OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=entries)],
            require_stable=stable,
        )
    old = (
        None
        if topics is None
        else [OffsetFetchRequest.OffsetFetchRequestTopic(name=t, partition_indexes=p) for t, p in topics]
    )
    request = OffsetFetchRequest(group_id=group, topics=old)
    if stable:
        request.require_stable = True
    return request


def fetched(response: Any, version: int) -> dict[tuple[str, int], int]:
    topics = response.groups[0].topics if version >= 8 else response.topics
    return {(t.name, p.partition_index): p.committed_offset for t in topics for p in t.partitions}


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
        (batch,) = w.replicas.batches(w.service.partition_for("g"))
        assert parse_header(batch).compression == Compression.ZSTD
        await w.restart()
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {("t", 0): 7}


@in_loop
async def test_records_are_what_kafka_writes() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(7), 9)
        (batch,) = w.replicas.batches(w.service.partition_for("g"))
        (record,) = decode_records(batch)
        assert record.key == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"
        timestamp = (1_700_000_000_000).to_bytes(8, "big")
        assert (
            record.value
            == b"\x00\x04" + (7).to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\x02m" + timestamp + b"\x00"
        )


@in_loop
async def test_a_request_with_retention_keeps_its_expire_timestamp() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(7, retention_time_ms=1000), 3)
        (batch,) = w.replicas.batches(w.service.partition_for("g"))
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
async def test_a_commit_that_is_no_batch_is_refused_before_its_records_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request of some megabytes would hold up the event loop for as long as a broker's session."""
    async with World() as w:
        made: list[Any] = []
        replay = Shard.replay
        monkeypatch.setattr(
            Shard, "replay", lambda *args: (made.append(args[1]), replay(*args))[-1], raising=True
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
async def test_the_size_of_a_commit_is_judged_by_what_is_written(codec: int) -> None:
    """Compressed, these records are one batch."""
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
        runtime = w.service.driver.runtime(w.service.partition_for("g"))
        assert not runtime.shard.expire_offsets(ExpiryCursor(["g"]), w.service.driver.instant()).records


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
async def test_a_commit_that_is_not_appended_leaves_no_trace(append: ErrorCode, told: ErrorCode) -> None:
    async with World() as w:
        w.replicas.fail_with = KafkaError(append)
        answer = await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        assert answer.topics[0].partitions[0].error_code == told
        w.replicas.fail_with = None
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {}
        assert (await w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(), 5)).groups == []


@in_loop
async def test_a_commit_that_is_not_replicated_in_time_is_refused_but_stands_when_it_commits() -> None:
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
async def test_requests_are_put_off_while_the_group_loads() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        partition = w.service.partition_for("g")
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
        (segment,) = w.replicas.log(w.service.partition_for("g")).dir.glob("*.log")
        whole = segment.read_bytes()
        segment.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
        await w.restart()
        got = await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9)
        assert got.groups[0].error_code == E.NOT_COORDINATOR
        segment.write_bytes(whole)
        w.replicas.lead(w.service.partition_for("g"), 9)
        await w.loaded()
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {("t", 0): 2}


def join_request(member_id: str = "", group: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequest.JoinGroupRequestProtocol(
                name="range", metadata=b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
            )
        ],
    )


async def joined(w: World, version: int, group: str = "g") -> Any:
    answer = await w.call(ApiKey.JOIN_GROUP, join_request(group=group), version)
    if answer.error_code == E.MEMBER_ID_REQUIRED:
        answer = await w.call(ApiKey.JOIN_GROUP, join_request(answer.member_id, group), version)
    return answer


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
@in_loop
async def test_a_group_forms_and_ends_in_every_version(version: int) -> None:
    async with World() as w:
        member = await joined(w, version)
        assert (member.error_code, member.generation_id, member.leader) == (E.NONE, 1, member.member_id)
        assert member.protocol_name == "range"
        sync_version = min(version, REGISTRY[ApiKey.SYNC_GROUP].max_version)
        request = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member.member_id,
            protocol_type="consumer" if sync_version >= 5 else None,
            protocol_name="range" if sync_version >= 5 else None,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"A")
            ],
        )
        synced = await w.call(ApiKey.SYNC_GROUP, request, sync_version)
        assert (synced.error_code, bytes(synced.assignment)) == (E.NONE, b"A")
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id)
        assert (await w.call(ApiKey.HEARTBEAT, beat, min(version, 4))).error_code == E.NONE
        leave_version = min(version, REGISTRY[ApiKey.LEAVE_GROUP].max_version)
        if leave_version < 3:
            leave = LeaveGroupRequest(group_id="g", member_id=member.member_id)
        else:
            leave = LeaveGroupRequest(
                group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=member.member_id)]
            )
        left = await w.call(ApiKey.LEAVE_GROUP, leave, leave_version)
        assert left.error_code == E.NONE
        groups = (await w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(), 5)).groups
        assert [(g.group_state, g.protocol_type, g.group_type) for g in groups] == [
            ("Empty", "consumer", "classic")
        ]


@in_loop
async def test_leaving_member_that_is_unknown_is_told_before_version_3_in_the_answer_itself() -> None:
    async with World() as w:
        await joined(w, 9)
        left = await w.call(ApiKey.LEAVE_GROUP, LeaveGroupRequest(group_id="g", member_id="x"), 2)
        assert left.error_code == E.UNKNOWN_MEMBER_ID


@in_loop
async def test_members_and_assignment_survive_a_restart() -> None:
    async with World() as w:
        member = await joined(w, 9)
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"A")
        request = SyncGroupRequest(
            group_id="g", generation_id=1, member_id=member.member_id, protocol_type="consumer", protocol_name="range",
            assignments=[assignment],
        )  # fmt: skip
        await w.call(ApiKey.SYNC_GROUP, request, 5)
        await w.restart()
        described = (await w.call(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["g"]), 6)).groups[0]
        assert (described.group_state, described.protocol_data) == ("Stable", "range")
        assert [
            (m.member_id, m.client_id, m.client_host, bytes(m.member_assignment)) for m in described.members
        ] == [(member.member_id, "client", "/127.0.0.1", b"A")]
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id)
        assert (await w.call(ApiKey.HEARTBEAT, beat, 4)).error_code == E.NONE


@in_loop
async def test_parked_members_are_sent_on_when_the_partition_moves_away() -> None:
    async with World(group_initial_rebalance_delay_ms=60_000) as w:
        first = await w.call(ApiKey.JOIN_GROUP, join_request(), 9)
        parked = asyncio.ensure_future(w.start(ApiKey.JOIN_GROUP, join_request(first.member_id), 9))
        await asyncio.sleep(0)
        w.replicas.lead(w.service.partition_for("g"), None)
        assert (await parked).error_code == E.NOT_COORDINATOR


@in_loop
async def test_a_session_ends_by_the_clock() -> None:
    async with World(group_min_session_timeout_ms=10) as w:
        request = join_request()
        request.session_timeout_ms = 60
        first = await w.call(ApiKey.JOIN_GROUP, request, 9)
        request.member_id = first.member_id
        assert (await w.call(ApiKey.JOIN_GROUP, request, 9)).error_code == E.NONE
        runtime = w.service.driver.runtime(w.service.partition_for("g"))
        for _ in range(100):
            group = runtime.shard.classic_group("g")
            if group is not None and not group.members:
                break
            await asyncio.sleep(0.01)
        assert group is not None and group.state.value == "Empty"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (join_request(group=""), E.INVALID_GROUP_ID),
        (
            JoinGroupRequest(group_id="g", session_timeout_ms=1, protocol_type="consumer"),
            E.INVALID_SESSION_TIMEOUT,
        ),
        (
            JoinGroupRequest(group_id="g", session_timeout_ms=10**7, protocol_type="consumer"),
            E.INVALID_SESSION_TIMEOUT,
        ),
    ],
)
@in_loop
async def test_join_requests_are_checked(request_: JoinGroupRequest, code: ErrorCode) -> None:
    async with World() as w:
        for version in versions(ApiKey.JOIN_GROUP):
            assert (await w.call(ApiKey.JOIN_GROUP, request_, version)).error_code == code


@in_loop
async def test_deleting_groups_takes_their_offsets_along() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        await joined(w, 9, "busy")
        request = DeleteGroupsRequest(groups_names=["g", "busy", "none", "g"])
        answer = await w.call(ApiKey.DELETE_GROUPS, request, 2)
        assert {r.group_id: r.error_code for r in answer.results} == {
            "g": E.NONE, "busy": E.NON_EMPTY_GROUP, "none": E.GROUP_ID_NOT_FOUND,
        }  # fmt: skip
        await w.restart()
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {}
        assert [g.group_id for g in (await w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(), 5)).groups] == [
            "busy"
        ]


@in_loop
async def test_groups_are_deleted_one_by_one() -> None:
    async with World() as w:
        w.metadata.topics["large"] = 200
        groups = ["g", "big", *(f"g{i}" for i in range(20))]
        for group in groups:
            await w.call(ApiKey.OFFSET_COMMIT, commit_request(2, group=group), 9)
        everything = tuple(range(200))
        await w.call(
            ApiKey.OFFSET_COMMIT, commit_request(2, group="big", topic="large", partitions=everything), 9
        )
        for partition in range(4):
            log = w.replicas.log(partition)
            log.config = replace(log.config, max_message_bytes=2000)
        counted = Turns()
        request = DeleteGroupsRequest(groups_names=groups)
        answer = await counted.during(w.call(ApiKey.DELETE_GROUPS, request, 2))
        told = {r.group_id: r.error_code for r in answer.results}
        assert told == {group: E.UNKNOWN_SERVER_ERROR if group == "big" else E.NONE for group in groups}
        assert counted.count >= len(groups)
        listed = await w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(), 4)
        assert [g.group_id for g in listed.groups] == ["big"]


@in_loop
async def test_offsets_of_many_groups_are_fetched_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_handlers, "TURN_S", 0.0)
    async with World() as w:
        groups = [f"g{i}" for i in range(20)]
        for group in groups:
            await w.call(ApiKey.OFFSET_COMMIT, commit_request(2, group=group), 9)
        asked = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
        counted = Turns()
        answer = await counted.during(w.call(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=asked), 9))
        assert [g.group_id for g in answer.groups] == groups
        assert all(g.topics[0].partitions[0].committed_offset == 2 for g in answer.groups)
        assert counted.count >= len(groups) - 1


@pytest.mark.parametrize("key", [ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS])
@in_loop
async def test_very_many_groups_are_looked_at_in_several_turns(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client's request of some megabytes would keep everybody else waiting for seconds."""
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    groups = [f"g{i}" for i in range(200)]
    request, version = (
        (FindCoordinatorRequest(coordinator_keys=groups), 6)
        if key is ApiKey.FIND_COORDINATOR
        else (DescribeGroupsRequest(groups=groups), 6)
    )
    async with World() as w:
        counted = Turns()
        answer = await counted.during(w.call(key, request, version))
        told = (
            [one.key for one in answer.coordinators]
            if key is ApiKey.FIND_COORDINATOR
            else [one.group_id for one in answer.groups]
        )
        assert told == groups
        assert counted.count >= len(groups)


@in_loop
async def test_requests_about_very_many_groups_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All together they take no more of a turn of the event loop than one."""
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    request = DescribeGroupsRequest(groups=[f"g{i}" for i in range(100)])
    async with World() as w:
        counted = Turns()
        answers = [w.start(ApiKey.DESCRIBE_GROUPS, request, 6) for _ in range(10)]
        for answer in await counted.during(asyncio.gather(*answers)):
            assert len(answer.groups) == 100
        assert counted.count >= 10 * 100


class Turns:
    """Counts the turns that the event loop gives to others while something is done."""

    count = 0

    async def during(self, work: Awaitable[Any]) -> Any:
        async def count() -> None:
            while True:
                self.count += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        try:
            return await work
        finally:
            other.cancel()


@in_loop
async def test_single_offsets_are_deleted_unless_somebody_reads_the_topic() -> None:
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


@in_loop
async def test_offsets_of_deleted_topics_go() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        w.service.topics_deleted(frozenset({"t"}))
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {}
        await w.restart()
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {}


@in_loop
async def test_offsets_of_topics_that_are_deleted_while_the_group_loads_go() -> None:
    async with World() as w:
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        await w.service.close()
        w.service = GroupService(w.settings, w.replicas, w.metadata, w, w.clock)
        await w.service.start()
        w.service.topics_deleted(
            frozenset({"t"})
        )  # it is there again at once, so that the metadata still has the name
        await w.loaded()
        assert await until_gone(w) == {}


@in_loop
async def test_offsets_of_topics_that_are_deleted_while_nobody_leads_go() -> None:
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
    """The offsets of a group, once topic t has none or after many turns of the loop."""
    for _ in range(100):
        found = fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9)
        if ("t", 0) not in found:
            break
        await asyncio.sleep(0.002)
    return found


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
@in_loop
async def test_coordinators_are_found_in_every_version(version: int) -> None:
    async with World() as w:
        request = (
            FindCoordinatorRequest(coordinator_keys=["a", "b"])
            if version >= 4
            else FindCoordinatorRequest(key="a")
        )
        answer = await w.call(ApiKey.FIND_COORDINATOR, request, version)
        found = answer.coordinators if version >= 4 else [answer]
        assert {(c.error_code, c.node_id, c.host, c.port) for c in found} == {
            (E.NONE, 1, "plaintext.example", 9092)
        }
        assert len(found) == (2 if version >= 4 else 1)


@pytest.mark.parametrize("version", [3, 6])
@in_loop
async def test_a_missing_offsets_topic_is_made_while_the_client_asks_again(version: int) -> None:
    async with World(lead=False) as w:
        del w.metadata.topics[OFFSETS]
        request = (
            FindCoordinatorRequest(coordinator_keys=["a", "b"])
            if version >= 4
            else FindCoordinatorRequest(key="a")
        )
        for _ in range(3):
            answer = w.start(ApiKey.FIND_COORDINATOR, request, version)
            assert not hasattr(answer, "__await__"), (
                "a wait would hold up all answers behind it on the connection"
            )
            found = answer.coordinators if version >= 4 else [answer]
            assert {c.error_code for c in found} == {E.COORDINATOR_NOT_AVAILABLE}
        assert set(w.replicas.made) == {OFFSETS}
        w.metadata.topics[OFFSETS] = 4
        w.replicas.made_when.set_result(None)
        answer = w.start(ApiKey.FIND_COORDINATOR, request, version)
        found = answer.coordinators if version >= 4 else [answer]
        assert {c.error_code for c in found} == {E.NONE}


@in_loop
async def test_a_topic_that_cannot_be_made_is_asked_for_again() -> None:
    async with World(lead=False) as w:
        del w.metadata.topics[OFFSETS]
        w.replicas.made_when.set_exception(KafkaError(E.INVALID_REPLICATION_FACTOR))
        for _ in range(2):
            answer = await w.call(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="a"), 3)
            assert answer.error_code == E.COORDINATOR_NOT_AVAILABLE
        assert w.replicas.made == [OFFSETS, OFFSETS]


@in_loop
async def test_a_coordinator_that_cannot_be_had_is_told() -> None:
    async with World() as w:
        w.metadata.fenced = True
        answer = await w.call(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="a"), 3)
        assert (answer.error_code, answer.node_id) == (E.COORDINATOR_NOT_AVAILABLE, -1)
        answer = await w.call(
            ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=2, coordinator_keys=["a:b:0"]), 6
        )
        assert answer.coordinators[0].error_code == E.INVALID_REQUEST


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
@in_loop
async def test_producer_ids_are_handed_out(version: int) -> None:
    async with World() as w:
        w.answers = [AllocateProducerIdsResponse(producer_id_start=3000, producer_id_len=10),
                     AllocateProducerIdsResponse(producer_id_start=4000, producer_id_len=10)]  # fmt: skip
        ids = []
        for _ in range(12):
            answer = await w.call(
                ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None), version
            )
            assert (answer.error_code, answer.producer_epoch) == (E.NONE, 0)
            ids.append(answer.producer_id)
        assert ids == [*range(3000, 3010), 4000, 4001]
        assert [(r.broker_id, r.broker_epoch) for r in w.sent] == [(1, 7), (1, 7)]


@in_loop
async def test_no_producer_id_while_the_controller_is_away() -> None:
    async with World() as w:
        w.answers = [
            ConnectionError("gone"),
            AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=5),
        ]
        request = InitProducerIdRequest(transactional_id=None)
        assert (
            await w.call(ApiKey.INIT_PRODUCER_ID, request, 5)
        ).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        assert (await w.call(ApiKey.INIT_PRODUCER_ID, request, 5)).producer_id == 0


@in_loop
async def test_a_controller_that_does_not_answer_holds_up_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from quorate.broker.coordinators import producer_ids

    monkeypatch.setattr(producer_ids, "BLOCK_WAIT_S", 0.02)
    async with World() as w:
        answered = asyncio.Event()

        async def send(request: Any) -> Any:
            await answered.wait()
            return AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=5)

        monkeypatch.setattr(w, "send", send)
        request = InitProducerIdRequest(transactional_id=None)
        assert (
            await w.call(ApiKey.INIT_PRODUCER_ID, request, 5)
        ).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        answered.set()
        ids = [(await w.call(ApiKey.INIT_PRODUCER_ID, request, 5)).producer_id for _ in range(3)]
        assert ids == [0, 1, 2], "the block that came late is used"


@in_loop
async def test_transactions_are_refused_for_good() -> None:
    async with World() as w:
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
        answer = await w.call(ApiKey.INIT_PRODUCER_ID, request, 5)
        assert (answer.error_code, answer.producer_id) == (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0)
        topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])]
        answer = await w.call(
            ApiKey.TXN_OFFSET_COMMIT, TxnOffsetCommitRequest(group_id="g", topics=topics), 3
        )
        assert answer.topics[0].partitions[0].error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
