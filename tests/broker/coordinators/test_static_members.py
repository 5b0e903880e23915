"""Static members (KIP-345): a known instance id joins without a rebalance and fences the previous member."""

from __future__ import annotations

from itertools import islice

import pytest

from quorate.broker.coordinators.group.classic.classic_group import ClassicGroupState
from quorate.protocol.errors import ErrorCode
from tests.broker.coordinators.harness import Harness

E = ErrorCode


def stable_static(h: Harness, names: tuple[str, ...] = ("i1", "i2")) -> dict[str, str]:
    """A Stable group of static members: instance id -> member id."""
    tokens = {name: h.join(instance=name) for name in names}
    h.advance(6.1)
    ids = {name: h.answers[token].member_id for name, token in tokens.items()}
    leader = h.answers[tokens[names[0]]].leader
    for member_id in ids.values():
        if member_id != leader:
            h.sync(member_id, 1)
    h.sync(leader, 1, {member_id: name.encode() for name, member_id in ids.items()})
    return ids


def test_static_members_need_no_id_round() -> None:
    h = Harness()
    ids = stable_static(h)
    assert ids["i1"].startswith("i1-")


def test_follower_that_restarts_keeps_its_assignment_without_rebalance() -> None:
    h = Harness()
    ids = stable_static(h)
    answer = h.answers[h.join(instance="i2")]
    assert (answer.error_code, answer.generation_id, answer.skip_assignment) == (E.NONE, 1, False)
    assert answer.member_id != ids["i2"]
    group = h.shard.classic_group("g")
    assert group is not None and group.state is ClassicGroupState.STABLE
    assert bytes(h.answers[h.sync(answer.member_id, 1)].assignment) == b"i2"


@pytest.mark.parametrize(("version", "skips", "members"), [(9, True, 2), (8, False, 0)])
def test_a_restarted_leader_must_skip_the_assignment(version: int, skips: bool, members: int) -> None:
    h = Harness()
    ids = stable_static(h)
    answer = h.answers[h.join(instance="i1", version=version)]
    assert (answer.skip_assignment, len(answer.members)) == (skips, members)
    assert (answer.leader == answer.member_id) is skips
    assert answer.leader == (answer.member_id if skips else ids["i1"])


def test_replaced_member_is_fenced_everywhere() -> None:
    h = Harness()
    ids = stable_static(h)
    h.join(instance="i2")
    assert h.answers[h.join(ids["i2"], instance="i2")].error_code == E.FENCED_INSTANCE_ID
    assert h.answers[h.leave((ids["i2"], "i2"))].members[0].error_code == E.FENCED_INSTANCE_ID
    assert h.heartbeat(ids["i2"], 1) == E.UNKNOWN_MEMBER_ID


def test_a_restart_that_cannot_be_stored_is_reverted() -> None:
    h = Harness()
    ids = stable_static(h)
    h.fail_with = E.NOT_LEADER_OR_FOLLOWER
    answer = h.answers[h.join(instance="i2")]
    assert (answer.error_code, answer.member_id) == (E.NOT_COORDINATOR, "")
    assert h.heartbeat(ids["i2"], 1) == E.NONE


def test_a_restart_during_completing_rebalance_starts_a_rebalance() -> None:
    h = Harness()
    tokens = [h.join(instance=name) for name in ("i1", "i2")]
    h.advance(6.1)
    leader = h.answers[tokens[0]].member_id
    parked = h.sync(h.answers[tokens[1]].member_id, 1)
    token = h.join(instance="i2")
    assert h.answers[parked].error_code == E.FENCED_INSTANCE_ID
    assert token not in h.answers
    again = h.join(leader, instance="i1")
    assert h.answers[token].generation_id == h.answers[again].generation_id == 2


def test_restart_while_parked_fences_the_parked_join() -> None:
    h = Harness()
    first = h.join(instance="i1")
    second = h.join(instance="i1")
    assert h.answers[first].error_code == E.FENCED_INSTANCE_ID
    h.advance(6.1)
    assert h.answers[second].error_code == E.NONE


def test_restart_with_another_protocol_choice_rebalances() -> None:
    h = Harness()
    tokens = [h.join(instance="i1", protocols=[("a", b""), ("b", b"")])]
    h.advance(6.1)
    member_id = h.answers[tokens[0]].member_id
    h.sync(member_id, 1, {member_id: b"x"})
    answer = h.answers[h.join(instance="i1", protocols=[("b", b""), ("a", b"")])]
    assert (answer.generation_id, answer.protocol_name) == (2, "b")


def test_static_members_stay_through_a_rebalance_that_they_miss() -> None:
    h = Harness()
    ids = stable_static(h)
    leader = ids["i1"]
    token = h.join(leader, instance="i1", rebalance_ms=5_000, session_ms=600_000)
    h.shard.sessions.restart(h.shard.classic_group("g"), ids["i2"], h.at)  # type: ignore[arg-type]
    for _ in range(13):
        h.advance(5)
        if token in h.answers:
            break
        h.shard.sessions.restart(h.shard.classic_group("g"), ids["i2"], h.at)  # type: ignore[arg-type]
    assert {m.member_id for m in h.answers[token].members} == set(ids.values())


def test_static_members_without_rebalance_timeout_leave_time_to_others() -> None:
    """None of them has joined again. The coordinator looked for them without a pause, and did not come to the
    offsets of deleted topics."""
    h = Harness()
    ids = stable_static(h)
    for name in ids:
        assert h.answers[h.join(instance=name, rebalance_ms=0)].error_code == E.NONE
    h.leave(("", "i2"))
    h.shard.topics_deleted(frozenset({"t"}))
    assert len(list(islice(h.shard.tick(h.at), 100))) < 100
    h.advance(20)
    group = h.shard.classic_group("g")
    assert group is not None and group.state is ClassicGroupState.EMPTY
