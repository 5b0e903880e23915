"""The group APIs in all their versions. Appends are real batches in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from quorate.broker.coordinators import runtime, shard_loading
from quorate.broker.coordinators.group import service
from quorate.net import turns
from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.delete_groups import DeleteGroupsRequest
from quorate.protocol.messages.describe_groups import DescribeGroupsRequest
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.heartbeat import HeartbeatRequest
from quorate.protocol.messages.join_group import JoinGroupRequest
from quorate.protocol.messages.leave_group import LeaveGroupRequest
from quorate.protocol.messages.list_groups import ListGroupsRequest
from quorate.protocol.messages.sync_group import SyncGroupRequest
from quorate.records.batch import decode_records
from tests.broker.coordinators.client import (
    Turns,
    commit_request,
    fetch_request,
    fetched,
    frame,
    in_loop,
    join_request,
    joined,
    stable_member,
    versions,
)
from tests.broker.coordinators.fakes import World

E = ErrorCode


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
async def test_an_unknown_leaving_member_is_a_top_level_error_before_version_3() -> None:
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
        counts = w.service.groups.counts
        assert counts.completed_rebalances == 0
        await w.call(ApiKey.SYNC_GROUP, request, 5)
        assert counts.completed_rebalances == 1
        await w.restart()
        described = (await w.call(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["g"]), 6)).groups[0]
        assert (described.group_state, described.protocol_data) == ("Stable", "range")
        assert [
            (m.member_id, m.client_id, m.client_host, bytes(m.member_assignment)) for m in described.members
        ] == [(member.member_id, "client", "/127.0.0.1", b"A")]
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id)
        assert (await w.call(ApiKey.HEARTBEAT, beat, 4)).error_code == E.NONE


@in_loop
async def test_waiting_members_fail_when_the_partition_moves_away() -> None:
    async with World(group_initial_rebalance_delay_ms=60_000) as w:
        first = await w.call(ApiKey.JOIN_GROUP, join_request(), 9)
        parked = asyncio.ensure_future(w.start(ApiKey.JOIN_GROUP, join_request(first.member_id), 9))
        await asyncio.sleep(0)
        w.replicas.lead(w.service.groups.partition_for("g"), None)
        assert (await parked).error_code == E.NOT_COORDINATOR


@in_loop
async def test_a_session_expires() -> None:
    async with World(group_min_session_timeout_ms=10) as w:
        request = join_request()
        request.session_timeout_ms = 60
        first = await w.call(ApiKey.JOIN_GROUP, request, 9)
        request.member_id = first.member_id
        assert (await w.call(ApiKey.JOIN_GROUP, request, 9)).error_code == E.NONE
        runtime = w.service.groups.runtime.context(w.service.groups.partition_for("g"))
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
async def test_deleting_groups_deletes_their_offsets() -> None:
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
            log.update_config(replace(log.config, max_message_bytes=2000))
        counted = Turns()
        request = DeleteGroupsRequest(groups_names=groups)
        answer = await counted.during(w.call(ApiKey.DELETE_GROUPS, request, 2))
        told = {r.group_id: r.error_code for r in answer.results}
        assert told == {group: E.UNKNOWN_SERVER_ERROR if group == "big" else E.NONE for group in groups}
        assert counted.count >= len(groups)
        listed = await w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(), 4)
        assert [g.group_id for g in listed.groups] == ["big"]


@in_loop
async def test_the_offsets_of_a_deleted_group_are_deleted_in_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also those that do not fit into one batch."""
    monkeypatch.setattr(service, "OFFSETS_AT_ONCE", 10)
    async with World() as w:
        w.metadata.topics["large"] = 200
        large = commit_request(2, topic="large", partitions=tuple(range(200)))
        await w.call(ApiKey.OFFSET_COMMIT, large, 9)
        for partition in range(4):
            log = w.replicas.log(partition)
            log.update_config(replace(log.config, max_message_bytes=2000))
        counted = Turns()
        request = DeleteGroupsRequest(groups_names=["g"])
        answer = await counted.during(w.call(ApiKey.DELETE_GROUPS, request, 2))
        assert [(r.group_id, r.error_code) for r in answer.results] == [("g", E.NONE)]
        assert counted.count >= 200 / 10
        await w.restart()
        assert (await w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(), 4)).groups == []
        assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {}


async def deletion_after(w: World, steps: int) -> asyncio.Future[Any]:
    """The deletion of a group with four offsets, after some of its steps."""
    w.metadata.topics["t"] = 5
    await w.call(ApiKey.OFFSET_COMMIT, commit_request(2, partitions=(0, 1, 2, 3)), 9)
    deletion = asyncio.ensure_future(w.call(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=["g"]), 2))
    for _ in range(steps):
        await asyncio.sleep(0)
    return deletion


@pytest.mark.parametrize("steps", range(1, 6))
@in_loop
async def test_a_group_is_deleted_with_all_its_offsets_or_keeps_them(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member joins after some steps of the deletion."""
    monkeypatch.setattr(service, "OFFSETS_AT_ONCE", 1)
    async with World() as w:
        deletion = await deletion_after(w, steps)
        await joined(w, 3)
        [result] = (await deletion).results
        left = {} if result.error_code == E.NONE else {("t", partition): 2 for partition in range(4)}
        assert result.error_code in (E.NONE, E.NON_EMPTY_GROUP)
        listed = (await w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(), 4)).groups
        assert [g.group_id for g in listed] == ["g"]
        for _ in range(2):
            assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == left
            await w.restart()


@pytest.mark.parametrize("steps", range(1, 4))
@in_loop
async def test_offsets_that_are_committed_during_a_deletion_are_deleted(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step deletes the group as one batch, with all that was committed before."""
    monkeypatch.setattr(service, "OFFSETS_AT_ONCE", 1)
    async with World() as w:
        partition = w.service.groups.partition_for("g")
        deletion = await deletion_after(w, steps)
        await w.call(ApiKey.OFFSET_COMMIT, commit_request(2, partitions=(4,)), 9)
        assert [r.error_code for r in (await deletion).results] == [E.NONE]
        assert len(decode_records(w.replicas.batches(partition)[-1])) == 6
        for _ in range(2):
            assert fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9), 9), 9) == {}
            await w.restart()


@pytest.mark.parametrize(
    ("count", "code"),
    [(service.MAX_PROTOCOLS, E.MEMBER_ID_REQUIRED), (service.MAX_PROTOCOLS + 1, E.INVALID_REQUEST)],
)
@in_loop
async def test_a_member_has_a_bounded_number_of_protocols(count: int, code: ErrorCode) -> None:
    async with World() as w:
        request = join_request()
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        request.protocols = [protocol(name=f"p{i}", metadata=b"") for i in range(count)]
        assert (await w.call(ApiKey.JOIN_GROUP, request, 9)).error_code == code


@pytest.mark.parametrize("key", [ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS])
@in_loop
async def test_a_request_about_many_groups_takes_several_turns(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request of some megabytes must not delay all other clients for seconds."""
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
        answered = (
            [one.key for one in answer.coordinators]
            if key is ApiKey.FIND_COORDINATOR
            else [one.group_id for one in answer.groups]
        )
        assert answered == groups
        assert counted.count >= len(groups)


@in_loop
async def test_concurrent_requests_about_many_groups_share_the_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they take no more of one turn of the event loop than a single request."""
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    request = DescribeGroupsRequest(groups=[f"g{i}" for i in range(100)])
    async with World() as w:
        counted = Turns()
        answers = [w.start(ApiKey.DESCRIBE_GROUPS, request, 6) for _ in range(10)]
        for answer in await counted.during(asyncio.gather(*answers)):
            assert len(answer.groups) == 100
        assert counted.count >= 10 * 100


@in_loop
async def test_a_list_of_many_groups_takes_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of 20,000 groups took 400 ms, and exporters of metrics ask for it every few seconds."""
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    async with World() as w:
        groups = [f"g{i}" for i in range(200)]
        for group in groups:
            await w.call(ApiKey.OFFSET_COMMIT, commit_request(2, group=group), 9)
        counted = Turns()
        answer = await counted.during(w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(), 5))
        assert sorted(g.group_id for g in answer.groups) == sorted(groups)
        assert counted.count >= len(groups)
        none = await counted.during(
            w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(states_filter=["Stable"]), 5)
        )
        assert none.groups == []
        assert counted.count >= 2 * len(groups)


@in_loop
async def test_the_sessions_of_many_groups_expire_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """They expire at once if a coordinator restarts without its clients. With 10,000 groups the event loop
    stood still for ten seconds, and the broker was fenced."""
    monkeypatch.setattr(runtime, "TIMER_SLICE_S", 0.0)
    monkeypatch.setattr(shard_loading, "LOAD_SLICE_S", 0.0)
    async with World() as w:
        groups = [f"g{i}" for i in range(200)]
        for group in groups:
            member = await joined(w, 5, group)
            request = SyncGroupRequest(
                group_id=group, generation_id=member.generation_id, member_id=member.member_id
            )
            assert (await w.call(ApiKey.SYNC_GROUP, request, 3)).error_code == E.NONE
        counted = Turns()
        await counted.during(w.restart())
        assert counted.count >= len(groups) // 4  # four partitions load at the same time
        later = asyncio.get_running_loop().time() + 300
        monkeypatch.setattr(w.clock, "now", lambda: later)

        async def until_empty() -> None:
            while True:
                listed = await w.call(ApiKey.LIST_GROUPS, ListGroupsRequest(states_filter=["Empty"]), 5)
                if len(listed.groups) == len(groups):
                    return
                await asyncio.sleep(0)

        w.service.groups.runtime.topics_deleted(frozenset())  # looks at the timers
        counted = Turns()
        await counted.during(until_empty())
        assert counted.count >= len(groups)


# -- heartbeats that are answered from their bytes
# --------------------------------------------------------------------------------------------------


def heartbeat(member: Any, **fields: Any) -> HeartbeatRequest:
    known = {"group_id": "g", "generation_id": member.generation_id, "member_id": member.member_id}
    return HeartbeatRequest(**known | fields)


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
@in_loop
async def test_a_heartbeat_is_answered_as_by_the_handler_and_restarts_the_session(version: int) -> None:
    async with World() as w:
        member = await stable_member(w)
        context = w.service.groups.runtime.context(w.service.groups.partition_for("g"))
        for correlation_id in (3, 4):
            before = context.shard.timer.next_deadline()
            data = frame(heartbeat(member), version, correlation_id)
            while w.clock.now() + 10 <= before:  # type: ignore[operator]
                await asyncio.sleep(0)
            answer = w.start_frame(data)
            assert context.shard.timer.next_deadline() > before
            assert answer == await w.answer_frame(data, by_handler=True)
            assert int.from_bytes(answer[4:8], "big") == correlation_id  # type: ignore[index]


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"group_id": "h"},
        {"generation_id": 99},
        {"member_id": "m"},
        {"group_instance_id": "i"},
        {"member_id": "m" * 2000},
    ],
    ids=lambda fields: next(iter(fields)),
)
@in_loop
async def test_a_heartbeat_with_an_error_is_left_to_the_handler(fields: dict[str, Any]) -> None:
    async with World() as w:
        member = await stable_member(w)
        data = frame(heartbeat(member, **fields), 4)
        for _ in range(2):
            assert w.start_frame(data) is None


@in_loop
async def test_a_repeated_heartbeat_follows_its_group() -> None:
    async with World() as w:
        member = await stable_member(w)
        data = frame(heartbeat(member), 4)
        assert isinstance(w.start_frame(data), bytes)
        join = w.start(ApiKey.JOIN_GROUP, join_request(group="g"), 3)  # begins a rebalance
        assert w.start_frame(data) is None
        assert E.REBALANCE_IN_PROGRESS in (await w.answer_frame(data))[-3:]
        leave = LeaveGroupRequest(
            group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=member.member_id)]
        )
        await w.call(ApiKey.LEAVE_GROUP, leave, 5)
        await join
        assert w.start_frame(data) is None
        w.replicas.lead(w.service.groups.partition_for("g"), epoch=None)
        assert w.start_frame(data) is None


@in_loop
async def test_a_malformed_heartbeat_is_left_to_the_handler() -> None:
    async with World() as w:
        data = frame(heartbeat(await stable_member(w)), 4)
        for end in range(8, len(data)):
            assert w.start_frame(data[:end]) is None
        assert w.start_frame(data[:2] + b"\1\4" + data[4:]) is None
