"""Classic groups and their offsets: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, Describe/List/DeleteGroups, OffsetCommit,
OffsetFetch, OffsetDelete, FindCoordinator."""

from __future__ import annotations

from typing import Any

from quorate.protocol.messages.delete_groups import DeleteGroupsRequest
from quorate.protocol.messages.describe_groups import DescribeGroupsRequest
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.heartbeat import HeartbeatRequest
from quorate.protocol.messages.join_group import JoinGroupRequest
from quorate.protocol.messages.leave_group import LeaveGroupRequest
from quorate.protocol.messages.list_groups import ListGroupsRequest
from quorate.protocol.messages.offset_commit import OffsetCommitRequest
from quorate.protocol.messages.offset_delete import OffsetDeleteRequest
from quorate.protocol.messages.offset_fetch import OffsetFetchRequest
from quorate.protocol.messages.sync_group import SyncGroupRequest
from tests.interop.differential.script import Script, case
from tests.support.cluster import wait_for

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
Member = LeaveGroupRequest.MemberIdentity


def join(
    group: str, member: str = "", version: int = 5, *, protocols: tuple[str, ...] = ("range",), **more: Any
) -> JoinGroupRequest:
    fields: dict[str, Any] = {"session_timeout_ms": 6000, "rebalance_timeout_ms": 3000, "protocol_type": "consumer", **more}
    if version == 0:
        del fields["rebalance_timeout_ms"]
    offered = [JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=name.encode()) for name in protocols]
    return JoinGroupRequest(group_id=group, member_id=member, protocols=offered, **fields)


def sync(group: str, generation: int, member: str, assigned: dict[str, bytes] | None = None, **more: Any) -> SyncGroupRequest:
    parts = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in (assigned or {}).items()]
    return SyncGroupRequest(group_id=group, generation_id=generation, member_id=member, assignments=parts, **more)


def beat(group: str, generation: int, member: str, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, group_instance_id=instance)


def commit(group: str, topic: str, *parts: tuple[int, int, str | None], **more: Any) -> OffsetCommitRequest:
    made = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=p, committed_offset=o, committed_metadata=m)
        for p, o, m in parts
    ]
    where = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=made)
    return OffsetCommitRequest(group_id=group, topics=[where], **more)


@case
def classic_members(s: Script) -> None:
    g, unknown = s.group("g"), s.name("unknown")
    for v in range(10):
        for label, request in (
            ("empty group", join("", version=v)),
            ("unknown member", join(g, "nope", v)),
            ("no protocol type", join(g, version=v, protocol_type="")),
            ("no protocols", join(g, version=v, protocols=())),
            ("timeout 1", join(g, version=v, session_timeout_ms=1)),
            ("timeout -1", join(g, version=v, session_timeout_ms=-1)),
            ("greatest timeout", join(g, version=v, session_timeout_ms=INT_MAX)),
        ):
            s.ask(f"{label} v{v}", request, v)
    for v in (4, 9):
        s.ask(f"must come with an id v{v}", join(s.name("g2"), version=v), v)
    member = s.ask("first", join(g, version=3), 3).response.member_id
    s.ask("the same again", join(g, member, 3), 3)
    s.ask("another protocol type", join(g, version=3, protocol_type="connect"), 3)
    s.ask("nothing in common", join(g, version=3, protocols=("zz",)), 3)
    for label, generation, who, group in (
        ("old", 1, member, g),
        ("future", 9, member, g),
        ("-1", -1, member, g),
        ("unknown member", 2, "zz", g),
        ("no member", 2, "", g),
        ("unknown group", 2, member, unknown),
        ("empty group", 2, member, ""),
    ):
        s.ask(f"sync: {label}", sync(group, generation, who), 3)
    for label, fields in (
        ("names no protocol", {}),
        ("wrong type", {"protocol_type": "connect", "protocol_name": "range"}),
        ("wrong name", {"protocol_type": "consumer", "protocol_name": "zz"}),
    ):
        s.ask(f"sync: {label}", sync(g, 2, member, **fields), 5)
    s.ask("sync: unknown instance", sync(g, 2, member, group_instance_id="i"), 3)
    s.ask("heartbeat before sync", beat(g, 2, member), 3)
    s.ask("sync", sync(g, 2, member, {member: b"A", "zz": b"B"}), 3)
    s.ask("sync again", sync(g, 2, member, {member: b"C"}), 3)
    for label, generation, who, group in (
        ("good", 2, member, g),
        ("old", 1, member, g),
        ("future", 3, member, g),
        ("-1", -1, member, g),
        ("unknown member", 2, "zz", g),
        ("no member", 2, "", g),
        ("unknown group", 2, member, unknown),
        ("empty group", 2, member, ""),
    ):
        s.ask(f"heartbeat: {label}", beat(group, generation, who), 3)
    s.ask("heartbeat: unknown instance", beat(g, 2, member, "i"), 3)
    for v in range(7):
        s.ask(f"describe v{v}", DescribeGroupsRequest(groups=[g, unknown, "", g]), v)
    s.ask("delete while it has members", DeleteGroupsRequest(groups_names=[g, unknown, "", g]), 2)
    for label, request, v in (
        ("unknown group", LeaveGroupRequest(group_id=unknown, member_id="x"), 2),
        ("empty group", LeaveGroupRequest(group_id="", member_id="x"), 2),
        ("unknown member", LeaveGroupRequest(group_id=g, member_id="x"), 2),
        ("nobody", LeaveGroupRequest(group_id=g), 5),
        ("unknown group v3", LeaveGroupRequest(group_id=unknown, members=[Member(member_id="x")]), 3),
        (
            "three wrong",
            LeaveGroupRequest(
                group_id=g,
                members=[
                    Member(member_id="x"),
                    Member(member_id="", group_instance_id="i"),
                    Member(member_id=member, group_instance_id="i"),
                ],
            ),
            4,
        ),
        ("good", LeaveGroupRequest(group_id=g, member_id=member), 2),
        ("again", LeaveGroupRequest(group_id=g, member_id=member), 2),
    ):
        s.ask(f"leave: {label}", request, v)
    s.ask("heartbeat of one that left", beat(g, 2, member), 3)
    s.ask("sync of one that left", sync(g, 2, member), 3)
    s.ask("describe empty", DescribeGroupsRequest(groups=[g]), 6)
    s.ask("delete", DeleteGroupsRequest(groups_names=[g]), 2)
    for v in (5, 6):
        s.ask(f"describe deleted v{v}", DescribeGroupsRequest(groups=[g]), v)
    s.ask("delete again", DeleteGroupsRequest(groups_names=[g]), 2)


@case
def list_groups(s: Script) -> None:
    for label, states, types, v in (
        ("unknown states", ["nope"], [], 5),
        ("unknown type", [], ["nope"], 5),
        ("types in any case", [], ["Streams"], 5),
        ("no dead ones", ["Dead"], [], 4),
    ):
        s.ask(label, ListGroupsRequest(states_filter=states, types_filter=types), v)


@case
def static_members(s: Script) -> None:
    g = s.group("st")
    first = s.ask("join", join(g, group_instance_id="i"), 5).response.member_id
    s.ask("sync", sync(g, 1, first, {first: b"A"}, group_instance_id="i"), 3)
    second = s.ask("join anew", join(g, group_instance_id="i"), 5).response
    s.ask("old id beats", beat(g, 1, first, "i"), 3)
    s.ask("new id beats", beat(g, second.generation_id, second.member_id, "i"), 3)
    s.ask("old id syncs", sync(g, 1, first, group_instance_id="i"), 3)
    fenced = {"generation_id_or_member_epoch": 1, "member_id": first, "group_instance_id": "i"}
    s.ask("old id commits", commit(g, "x", (0, 1, ""), **fenced), 8)
    s.ask("old id leaves", LeaveGroupRequest(group_id=g, members=[Member(member_id=first, group_instance_id="i")]), 4)
    s.ask("old id joins", join(g, first, group_instance_id="i"), 5)
    s.ask("known id, unknown instance", join(g, second.member_id, group_instance_id="j"), 5)
    s.ask("joins with version 9", join(g, group_instance_id="i", version=9), 9)
    s.ask("describe", DescribeGroupsRequest(groups=[g]), 6)
    s.ask("leaves by instance", LeaveGroupRequest(group_id=g, members=[Member(member_id="", group_instance_id="i")]), 5)
    s.ask("other protocols", join(g, group_instance_id="i", version=9, protocols=("range", "rr")), 9)


@case
def a_rebalance(s: Script) -> None:
    g, topic = s.group("two"), s.name("x")
    a = s.ask("A", join(g, version=3), 3).response.member_id
    s.ask("sync A", sync(g, 1, a, {a: b"A"}), 3)
    joining = join(g, version=3)
    s.peer.send(joining, 3, via="B")
    wait_for("the rebalance", lambda: s.peer.ask(beat(g, 1, a), 3).response.error_code == 27)
    now = {"generation_id_or_member_epoch": 1, "member_id": a}
    s.ask("commit meanwhile", commit(g, topic, (0, 1, ""), **now), 7)
    s.ask("sync meanwhile", sync(g, 1, a), 3)
    s.ask("describe meanwhile", DescribeGroupsRequest(groups=[g]), 5)
    leader = s.ask("A again", join(g, a, 3), 3).response.leader
    b = s.later("B", joining, 3, via="B").response.member_id
    waiting = sync(g, 2, b)
    s.peer.send(waiting, 3, via="B")
    s.ask("commit before sync", commit(g, topic, (0, 1, ""), **{**now, "generation_id_or_member_epoch": 2}), 7)
    s.ask("sync leader", sync(g, 2, leader, {a: b"A", b: b"B"}), 3)
    s.later("sync B", waiting, 3, via="B")
    s.ask("B leaves", LeaveGroupRequest(group_id=g, member_id=b), 2)
    s.ask("A learns it", beat(g, 2, a), 3)


@case
def offsets(s: Script) -> None:
    g, unknown = s.group("of"), s.name("unknown")
    s.topic("ot", 2)
    topic, nope = s.name("ot"), s.name("nope")
    for v in range(2, 10):
        s.ask(f"commit v{v}", commit(g, topic, (0, v, "md")), v)
    for label, parts in (
        ("two", ((0, 5, None), (1, 6, ""))),
        ("twice", ((0, 7, ""), (0, 8, ""))),
        ("offset -5", ((0, -5, ""),)),
        ("offset -1", ((1, -1, ""),)),
        ("greatest", ((0, LONG_MAX, ""),)),
        ("4096 of metadata", ((0, 1, "x" * 4096),)),
        ("4097 of metadata", ((0, 1, "x" * 4097), (1, 9, "ok"))),
        ("unknown partition", ((9, 1, ""), (0, 3, ""))),
        ("partition -1", ((-1, 1, ""),)),
    ):
        s.ask(f"commit {label}", commit(g, topic, *parts), 8)
    s.ask("commit unknown topic", commit(g, nope, (0, 1, "")), 8)
    s.ask("commit no topic", OffsetCommitRequest(group_id=g), 8)
    s.ask("commit empty name", commit(g, "", (0, 1, "")), 8)
    s.ask("commit unknown instance", commit(g, topic, (0, 1, ""), group_instance_id="i"), 8)
    for v in (2, 7, 9):
        for label, group, generation, member in (
            ("generation 5", g, 5, ""),
            ("generation 0", g, 0, ""),
            ("generation -2", g, -2, ""),
            ("a member", g, -1, "zz"),
            ("a member's generation", g, 5, "zz"),
            ("empty group", "", -1, ""),
            ("unknown group", unknown, 3, "zz"),
        ):
            fields = {"generation_id_or_member_epoch": generation, "member_id": member}
            s.ask(f"commit with {label} v{v}", commit(group, topic, (0, 1, ""), **fields), v)
    wanted = OffsetFetchRequest.OffsetFetchRequestTopic
    for v in range(1, 8):
        some = [wanted(name=topic, partition_indexes=[0, 1, 9, -1]), wanted(name=nope, partition_indexes=[0])]
        s.ask(f"fetch v{v}", OffsetFetchRequest(group_id=g, topics=some), v)
        s.ask(f"fetch nothing v{v}", OffsetFetchRequest(group_id=g, topics=[]), v)
        for group in (unknown, ""):
            s.ask(f"fetch of {group[-3:]!r} v{v}", OffsetFetchRequest(group_id=group, topics=some[:1]), v)
        if v >= 2:
            s.ask(f"fetch all v{v}", OffsetFetchRequest(group_id=g, topics=None), v)
    group_of, topics_of = OffsetFetchRequest.OffsetFetchRequestGroup, OffsetFetchRequest.OffsetFetchRequestTopics
    for v in (8, 9):
        for stable in (False, True):
            asked = [
                group_of(group_id=g, topics=[topics_of(name=topic, partition_indexes=[0, 1, 9])]),
                group_of(group_id=unknown, topics=None),
                group_of(group_id="", topics=[]),
            ]
            s.ask(f"fetch v{v} stable {stable}", OffsetFetchRequest(groups=asked, require_stable=stable), v)
    for epoch in (3, -1):
        asked = [group_of(group_id=g, member_id="zz", member_epoch=epoch, topics=None)]
        s.ask(f"fetch with epoch {epoch}", OffsetFetchRequest(groups=asked), 9)

    def delete(label: str, group: str, name: str | None, *parts: int) -> None:
        rows = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=p) for p in parts]
        where = [] if name is None else [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=rows)]
        s.ask(f"delete {label}", OffsetDeleteRequest(group_id=group, topics=where), 0)

    delete("of an unknown group", unknown, topic, 0)
    delete("of an empty group", "", None)
    delete("of an unknown topic", g, nope, 0)
    delete("of unknown partitions", g, topic, 9, -1)
    delete("twice at once", g, topic, 0, 0)
    delete("again", g, topic, 0)
    delete("nothing", g, None)
    s.ask("describe", DescribeGroupsRequest(groups=[g]), 6)
    s.ask("delete the group twice at once", DeleteGroupsRequest(groups_names=[g, g]), 2)
    s.ask("fetch deleted", OffsetFetchRequest(group_id=g, topics=None), 7)


@case
def find_coordinator(s: Script) -> None:
    g = s.group("fc")
    for v in range(7):
        for kind in (0, 2, 3, -1) if v else (0,):
            for key in (g, ""):
                where: dict[str, Any] = {"key": key} if v < 4 else {"coordinator_keys": [key]}
                s.ask(f"type {kind} of {key[-2:]!r} v{v}", FindCoordinatorRequest(key_type=kind, **where), v)
    s.ask("twice", FindCoordinatorRequest(coordinator_keys=[g, g, ""]), 4)
    s.ask("nothing", FindCoordinatorRequest(), 4)
