"""The responses of a coordinator with uncommitted records. No response depends on records that an
election could revert."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from quorate.broker.coordinators.group.classic.rebalance import Rebalancer
from quorate.broker.coordinators.group.model import ShardState
from quorate.broker.coordinators.group.offset_metadata_manager import OffsetMetadataManager
from quorate.broker.coordinators.group.record_serde import decode_record
from quorate.broker.coordinators.group.shard import GroupCoordinatorShard
from quorate.broker.coordinators.loader import CoordinatorLoader
from quorate.broker.coordinators.result import CoordinatorResult, StepTime
from quorate.net.client import Connection
from quorate.net.server import Listener
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.delete_groups import DeleteGroupsRequest
from quorate.protocol.messages.describe_groups import DescribeGroupsRequest
from quorate.protocol.messages.heartbeat import HeartbeatRequest
from quorate.protocol.messages.list_groups import ListGroupsRequest
from quorate.protocol.messages.offset_delete import OffsetDeleteRequest
from quorate.protocol.messages.sync_group import SyncGroupRequest
from quorate.records.batch import parse_header
from tests.broker.coordinators.client import (
    commit_request,
    fetch_request,
    fetched,
    in_loop,
    join_request,
    joined,
)
from tests.broker.coordinators.fakes import World

E = ErrorCode
SHORT_MS = 30


async def commit(w: World, offset: int, **kwargs: Any) -> int:
    """The error code of committing `offset`."""
    answer = await w.call(ApiKey.OFFSET_COMMIT, commit_request(offset, **kwargs), 9)
    return int(answer.topics[0].partitions[0].error_code)


async def offsets(w: World, *, stable: bool = False) -> dict[tuple[str, int], int]:
    return fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9, stable=stable), 9), 9)


async def group_ids(w: World) -> list[str]:
    return sorted(g.group_id for g in (await w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(), 5)).groups)


def sync_request(member: Any, assignment: bytes = b"A") -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        generation_id=member.generation_id,
        member_id=member.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=assignment)
        ],
    )


# -- appends that time out
# --------------------------------------------------------------------------------------------------


@in_loop
async def test_an_offset_whose_append_timed_out_is_not_fetched_until_it_commits() -> None:
    async with World(offsets_commit_timeout_ms=SHORT_MS) as w:
        assert await commit(w, 1) == E.NONE
        w.replicas.hold = True
        assert await commit(w, 2) == E.COORDINATOR_NOT_AVAILABLE
        assert await offsets(w) == {("t", 0): 1}
        w.replicas.release()
        assert await offsets(w) == {("t", 0): 2}, "it stands in the log and has committed"


@in_loop
async def test_a_stable_fetch_waits_for_an_append_that_timed_out() -> None:
    async with World(offsets_commit_timeout_ms=SHORT_MS) as w:
        assert await commit(w, 1) == E.NONE
        w.replicas.hold = True
        assert await commit(w, 2) == E.COORDINATOR_NOT_AVAILABLE
        got = await w.call(ApiKey.OFFSET_FETCH, fetch_request(9, stable=True), 9)
        assert got.groups[0].error_code == E.NOT_COORDINATOR, "clients before 3.9 know no time-out here"
        parked = asyncio.ensure_future(w.start(ApiKey.OFFSET_FETCH, fetch_request(9, stable=True), 9))
        await asyncio.sleep(0)
        w.replicas.release()
        assert fetched(await parked, 9) == {("t", 0): 2}


@in_loop
async def test_a_group_whose_first_record_timed_out_is_not_listed_until_it_commits() -> None:
    async with World(offsets_commit_timeout_ms=SHORT_MS) as w:
        w.replicas.hold = True
        assert await commit(w, 2) == E.COORDINATOR_NOT_AVAILABLE
        assert await group_ids(w) == []
        described = (await w.call(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["g"]), 6)).groups[0]
        assert described.error_code == E.GROUP_ID_NOT_FOUND
        w.replicas.release()
        assert await group_ids(w) == ["g"]


@in_loop
async def test_commits_become_visible_one_by_one_as_they_commit() -> None:
    async with World(offsets_commit_timeout_ms=SHORT_MS) as w:
        w.replicas.hold = True
        for offset in (1, 2):
            assert await commit(w, offset) == E.COORDINATOR_NOT_AVAILABLE
        partition = w.service.groups.partition_for("g")
        led = w.replicas.partition("__consumer_offsets", partition)
        led.follower_fetched(2, -1, 1, 0, led.log.log_end_offset, w.clock.now())
        assert await offsets(w) == {("t", 0): 1}
        assert await commit(w, 3, partitions=(1,)) == E.COORDINATOR_NOT_AVAILABLE
        assert await offsets(w) == {("t", 0): 1}
        w.replicas.release()
        assert await offsets(w) == {("t", 0): 2, ("t", 1): 3}


@in_loop
async def test_a_deletion_that_timed_out_leaves_the_offset_until_it_commits() -> None:
    entry = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    request = OffsetDeleteRequest(
        group_id="g", topics=[OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=[entry])]
    )
    async with World(offsets_commit_timeout_ms=SHORT_MS) as w:
        assert await commit(w, 1) == E.NONE
        w.replicas.hold = True
        assert (await w.call(ApiKey.OFFSET_DELETE, request, 0)).error_code == E.COORDINATOR_NOT_AVAILABLE
        assert await offsets(w) == {("t", 0): 1}
        # Deleting it again has nothing to write, yet must not say that it is gone.
        assert (await w.call(ApiKey.OFFSET_DELETE, request, 0)).error_code == E.COORDINATOR_NOT_AVAILABLE
        again = asyncio.ensure_future(w.start(ApiKey.OFFSET_DELETE, request, 0))
        await asyncio.sleep(0)
        assert not again.done()
        w.replicas.release()
        assert (await again).error_code == E.NONE
        assert await offsets(w) == {}


@in_loop
async def test_the_deletion_of_a_group_is_visible_only_when_it_is_committed() -> None:
    request = DeleteGroupsRequest(groups_names=["g"])
    async with World(offsets_commit_timeout_ms=SHORT_MS) as w:
        assert await commit(w, 1) == E.NONE
        w.replicas.hold = True
        answer = await w.call(ApiKey.DELETE_GROUPS, request, 2)
        assert [r.error_code for r in answer.results] == [E.COORDINATOR_NOT_AVAILABLE]
        answer = await w.call(ApiKey.DELETE_GROUPS, request, 2)
        assert [r.error_code for r in answer.results] == [E.COORDINATOR_NOT_AVAILABLE], (
            "not: there is no such group"
        )
        assert await group_ids(w) == ["g"]
        w.replicas.release()
        assert await group_ids(w) == []


# -- requests that a client has sent without waiting for responses
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("committed", [True, False])
@in_loop
async def test_a_fetch_sees_the_commits_before_it_on_its_connection(
    small: bool, stable: bool, committed: bool
) -> None:
    """Apache Kafka handles a request when the one before it is answered."""
    async with World(offsets_commit_timeout_ms=5000 if committed else SHORT_MS) as w:
        assert await commit(w, 1) == E.NONE
        w.replicas.hold = True
        w.dispatcher.frame_routes = w.service.frame_routes
        listener = Listener()
        await listener.start("127.0.0.1", 0, w.dispatcher, "PLAINTEXT")
        connection = await Connection.connect("127.0.0.1", listener.port, timeout_s=5)
        try:
            request = commit_request(2)
            request.topics[0].partitions[0].committed_metadata = "" if small else "m"
            asked = connection.send(request, 9, timeout_s=5)
            fetch = connection.send(fetch_request(9, stable=stable), 9, timeout_s=5)
            other = await offsets(w)
            while len(w.replicas.batches(w.service.groups.partition_for("g"))) < 2:
                await asyncio.sleep(0.001)
            assert other == await offsets(w) == {("t", 0): 1}, "that of another client"
            if committed:
                w.replicas.release()
            code = (await asked).topics[0].partitions[0].error_code
            assert code == (E.NONE if committed else E.COORDINATOR_NOT_AVAILABLE)
            answer = await fetch
            if committed:
                assert fetched(answer, 9) == {("t", 0): 2}
            elif stable:
                assert answer.groups[0].error_code == E.NOT_COORDINATOR
            else:
                assert fetched(answer, 9) == {("t", 0): 1}
        finally:
            connection.close()
            await listener.close()


# -- appends that fail
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        KafkaError(E.NOT_ENOUGH_REPLICAS),
        KafkaError(E.MESSAGE_TOO_LARGE),
        OSError("no space"),
        ValueError("cannot be encoded"),
    ],
    ids=repr,
)
@in_loop
async def test_after_any_failed_append_the_state_equals_the_log(failure: Exception) -> None:
    async with World() as w:
        assert await commit(w, 1) == E.NONE
        w.replicas.fail_with = failure
        assert await commit(w, 2) != E.NONE
        assert await commit(w, 2, group="g2") != E.NONE
        answer = await w.call(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=["g"]), 2)
        assert answer.results[0].error_code != E.NONE
        join = await w.call(ApiKey.JOIN_GROUP, join_request(group="g3"), 9)
        w.service.groups.topics_deleted(frozenset({"t"}))
        # The deletion is tried again, so the state is read while it cannot succeed.
        assert await offsets(w) == {("t", 0): 1}
        assert await offsets(w, stable=True) == {("t", 0): 1}
        assert await group_ids(w) == ["g"]
        w.replicas.fail_with = None
        again = await w.call(ApiKey.JOIN_GROUP, join_request(join.member_id, group="g3"), 9)
        assert again.error_code == E.UNKNOWN_MEMBER_ID, "the group was not made"


@in_loop
async def test_an_assignment_whose_append_fails_is_answered_and_the_group_continues() -> None:
    async with World() as w:
        member = await joined(w, 9)
        w.replicas.fail_with = OSError("no space")
        assert (await w.call(ApiKey.SYNC_GROUP, sync_request(member), 5)).error_code != E.NONE
        w.replicas.fail_with = None
        rejoined = await w.call(ApiKey.JOIN_GROUP, join_request(member.member_id), 9)
        assert (rejoined.error_code, rejoined.generation_id) == (E.NONE, 2)
        synced = await w.call(ApiKey.SYNC_GROUP, sync_request(rejoined, b"B"), 5)
        assert (synced.error_code, bytes(synced.assignment)) == (E.NONE, b"B")


@in_loop
async def test_a_defect_in_a_step_ends_that_request_only() -> None:
    async with World() as w:
        assert await commit(w, 1) == E.NONE

        def broken(shard: GroupCoordinatorShard, token: Any, at: StepTime) -> CoordinatorResult:
            shard.state = ShardState()
            raise AssertionError("a defect")

        with pytest.raises(KafkaError) as told:
            await w.service.groups.runtime.write(w.service.groups.partition_for("g"), broken)
        assert told.value.code == E.UNKNOWN_SERVER_ERROR
        assert await offsets(w) == {("t", 0): 1}
        assert await commit(w, 3) == E.NONE
        assert await offsets(w) == {("t", 0): 3}


@in_loop
async def test_a_record_that_cannot_be_replayed_is_not_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World() as w:
        assert await commit(w, 1) == E.NONE

        def broken(*_: object) -> None:
            raise AssertionError("a defect")

        with monkeypatch.context() as patched:
            patched.setattr(OffsetMetadataManager, "replay_offset", broken)
            assert await commit(w, 2) == E.UNKNOWN_SERVER_ERROR
        assert len(w.replicas.batches(w.service.groups.partition_for("g"))) == 1
        assert await offsets(w) == {("t", 0): 1}


@in_loop
async def test_a_defect_after_the_append_is_answered() -> None:
    async with World() as w:

        def after(error: ErrorCode, at: StepTime) -> CoordinatorResult:
            raise AssertionError("a defect")

        with pytest.raises(KafkaError) as told:
            await w.service.groups.runtime.write(0, lambda shard, token, at: CoordinatorResult(after=after))
        assert told.value.code == E.UNKNOWN_SERVER_ERROR


@in_loop
async def test_a_defect_in_one_timer_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(group_min_session_timeout_ms=10) as w:
        members = {}
        for group in ("a", "b", "c", "d"):
            request = join_request(group=group)
            request.session_timeout_ms = 50
            first = await w.call(ApiKey.JOIN_GROUP, request, 9)
            request.member_id = first.member_id
            members[group] = (await w.call(ApiKey.JOIN_GROUP, request, 9)).member_id
        original = Rebalancer.expire

        def expire(rebalancer: Rebalancer, event: Any, at: StepTime) -> CoordinatorResult:
            if event.group_id == "a":
                raise AssertionError("a defect")
            return original(rebalancer, event, at)

        monkeypatch.setattr(Rebalancer, "expire", expire)

        def empty(group: str) -> bool:
            shard = w.service.groups.runtime.context(w.service.groups.partition_for(group)).shard
            found = shard.classic_group(group)
            return found is not None and not found.members

        async with asyncio.timeout(10):
            while not all(empty(group) for group in ("b", "c", "d")):
                await asyncio.sleep(0.01)  # its timers ring in the loop


@in_loop
async def test_every_shard_gets_its_turn_when_time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    from quorate.broker.coordinators import runtime

    monkeypatch.setattr(runtime, "TIMER_SLICE_S", 0.0)
    async with World(group_min_session_timeout_ms=10) as w:
        groups = [
            next(name for name in map(str, range(100)) if w.service.groups.partition_for(name) == p)
            for p in range(4)
        ]
        for group in groups:
            request = join_request(group=group)
            request.session_timeout_ms = 50
            request.member_id = (await w.call(ApiKey.JOIN_GROUP, request, 9)).member_id
            assert (await w.call(ApiKey.JOIN_GROUP, request, 9)).error_code == E.NONE
        async with asyncio.timeout(10):
            while {
                g.group_state for g in (await w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(), 5)).groups
            } != {"Empty"}:
                await asyncio.sleep(0.01)  # its timers ring in the loop


@in_loop
async def test_a_cancelled_fetch_leaves_no_state() -> None:
    async with World(offsets_commit_timeout_ms=SHORT_MS) as w:
        w.replicas.hold = True
        waiting = [
            asyncio.ensure_future(w.start(ApiKey.OFFSET_COMMIT, commit_request(2), 9)),
            asyncio.ensure_future(w.start(ApiKey.OFFSET_FETCH, fetch_request(9, stable=True), 9)),
        ]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert await offsets(w) == {}
        w.replicas.release()
        w.replicas.hold = False
        assert await offsets(w) == {("t", 0): 2}
        assert await commit(w, 3) == E.NONE
        assert await offsets(w, stable=True) == {("t", 0): 3}


# -- failover
# --------------------------------------------------------------------------------------------------


async def fail_over(w: World, group: str = "g") -> None:
    """Moves the partition to the other broker and back. Records beyond the high watermark stay
    uncommitted while `hold` is set."""
    partition = w.service.groups.partition_for(group)
    w.replicas.lead(partition, None)
    w.replicas.lead(partition)
    await w.loaded()


@in_loop
async def test_a_coordinator_serves_before_its_log_is_committed_completely() -> None:
    async with World(offsets_commit_timeout_ms=SHORT_MS) as w:
        member = await joined(w, 9)
        assert (await w.call(ApiKey.SYNC_GROUP, sync_request(member), 5)).error_code == E.NONE
        other = next(
            name
            for name in map(str, range(100))
            if w.service.groups.partition_for(name) == w.service.groups.partition_for("g")
        )
        w.replicas.hold = True
        assert await commit(w, 7, group=other) == E.COORDINATOR_NOT_AVAILABLE
        await fail_over(w)
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id)
        assert (await w.call(ApiKey.HEARTBEAT, beat, 4)).error_code == E.NONE
        described = (await w.call(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["g"]), 6)).groups[0]
        assert (described.group_state, len(described.members)) == ("Stable", 1)
        assert await group_ids(w) == ["g"]
        answer = w.start(ApiKey.OFFSET_FETCH, fetch_request(9), 9)
        assert fetched(await answer, 9) == {}, "at once: nothing of this group is uncommitted"


@in_loop
async def test_reads_wait_for_uncommitted_records_of_a_former_leader() -> None:
    async with World(offsets_commit_timeout_ms=SHORT_MS) as w:
        assert await commit(w, 1) == E.NONE
        w.replicas.hold = True
        assert await commit(w, 2) == E.COORDINATOR_NOT_AVAILABLE
        await fail_over(w)
        # The former leader may have acknowledged it: a fetch waits for the high watermark, ...
        answer = asyncio.ensure_future(w.start(ApiKey.OFFSET_FETCH, fetch_request(9), 9))
        await asyncio.sleep(0)
        assert not answer.done()
        # ... but not for ever, and then tells what is committed.
        assert fetched(await answer, 9) == {("t", 0): 1}
        answer = asyncio.ensure_future(w.start(ApiKey.OFFSET_FETCH, fetch_request(9), 9))
        await asyncio.sleep(0)
        w.replicas.release()
        assert fetched(await answer, 9) == {("t", 0): 2}
        assert await group_ids(w) == ["g"]


@in_loop
async def test_a_new_coordinator_continues_from_the_loaded_state() -> None:
    async with World(offsets_commit_timeout_ms=SHORT_MS) as w:
        w.replicas.hold = True
        assert await commit(w, 1) == E.COORDINATOR_NOT_AVAILABLE
        await fail_over(w)
        assert await commit(w, 2, partitions=(1,)) == E.COORDINATOR_NOT_AVAILABLE
        assert await offsets(w) == {}
        w.replicas.release()
        assert await offsets(w) == {("t", 0): 1, ("t", 1): 2}


@in_loop
async def test_an_assignment_is_repeated_only_when_it_is_committed() -> None:
    async with World(offsets_commit_timeout_ms=SHORT_MS) as w:
        member = await joined(w, 9)
        w.replicas.hold = True
        first = asyncio.ensure_future(w.start(ApiKey.SYNC_GROUP, sync_request(member), 5))
        await asyncio.sleep(0)
        await fail_over(w)
        assert (await first).error_code == E.NOT_COORDINATOR
        # The record says that the generation is stable. Another election may still lose it, and the
        # next leader would give the same generation another assignment.
        assert (
            await w.call(ApiKey.SYNC_GROUP, sync_request(member), 5)
        ).error_code == E.COORDINATOR_NOT_AVAILABLE
        w.replicas.release()
        synced = await w.call(ApiKey.SYNC_GROUP, sync_request(member), 5)
        assert (synced.error_code, bytes(synced.assignment)) == (E.NONE, b"A")


@in_loop
async def test_a_leader_that_syncs_twice_cannot_change_an_assignment_that_is_being_written() -> None:
    async with World() as w:
        member = await joined(w, 9)
        w.replicas.hold = True
        first = asyncio.ensure_future(w.start(ApiKey.SYNC_GROUP, sync_request(member, b"A"), 5))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(w.start(ApiKey.SYNC_GROUP, sync_request(member, b"B"), 5))
        await asyncio.sleep(0)
        w.replicas.release()
        w.replicas.hold = False
        assert (await first).error_code == E.REBALANCE_IN_PROGRESS
        told = await second
        assert told.error_code == E.NONE
        await w.restart()
        again = await w.call(ApiKey.SYNC_GROUP, sync_request(member), 5)
        assert bytes(again.assignment) == bytes(told.assignment), (
            "one assignment for each generation, in the log too"
        )


# -- any history
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
@in_loop
async def test_reads_always_equal_the_log_up_to_the_high_watermark(seed: int) -> None:
    """Commits, deletions, failures, delays and failovers in random order. After each of them the offsets
    are those of a coordinator that loads the committed part of the log."""
    rng = random.Random(seed)
    async with World(offsets_commit_timeout_ms=1) as w:
        partition = w.service.groups.partition_for("g")
        groups = [
            name for name in ("g", *map(str, range(60))) if w.service.groups.partition_for(name) == partition
        ][:3]
        acknowledged: dict[str, int] = {}
        for number in range(60):
            group = rng.choice(groups)
            match rng.choices(
                ["commit", "delete", "hold", "advance", "fail", "fail over"], [10, 2, 2, 3, 1, 1]
            )[0]:
                case "commit":
                    if await commit(w, number, group=group) == E.NONE:
                        acknowledged[group] = number
                case "delete":
                    acknowledged.pop(group, None)
                    await w.call(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=[group]), 2)
                case "hold":
                    w.replicas.hold = not w.replicas.hold
                    if not w.replicas.hold:
                        w.replicas.release()
                case "advance":
                    led = w.replicas.partition("__consumer_offsets", partition)
                    follower_end = rng.randint(led.log.high_watermark, led.log.log_end_offset)
                    led.follower_fetched(2, -1, follower_end, 0, led.log.log_end_offset, w.clock.now())
                case "fail":
                    w.replicas.fail_with = rng.choice(
                        [None, KafkaError(E.NOT_ENOUGH_REPLICAS), OSError("no space")]
                    )
                case "fail over":
                    await fail_over(w)
            expected = await reread(w, partition)
            for name in groups:
                answer = await w.call(ApiKey.OFFSET_FETCH, fetch_request(9, group=name), 9)
                assert fetched(answer, 9) == expected.get(name, {}), f"step {number}, group {name}"
                if name in acknowledged and not w.replicas.hold:
                    assert fetched(answer, 9)[("t", 0)] >= acknowledged[name]
        w.replicas.hold, w.replicas.fail_with = False, None
        w.replicas.release()
        expected = await reread(w, partition)
        for name in groups:
            stable = await w.call(ApiKey.OFFSET_FETCH, fetch_request(9, group=name, stable=True), 9)
            assert fetched(stable, 9) == expected.get(name, {})


async def reread(w: World, partition: int) -> dict[str, dict[tuple[str, int], int]]:
    """The offsets of all groups in the committed part of the log."""
    log = w.replicas.log(partition)
    shard = GroupCoordinatorShard(w.service.groups.config)
    loader = CoordinatorLoader("GroupCoordinator", shard, decode_record)
    for batch in w.replicas.batches(partition):
        header = parse_header(batch)
        if header.next_offset <= log.high_watermark:
            loader.replay_bytes(batch, header.base_offset)
    return {
        group: {key: value.offset for key, value in offsets.items()}
        for group, offsets in shard.state.offsets.items()
    }
