"""Classic groups and their offsets: JoinGroup, SyncGroup, Heartbeat, LeaveGroup,
Describe/List/DeleteGroups, OffsetCommit, OffsetFetch, OffsetDelete, FindCoordinator."""

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
from tests.support.differential import Answer

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
Member = LeaveGroupRequest.MemberIdentity


def join(
    group: str, member: str = "", version: int = 5, *, protocols: tuple[str, ...] = ("range",), **more: Any
) -> JoinGroupRequest:
    fields: dict[str, Any] = {
        "session_timeout_ms": 6000,
        "rebalance_timeout_ms": 3000,
        "protocol_type": "consumer",
        **more,
    }
    if version == 0:
        del fields["rebalance_timeout_ms"]
    offered = [
        JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=name.encode()) for name in protocols
    ]
    return JoinGroupRequest(group_id=group, member_id=member, protocols=offered, **fields)


def sync(
    group: str, generation: int, member: str, assigned: dict[str, bytes] | None = None, **more: Any
) -> SyncGroupRequest:
    parts = [
        SyncGroupRequest.SyncGroupRequestAssignment(member_id=m, assignment=a)
        for m, a in (assigned or {}).items()
    ]
    return SyncGroupRequest(
        group_id=group, generation_id=generation, member_id=member, assignments=parts, **more
    )


def beat(group: str, generation: int, member: str, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
    )


def commit(group: str, topic: str, *parts: tuple[int, int, str | None], **more: Any) -> OffsetCommitRequest:
    made = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=p, committed_offset=o, committed_metadata=m
        )
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
    s.ask(
        "old id leaves",
        LeaveGroupRequest(group_id=g, members=[Member(member_id=first, group_instance_id="i")]),
        4,
    )
    s.ask("old id joins", join(g, first, group_instance_id="i"), 5)
    s.ask("known id, unknown instance", join(g, second.member_id, group_instance_id="j"), 5)
    s.ask("joins with version 9", join(g, group_instance_id="i", version=9), 9)
    s.ask("describe", DescribeGroupsRequest(groups=[g]), 6)
    s.ask(
        "leaves by instance",
        LeaveGroupRequest(group_id=g, members=[Member(member_id="", group_instance_id="i")]),
        5,
    )
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
    s.ask(
        "commit before sync", commit(g, topic, (0, 1, ""), **{**now, "generation_id_or_member_epoch": 2}), 7
    )
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
    group_of, topics_of = (
        OffsetFetchRequest.OffsetFetchRequestGroup,
        OffsetFetchRequest.OffsetFetchRequestTopics,
    )
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
        where = (
            [] if name is None else [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=rows)]
        )
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


def subscription(*topics: str) -> bytes:
    """The subscription of a consumer: version 0, its topics, no user data."""
    named = b"".join(len(t.encode()).to_bytes(2, "big") + t.encode() for t in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + named + b"\xff\xff\xff\xff"


def consumer_join(
    group: str, member: str, metadata: bytes, version: int = 3, **more: Any
) -> JoinGroupRequest:
    request = join(group, member, version, **more)
    request.protocols[0].metadata = metadata
    return request


def remove(group: str, *topics: tuple[str, int]) -> OffsetDeleteRequest:
    row = OffsetDeleteRequest.OffsetDeleteRequestPartition
    where = OffsetDeleteRequest.OffsetDeleteRequestTopic
    return OffsetDeleteRequest(
        group_id=group,
        topics=[where(name=name, partitions=[row(partition_index=index)]) for name, index in topics],
    )


@case
def join_limits(s: Script) -> None:
    g = s.group("jl")
    for label, fields in (
        ("5999 ms", {"session_timeout_ms": 5999}),
        ("6000 ms", {"session_timeout_ms": 6000}),
        ("1800000 ms", {"session_timeout_ms": 1_800_000}),
        ("1800001 ms", {"session_timeout_ms": 1_800_001}),
        ("rebalance 0", {"rebalance_timeout_ms": 0}),
        ("rebalance -1", {"rebalance_timeout_ms": -1}),
        ("rebalance least", {"rebalance_timeout_ms": -(2**31)}),
        ("a long reason", {"reason": "r" * 1000}),
        ("an empty instance", {"group_instance_id": ""}),
        ("a long instance", {"group_instance_id": "i" * 32_000}),
    ):
        name = s.name(label)
        for v in (5, 9):
            answer = s.ask(f"{label} v{v}", join(f"{name}{v}", version=v, **fields), v)
            if answer.response is not None and answer.response.error_code == 79:
                member = answer.response.member_id
                s.ask(f"{label} with an id v{v}", join(f"{name}{v}", member, v, **fields), v)
    for label, client in (
        ("no client id", None),
        ("an empty client id", ""),
        ("a long client id", "c" * 32_700),
    ):
        name = s.name(label)
        answer = s.ask(label, join(name, version=3), 3, client_id=client)
        if answer.response is not None:
            member = answer.response.member_id
            s.steps.append((f"{label}: the member's", Answer(None, member[:-36][:200])))
            s.ask(f"{label}: sync", sync(name, 1, member, {member: b"A"}), 3, client_id=client)
            s.ask(f"{label}: describe", DescribeGroupsRequest(groups=[name]), 5)
    s.ask("a long group", join("g" * 32_767, version=3), 3)
    s.ask("beat", beat(g, 1, ""), 3)


@case
def pending_members(s: Script) -> None:
    g = s.group("pm")
    member = s.ask("given an id", join(g, version=4), 4).response.member_id
    seen = DescribeGroupsRequest(groups=[g])
    wait_for("the group to be written", lambda: not s.peer.ask(seen, 6).response.groups[0].error_code)
    s.ask("describe", DescribeGroupsRequest(groups=[g]), 6)
    s.ask("beats", beat(g, 0, member), 3)
    s.ask("beats with -1", beat(g, -1, member), 3)
    s.ask("syncs", sync(g, 0, member), 3)
    now = {"generation_id_or_member_epoch": 0, "member_id": member}
    s.topic("pmt", 1)
    topic = s.name("pmt")
    s.ask("commits", commit(g, topic, (0, 1, ""), **now), 8)
    s.ask("commits simply", commit(g, topic, (0, 1, "")), 8)
    s.ask("joins as another type", join(g, member, 4, protocol_type="connect"), 4)
    s.ask("joins as an instance", join(g, member, 5, group_instance_id="i"), 5)
    s.ask("joins with nothing", join(g, member, 5, protocols=()), 5)
    s.ask(
        "leaves with an instance",
        LeaveGroupRequest(group_id=g, members=[Member(member_id=member, group_instance_id="i")]),
        4,
    )
    s.ask("leaves", LeaveGroupRequest(group_id=g, members=[Member(member_id=member)]), 4)
    s.ask("leaves again", LeaveGroupRequest(group_id=g, members=[Member(member_id=member)]), 4)
    s.ask("joins", join(g, member, 5), 5)
    member = s.ask("given another", join(g, version=4), 4).response.member_id
    s.ask("the group is deleted", DeleteGroupsRequest(groups_names=[g]), 2)
    s.ask("joins a deleted group", join(g, member, 4), 4)


@case
def in_every_state(s: Script) -> None:
    g = s.group("es")
    s.topic("est", 2)
    topic, other = s.name("est"), s.name("eso")
    s.topic("eso", 1)
    s.ask("a commit of nobody", commit(g, topic, (0, 1, "")), 8)

    def look(state: str, generation: int, member: str) -> None:
        s.ask(f"{state}: describe", DescribeGroupsRequest(groups=[g]), 5)
        for label, fields in (
            ("of nobody", {}),
            ("of the member", {"generation_id_or_member_epoch": generation, "member_id": member}),
            ("of an old generation", {"generation_id_or_member_epoch": generation - 1, "member_id": member}),
            ("of the member without a generation", {"member_id": member}),
            ("of no member with a generation", {"generation_id_or_member_epoch": generation}),
            ("of an instance", {"group_instance_id": "i"}),
        ):
            s.ask(f"{state}: a commit {label}", commit(g, topic, (0, 2, ""), **fields), 8)
        s.ask(f"{state}: offsets deleted", remove(g, (topic, 0), (other, 0), (s.name("none"), 0)), 0)
        s.ask(f"{state}: the group deleted", DeleteGroupsRequest(groups_names=[g]), 2)
        s.ask(f"{state}: a stranger beats", beat(g, generation, "stranger"), 3)
        s.ask(f"{state}: beat", beat(g, generation, member), 3)
        for filters in (
            ["empty"],
            ["STABLE"],
            ["CompletingRebalance", "preparingrebalance"],
            ["Dead", "Assigning"],
        ):
            listed = s.peer.ask(ListGroupsRequest(states_filter=filters), 5).response.groups
            found = [
                (x.group_id == g, x.group_state, x.protocol_type, x.group_type)
                for x in listed
                if x.group_id == g
            ]
            s.steps.append((f"{state}: listed by {filters}", Answer(None, repr(found))))

    a = s.ask("A joins", consumer_join(g, "", subscription(topic)), 3).response.member_id
    look("completing", 1, a)
    s.ask("A syncs without assignments", sync(g, 1, a), 3)
    s.ask("A joins again, the same", consumer_join(g, a, subscription(topic)), 3)
    s.ask("A syncs", sync(g, 2, a, {a: b"A"}), 3)
    look("stable", 2, a)
    joining = consumer_join(g, "", subscription(topic))
    s.peer.send(joining, 3, via="B")
    wait_for("the rebalance", lambda: s.peer.ask(beat(g, 2, a), 3).response.error_code == 27)
    look("preparing", 2, a)
    b = s.later("B is alone, A did not come back", joining, 3, via="B").response
    s.ask("A beats", beat(g, 3, a), 3)
    s.ask("A joins too late", consumer_join(g, a, subscription(topic)), 3)
    look("completing without A", b.generation_id, b.member_id)
    wait_for(
        "B to be late with its sync",
        lambda: s.peer.ask(beat(g, 3, b.member_id), 3).response.error_code != 0,
        20,
    )
    s.ask("B syncs too late", sync(g, 3, b.member_id, {b.member_id: b"B"}), 3)
    look("after the late sync", 4, b.member_id)
    s.ask("B joins anew", consumer_join(g, b.member_id, subscription(topic)), 3)


@case
def unreadable_subscriptions(s: Script) -> None:
    g = s.group("us")
    s.topic("ust", 1)
    topic = s.name("ust")
    for label, metadata, kind in (  # with a cut list or a wrong count, Kafka never answers the join
        ("nothing", b"", "consumer"),
        ("version -1", b"\xff\xff" + subscription(topic)[2:], "consumer"),
        ("version 99", b"\0\x63" + subscription(topic)[2:], "consumer"),
        ("without user data", subscription(topic)[:-4], "consumer"),
        ("no topics", subscription(), "consumer"),
        ("another type", subscription(topic), "connect"),
    ):
        name = f"{g}-{label}"
        s.ask(f"{label}: commit", commit(name, topic, (0, 1, "")), 8)
        a = s.ask(
            f"{label}: join", consumer_join(name, "", metadata, protocol_type=kind), 3
        ).response.member_id
        s.ask(f"{label}: sync", sync(name, 1, a, {a: b"A"}), 3)
        s.ask(f"{label}: delete", remove(name, (topic, 0)), 0)
        s.ask(f"{label}: fetch", OffsetFetchRequest(group_id=name, topics=None), 5)
        s.ask(
            f"{label}: leave twice",
            LeaveGroupRequest(group_id=name, members=[Member(member_id=a), Member(member_id=a)]),
            4,
        )
        s.ask(f"{label}: delete when empty", remove(name, (topic, 0)), 0)
        s.ask(f"{label}: describe", DescribeGroupsRequest(groups=[name]), 5)


@case
def strange_commits(s: Script) -> None:
    g = s.group("sc")
    s.topic("sct", 3)
    topic = s.name("sct")
    for label, metadata in (
        ("4096 wide ones", "é" * 4096),
        ("2048 astral ones", "\U0001f600" * 2048),
        ("2049 astral ones", "\U0001f600" * 2049),
        ("NUL", "\0"),
    ):
        s.ask(f"metadata of {label}", commit(g, topic, (0, 1, metadata)), 8)
        s.ask(f"metadata of {label}, fetched", OffsetFetchRequest(group_id=g, topics=None), 5)
    request = commit(g, topic, (0, 1, ""))
    request.topics += commit(g, topic, (1, 2, "")).topics + commit(g, s.name("none"), (1, 2, "")).topics
    s.ask("a topic twice", request, 8)
    for v in (2, 4):
        for retention in (-2, -1, 0, 1, LONG_MAX):
            s.ask(f"retention {retention} v{v}", commit(g, topic, (2, 3, ""), retention_time_ms=retention), v)
    s.ask("fetched", OffsetFetchRequest(group_id=g, topics=None), 7)
    entry = OffsetFetchRequest.OffsetFetchRequestTopic
    twice = [
        entry(name=topic, partition_indexes=[0, 0]),
        entry(name=topic, partition_indexes=[1]),
        entry(name=""),
    ]
    s.ask("fetched twice", OffsetFetchRequest(group_id=g, topics=twice), 7)
    group_of = OffsetFetchRequest.OffsetFetchRequestGroup
    s.ask("a group twice", OffsetFetchRequest(groups=[group_of(group_id=g), group_of(group_id=g)]), 8)
    s.ask("no groups", OffsetFetchRequest(groups=[]), 8)
    s.ask("leader epoch", commit(g, topic, (0, 1, "")), 6)


@case
def static_members_meet(s: Script) -> None:
    g = s.group("sm")
    a = s.ask("A joins", join(g, group_instance_id="a", rebalance_timeout_ms=6000), 5).response.member_id
    s.ask("A syncs", sync(g, 1, a, {a: b"A"}), 3)
    joining = join(g, group_instance_id="b")
    s.peer.send(joining, 5, via="B")
    wait_for("the rebalance", lambda: s.peer.ask(beat(g, 1, a), 3).response.error_code == 27)
    again = join(g, group_instance_id="b")
    s.peer.send(again, 5, via="B2")
    s.later("B, whose instance joined again", joining, 5, via="B")
    back = s.ask("A joins with its id", join(g, a, 5, group_instance_id="a"), 5).response
    second = s.later("B again", again, 5, via="B2").response
    leader = back.leader
    waiting = sync(g, 2, second.member_id, group_instance_id="b")
    if leader == a:
        s.peer.send(waiting, 3, via="B")
        third = join(g, group_instance_id="b")
        s.peer.send(third, 5, via="B3")
        s.later("B's sync, whose instance joined again", waiting, 3, via="B")
        s.ask("A joins once more", join(g, a, 5, group_instance_id="a"), 5)
        third_b = s.later("B a third time", third, 5, via="B3").response
        s.ask("A syncs again", sync(g, third_b.generation_id, a, {a: b"A2", third_b.member_id: b"B2"}), 3)
        s.ask("B syncs", sync(g, third_b.generation_id, third_b.member_id, group_instance_id="b"), 3)
        fourth = s.ask("B comes back while stable", join(g, group_instance_id="b"), 5).response
        s.ask(
            "B syncs its old assignment",
            sync(g, fourth.generation_id, fourth.member_id, group_instance_id="b"),
            3,
        )
        s.ask("the leader comes back while stable", join(g, group_instance_id="a"), 5)
        s.ask("the leader comes back with version 9", join(g, group_instance_id="a", version=9), 9)
    s.ask("describe", DescribeGroupsRequest(groups=[g]), 5)
    wrong = [Member(member_id="zz", group_instance_id="a"), Member(member_id="", group_instance_id="zz")]
    s.ask("wrong ones leave", LeaveGroupRequest(group_id=g, members=wrong), 4)
    both = [Member(member_id="", group_instance_id=i) for i in ("a", "b", "a")]
    s.ask("all leave, one twice", LeaveGroupRequest(group_id=g, members=both), 4)
    s.ask("describe empty", DescribeGroupsRequest(groups=[g]), 5)


@case
def sessions_end(s: Script) -> None:
    g = s.group("se")
    a = s.ask("join", join(g, version=3), 3).response.member_id
    s.ask("sync", sync(g, 1, a, {a: b"A"}), 3)
    wait_for(
        "the session to end",
        lambda: s.peer.ask(DescribeGroupsRequest(groups=[g]), 5).response.groups[0].group_state == "Empty",
        20,
    )
    s.ask("describe", DescribeGroupsRequest(groups=[g]), 5)
    s.ask("beat", beat(g, 1, a), 3)
    s.ask("beat of the next generation", beat(g, 2, a), 3)
    s.ask("sync after", sync(g, 1, a), 3)
    s.ask("join with the old id", join(g, a, 3), 3)
    s.ask("join anew", join(g, version=3), 3)


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
