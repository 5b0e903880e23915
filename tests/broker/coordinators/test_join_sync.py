"""JoinGroup, SyncGroup and LeaveGroup of classic groups, with the responses of Kafka's coordinator."""

from __future__ import annotations

import pytest

from quorate.broker.coordinators.group.classic.classic_group import ClassicGroupMember, ClassicGroupState
from quorate.broker.coordinators.group.config import GroupCoordinatorConfig
from quorate.broker.coordinators.group.model import GroupRecord
from quorate.protocol.errors import ErrorCode
from tests.broker.coordinators.harness import Harness

E = ErrorCode


def state(h: Harness, group: str = "g") -> ClassicGroupState:
    found = h.shard.classic_group(group)
    assert found is not None
    return found.state


def test_new_dynamic_member_is_first_given_its_id() -> None:
    h = Harness()
    answer = h.answers[h.join(client="app")]
    assert answer.error_code == E.MEMBER_ID_REQUIRED
    assert answer.member_id == "app-id1"
    assert h.log and isinstance(h.log[0], GroupRecord), "the new group is made durable"


def test_old_version_joins_at_once_without_knowing_its_id() -> None:
    h = Harness()
    token = h.join(version=3)
    assert token not in h.answers
    h.advance(3.1)
    assert h.answers[token].error_code == E.NONE
    assert h.answers[token].leader == h.answers[token].member_id


def test_the_first_rebalance_waits_and_its_delay_is_extended_while_members_join() -> None:
    h = Harness()
    _, a = h.new_member()
    h.advance(2.9)
    _, b = h.new_member()
    h.advance(0.2)
    assert a not in h.answers, "a member came during the delay: it is extended"
    h.advance(3.0)
    assert {h.answers[a].generation_id, h.answers[b].generation_id} == {1}


def test_initial_delay_is_bounded_by_the_rebalance_timeout() -> None:
    h = Harness()
    tokens = [h.new_member(rebalance_ms=7_000)[1]]
    for _ in range(6):
        h.advance(1.5)
        if tokens[0] in h.answers:
            break
        tokens.append(h.new_member(rebalance_ms=7_000)[1])
    assert tokens[0] in h.answers
    assert h.now <= 100 + 9.1


def test_without_a_delay_the_first_member_alone_is_a_generation() -> None:
    h = Harness(GroupCoordinatorConfig(initial_rebalance_delay_ms=0))
    member_id, token = h.new_member()
    answer = h.answers[token]
    assert (answer.error_code, answer.generation_id, answer.leader) == (E.NONE, 1, member_id)
    assert [m.member_id for m in answer.members] == [member_id]


def test_only_the_leader_gets_the_list_of_members() -> None:
    h = Harness()
    tokens = [h.new_member(protocols=[("range", b"%d" % i)])[1] for i in range(3)]
    h.advance(6.1)
    with_members = [h.answers[t] for t in tokens if h.answers[t].members]
    assert len(with_members) == 1
    assert with_members[0].member_id == with_members[0].leader
    assert sorted(bytes(m.metadata) for m in with_members[0].members) == [b"0", b"1", b"2"]


def test_assignment_reaches_followers_that_synced_before_and_after_the_leader() -> None:
    h = Harness()
    joined = [h.new_member() for _ in range(3)]
    h.advance(6.1)
    leader = h.answers[joined[0][1]].leader
    early, late = (m for m, _ in joined if m != leader)
    parked = h.sync(early, 1)
    assert parked not in h.answers
    lead = h.sync(leader, 1, {early: b"E", late: b"L", leader: b"D"})
    assert state(h) is ClassicGroupState.STABLE
    after = h.sync(late, 1)
    assert [bytes(h.answers[t].assignment) for t in (parked, lead, after)] == [b"E", b"D", b"L"]
    assert h.answers[after].protocol_name == "range"


def test_a_follower_answer_waits_until_the_assignment_is_committed() -> None:
    h = Harness()
    member_id, _ = h.new_member()
    h.advance(3.1)
    h.hold = True
    token = h.sync(member_id, 1, {member_id: b"A"})
    assert token not in h.answers
    assert state(h) is ClassicGroupState.COMPLETING_REBALANCE
    h.release()
    assert bytes(h.answers[token].assignment) == b"A"


@pytest.mark.parametrize(
    ("append", "told"),
    [
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_stored_fails_the_sync_and_rebalances(
    append: ErrorCode, told: ErrorCode
) -> None:
    h = Harness()
    member_id, _ = h.new_member()
    h.advance(3.1)
    h.fail_with = append
    token = h.sync(member_id, 1, {member_id: b"A"})
    assert h.answers[token].error_code == told
    assert state(h) is ClassicGroupState.PREPARING_REBALANCE


def test_members_without_an_assignment_get_an_empty_one() -> None:
    h = Harness()
    joined = [h.new_member() for _ in range(2)]
    h.advance(6.1)
    leader = h.answers[joined[0][1]].leader
    other = next(m for m, _ in joined if m != leader)
    h.sync(leader, 1, {leader: b"all"})
    assert bytes(h.answers[h.sync(other, 1)].assignment) == b""


def test_protocol_with_the_most_votes_among_the_common_ones_wins() -> None:
    h = Harness()
    votes = [
        [("a", b""), ("b", b""), ("c", b"")],
        [("b", b""), ("a", b"")],
        [("b", b""), ("a", b"")],
    ]
    tokens = [h.new_member(protocols=v)[1] for v in votes]
    h.advance(6.1)
    assert {h.answers[t].protocol_name for t in tokens} == {"b"}


@pytest.mark.parametrize(
    "kwargs",
    [
        {"protocols": [("sticky", b"")]},
        {"protocol_type": "connect"},
        {"protocols": []},
        {"protocol_type": ""},
    ],
)
def test_inconsistent_protocols_are_refused(kwargs: dict[str, object]) -> None:
    h = Harness()
    h.stable_group(1)
    assert h.answers[h.join(**kwargs)].error_code == E.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]


@pytest.mark.parametrize("kwargs", [{"protocols": []}, {"protocol_type": ""}])
def test_a_first_member_needs_a_protocol(kwargs: dict[str, object]) -> None:
    h = Harness()
    assert h.answers[h.join(**kwargs)].error_code == E.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]


def test_unknown_member_of_unknown_group() -> None:
    h = Harness()
    assert h.answers[h.join("nobody")].error_code == E.UNKNOWN_MEMBER_ID
    assert h.answers[h.sync("nobody", 1)].error_code == E.UNKNOWN_MEMBER_ID
    assert h.heartbeat("nobody", 1) == E.UNKNOWN_MEMBER_ID


def test_an_unchanged_follower_that_rejoins_gets_its_generation() -> None:
    h = Harness()
    _, follower = h.stable_group(2)
    answer = h.answers[h.join(follower)]
    assert (answer.error_code, answer.generation_id) == (E.NONE, 1)
    assert state(h) is ClassicGroupState.STABLE


def test_stable_follower_with_new_metadata_causes_a_rebalance() -> None:
    h = Harness()
    leader, follower = h.stable_group(2)
    token = h.join(follower, protocols=[("range", b"other")])
    assert token not in h.answers
    assert h.heartbeat(leader, 1) == E.REBALANCE_IN_PROGRESS
    again = h.join(leader)
    assert h.answers[token].generation_id == h.answers[again].generation_id == 2


def test_leader_rejoining_unchanged_causes_a_rebalance() -> None:
    h = Harness()
    leader, _ = h.stable_group(2)
    assert h.join(leader) not in h.answers
    assert state(h) is ClassicGroupState.PREPARING_REBALANCE


def test_a_repeated_join_after_completion_is_answered_again() -> None:
    h = Harness()
    joined = [h.new_member() for _ in range(2)]
    h.advance(6.1)
    leader = h.answers[joined[0][1]].leader
    follower = next(m for m, _ in joined if m != leader)
    assert len(h.answers[h.join(leader)].members) == 2
    assert h.answers[h.join(follower)].members == []
    assert state(h) is ClassicGroupState.COMPLETING_REBALANCE


def test_repeated_join_of_a_parked_member_answers_the_first() -> None:
    h = Harness()
    leader, follower = h.stable_group(2)
    first = h.join(follower, protocols=[("range", b"x")])
    second = h.join(follower, protocols=[("range", b"x")])
    assert h.answers[first].error_code == E.REBALANCE_IN_PROGRESS
    assert second not in h.answers
    h.join(leader)
    assert h.answers[second].error_code == E.NONE


def test_members_that_do_not_rejoin_are_dropped_at_the_rebalance_timeout() -> None:
    h = Harness()
    leader, follower = h.stable_group(2, session_ms=100_000, rebalance_ms=20_000)
    token = h.join(leader, session_ms=100_000, rebalance_ms=20_000)
    h.advance(19.9)
    assert token not in h.answers
    h.advance(0.2)
    assert h.answers[token].generation_id == 2
    assert [m.member_id for m in h.answers[token].members] == [leader]
    assert h.heartbeat(follower, 2) == E.UNKNOWN_MEMBER_ID


def test_a_dead_leader_is_replaced_by_a_member_that_joined() -> None:
    h = Harness()
    leader, follower = h.stable_group(2)
    for _ in range(5):
        h.advance(4)
        h.heartbeat(follower, 1)
    assert h.heartbeat(follower, 1) == E.REBALANCE_IN_PROGRESS
    token = h.join(follower)
    assert h.answers[token].leader == follower
    assert h.heartbeat(leader, 2) == E.UNKNOWN_MEMBER_ID


def test_members_that_do_not_sync_are_dropped_at_the_rebalance_timeout() -> None:
    h = Harness()
    joined = [h.new_member(session_ms=100_000, rebalance_ms=20_000) for _ in range(2)]
    h.advance(6.1)
    leader = h.answers[joined[0][1]].leader
    other = next(m for m, _ in joined if m != leader)
    token = h.sync(other, 1)
    h.advance(20)
    assert h.answers[token].error_code == E.REBALANCE_IN_PROGRESS
    assert h.heartbeat(leader, 1) == E.UNKNOWN_MEMBER_ID
    assert h.answers[h.join(other)].leader == other


def test_session_expiry_removes_the_last_member_and_empties_the_group() -> None:
    h = Harness()
    h.stable_group(1)
    h.advance(10.1)
    assert state(h) is ClassicGroupState.EMPTY
    last = h.log[-1]
    assert isinstance(last, GroupRecord) and last.value is not None
    assert (last.value.generation, last.value.members, last.value.protocol) == (2, (), None)


def test_heartbeats_keep_the_session() -> None:
    h = Harness()
    (member_id,) = h.stable_group(1)
    for _ in range(10):
        h.advance(9)
        assert h.heartbeat(member_id, 1) == E.NONE
    assert h.heartbeat(member_id, 7) == E.ILLEGAL_GENERATION


def test_pending_member_expires_after_its_session_timeout() -> None:
    h = Harness()
    member_id = h.answers[h.join()].member_id
    h.advance(10.1)
    assert h.answers[h.join(member_id)].error_code == E.UNKNOWN_MEMBER_ID


def test_a_parked_new_member_expires_after_five_minutes() -> None:
    h = Harness(GroupCoordinatorConfig(max_session_timeout_ms=10_000_000))
    leader = h.stable_group(1, session_ms=4_000_000, rebalance_ms=4_000_000)[0]
    _, token = h.new_member()
    h.advance(299)
    assert token not in h.answers
    h.advance(2)
    assert h.answers[token].error_code == E.UNKNOWN_MEMBER_ID
    assert h.heartbeat(leader, 1) == E.REBALANCE_IN_PROGRESS


def test_group_max_size_refuses_further_members() -> None:
    h = Harness(GroupCoordinatorConfig(max_size=2))
    h.stable_group(2)
    assert h.answers[h.join()].error_code == E.GROUP_MAX_SIZE_REACHED


def test_leaving_rebalances_the_others() -> None:
    h = Harness()
    leader, follower = h.stable_group(2)
    answer = h.answers[h.leave((leader, None))]
    assert [m.error_code for m in answer.members] == [E.NONE]
    assert h.heartbeat(follower, 1) == E.REBALANCE_IN_PROGRESS
    assert h.answers[h.join(follower)].leader == follower


def test_last_member_leaving_empties_the_group_at_once() -> None:
    h = Harness()
    (member_id,) = h.stable_group(1)
    token = h.leave((member_id, None))
    assert h.answers[token].members[0].error_code == E.NONE
    assert state(h) is ClassicGroupState.EMPTY


def test_leave_is_answered_when_the_empty_generation_is_stored() -> None:
    h = Harness()
    (member_id,) = h.stable_group(1)
    h.hold = True
    token = h.leave((member_id, None))
    assert token not in h.answers
    h.release()
    assert h.answers[token].error_code == E.NONE


@pytest.mark.parametrize(
    ("identity", "code"),
    [
        (("nobody", None), E.UNKNOWN_MEMBER_ID),
        (("", "nobody"), E.UNKNOWN_MEMBER_ID),
        (("", None), E.UNKNOWN_MEMBER_ID),
        (("wrong", "i1"), E.FENCED_INSTANCE_ID),
        (("", "i1"), E.NONE),
    ],
)
def test_leaving_by_identity(identity: tuple[str, str | None], code: ErrorCode) -> None:
    h = Harness()
    h.join(instance="i1")
    h.advance(3.1)
    assert h.answers[h.leave(identity)].members[0].error_code == code


def test_a_pending_member_may_leave() -> None:
    h = Harness()
    member_id = h.answers[h.join()].member_id
    assert h.answers[h.leave((member_id, None))].members[0].error_code == E.NONE


def test_sync_checks_generation_and_protocol() -> None:
    h = Harness()
    (member_id,) = h.stable_group(1)
    assert h.answers[h.sync(member_id, 9)].error_code == E.ILLEGAL_GENERATION
    assert h.answers[h.sync("x", 1)].error_code == E.UNKNOWN_MEMBER_ID
    group = h.shard.classic_group("g")
    assert group is not None and isinstance(group.members[member_id], ClassicGroupMember)
