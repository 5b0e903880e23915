"""Changes of voters that are refused, because no majority of the new voter set is alive, or because they
would block all other changes."""

from __future__ import annotations

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import messages as m
from quorate.raft.core.membership.voter_changes import MAX_ADD_TIMEOUT_S
from quorate.raft.core.voters import Voter
from quorate.raft.types import Address, ReplicaKey, Role
from tests.raft.test_membership import ask, key, lead, quorum, timed_out
from tests.raft.world import LISTENER, World, address, directory, voter


def others(world: World, count: int = 9) -> list[int]:
    """The voters that are not the leader."""
    return [v.id for v in lead(world).core.state.voters if v.id != lead(world).id][:count]


def dead(world: World, ids: list[int]) -> None:
    for i in ids:
        world.kill(i)
    world.run(0.1)


# --- the set after the change must have a living majority -----------------------------------------


def test_a_removal_that_would_leave_no_living_majority_names_the_silent_voters_and_the_remedy() -> None:
    world = quorum(3)
    leader, (gone, wanted) = lead(world), others(world)
    dead(world, [gone])
    asked = world.now
    reply = ask(world, m.RemoveVoter(key(wanted)))
    assert timed_out(reply, f"2 must be up, but voter {gone} has not fetched for ")
    assert f"start {gone} first, or remove {gone} first" in (reply.message or "")
    assert world.now - asked < 4
    assert leader.core.state.role is Role.LEADER
    world.settle("the quorum works on")
    assert leader.core.state.voters.ids == [1, 2, 3]


def test_a_removal_names_a_voter_that_has_never_fetched() -> None:
    world = World(3, kraft=1)
    for i in (1, 2):
        world.nodes[i].boot_up()
    world.elect()
    wanted = next(i for i in (1, 2) if i != lead(world).id)
    assert timed_out(ask(world, m.RemoveVoter(key(wanted))), "voter 3 has not fetched from this leader")


@pytest.mark.parametrize("silent_s", [0.0, 0.2, 1.0])
def test_a_voter_that_fell_silent_a_moment_ago_does_not_count(silent_s: float) -> None:
    """Its last Fetch is recent and its connection stands, but it does not fetch again."""
    world = quorum(3)
    gone, wanted = others(world)
    world.isolate(gone)
    world.run(silent_s)
    reply = ask(world, m.RemoveVoter(key(wanted)))
    assert timed_out(reply, f"2 must be up, but voter {gone} has not fetched for ")
    world.settle("the quorum works on")
    assert lead(world).core.state.voters.ids == [1, 2, 3]


def test_a_controller_that_fell_silent_while_it_is_added_does_not_count() -> None:
    world = quorum(1, others=1)
    leader = lead(world)
    token = world.ask(leader, m.AddVoter(voter(2)))

    def supports_the_level() -> bool:
        leading = leader.core.state.leading
        assert leading is not None
        return leading.voter_change is not None and leading.voter_change.kraft_versions is not None

    assert world.run(1, supports_the_level)
    world.isolate(2)
    assert world.run(40, lambda: token in leader.answers)
    assert timed_out(leader.answers[token], f"voter {key(2)} to catch up with the log")
    assert leader.core.state.voters.ids == [1]


@pytest.mark.parametrize("idle_s", [0.0, 0.1, 0.3, 0.45])
def test_living_voters_show_it_within_a_round_trip(idle_s: float) -> None:
    """Their Fetches wait at the leader for up to half a second; it answers them."""
    world = quorum(5, others=1)
    world.run(idle_s)
    for request in (m.RemoveVoter(key(others(world)[0])), m.AddVoter(voter(6))):
        asked = world.now
        assert ask(world, request).error == ErrorCode.NONE
        assert world.now - asked < 0.1


def test_a_removal_waits_for_a_voter_that_starts_to_fetch() -> None:
    world = quorum(3)
    gone, wanted = others(world)
    dead(world, [gone])
    world.run(1)
    token = world.ask(lead(world), m.RemoveVoter(key(wanted)))
    world.run(1)
    assert token not in lead(world).answers
    world.nodes[gone].boot_up()
    assert world.run(2, lambda: token in lead(world).answers)
    assert lead(world).answers[token].error == ErrorCode.NONE


def test_the_dead_voter_itself_is_removed() -> None:
    world = quorum(3)
    gone = others(world)[0]
    dead(world, [gone])
    assert ask(world, m.RemoveVoter(key(gone))).error == ErrorCode.NONE
    world.settle("afterwards")


def test_with_exactly_a_majority_alive_the_dead_are_removed_one_after_the_other() -> None:
    world = quorum(5)
    gone = others(world)[:2]
    dead(world, gone)
    alive = others(world)[2:]
    assert timed_out(ask(world, m.RemoveVoter(key(alive[0]))), f"start {gone[0]}, {gone[1]} first")
    for i in gone:
        assert ask(world, m.RemoveVoter(key(i))).error == ErrorCode.NONE
    assert ask(world, m.RemoveVoter(key(alive[0]))).error == ErrorCode.NONE
    world.settle("afterwards")


def test_a_refused_removal_does_not_block_the_next_one() -> None:
    world = quorum(3)
    gone, wanted = others(world)
    dead(world, [gone])
    tokens = [world.ask(lead(world), m.RemoveVoter(key(i))) for i in (wanted, gone)]
    assert world.run(10, lambda: all(t in lead(world).answers for t in tokens))
    assert [lead(world).answers[t].error for t in tokens] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]


def test_a_leader_that_is_removed_does_not_count_itself_for_the_majority_it_leaves() -> None:
    world = quorum(3)
    gone = others(world)[0]
    dead(world, [gone])
    assert timed_out(ask(world, m.RemoveVoter(key(lead(world).id))), f"start {gone} first")
    assert ask(world, m.RemoveVoter(key(gone))).error == ErrorCode.NONE
    old = lead(world)
    token = world.ask(old, m.RemoveVoter(key(old.id)))
    assert world.run(5, lambda: token in old.answers)
    assert old.answers[token].error == ErrorCode.NONE
    assert world.run(5, lambda: world.leader not in (None, old))


def test_of_two_voters_the_dead_one_is_removed_as_long_as_the_other_leads() -> None:
    world = quorum(2)
    old, gone = lead(world), others(world)[0]
    dead(world, [gone])
    assert ask(world, m.RemoveVoter(key(gone))).error == ErrorCode.NONE
    assert old.core.state.voters.ids == [old.id]
    world.settle("alone")


def test_of_two_voters_the_leader_does_not_leave_the_dead_one_alone() -> None:
    world = quorum(2)
    old, gone = lead(world), others(world)[0]
    dead(world, [gone])
    token = world.ask(old, m.RemoveVoter(key(old.id)))
    assert world.run(5, lambda: token in old.answers)
    assert old.answers[token].error != ErrorCode.NONE
    assert old.core.state.voters.ids == [1, 2]
    world.nodes[gone].boot_up()
    world.settle("together")


def test_with_one_dead_voter_another_is_added() -> None:
    world = quorum(3, others=1)
    dead(world, others(world, 1))
    assert ask(world, m.AddVoter(voter(4))).error == ErrorCode.NONE
    world.settle("afterwards")


# --- an addition that waits -----------------------------------------------------------------------


def test_an_addition_waits_at_most_a_minute_even_if_its_timeout_is_longer() -> None:
    world = quorum(1)
    asked = world.now
    reply = ask(world, m.AddVoter(voter(3), timeout_ms=2**31 - 1), seconds=300)
    assert timed_out(reply, "to catch up")
    assert world.now - asked == pytest.approx(MAX_ADD_TIMEOUT_S, abs=0.1)


def test_a_removal_does_not_wait_for_a_controller_that_is_to_be_added() -> None:
    world = quorum(3, others=1)
    adding = [world.ask(lead(world), m.AddVoter(voter(i), timeout_ms=20_000)) for i in (9, 4)]
    asked = world.now
    assert ask(world, m.RemoveVoter(key(others(world)[0]))).error == ErrorCode.NONE
    assert world.now - asked < 1
    assert not any(t in lead(world).answers for t in adding)
    assert world.run(25, lambda: all(t in lead(world).answers for t in adding))
    assert timed_out(lead(world).answers[adding[0]], f"voter {key(9)} to catch up")


def test_a_removal_is_not_refused_for_the_number_of_additions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.raft.core.membership.voter_changes.MAX_WAITING", 2)
    world = quorum(3)
    for _ in range(4):
        world.ask(lead(world), m.AddVoter(voter(9)))
    assert ask(world, m.RemoveVoter(key(others(world)[0]))).error == ErrorCode.NONE


def test_removals_keep_their_order_and_the_addition_comes_after_them() -> None:
    world = quorum(5, others=1)
    adding = world.ask(lead(world), m.AddVoter(voter(6)))
    first, second = others(world, 2)
    removing = [world.ask(lead(world), m.RemoveVoter(key(i))) for i in (first, second)]
    assert world.run(10, lambda: all(t in lead(world).answers for t in [adding, *removing]))
    sets = [
        {v.voter_id for v in e.control[1].voters}
        for e in lead(world).log.entries
        if e.control and e.control[0] == 6
    ]
    everybody = {1, 2, 3, 4, 5}
    assert sets[-3:] in (
        [everybody - {first}, everybody - {first, second}, everybody - {first, second} | {6}],
        [
            everybody | {6},
            everybody - {first} | {6},
            everybody - {first, second} | {6},
        ],  # it was ready before they came
    )


# --- an address is one voter's --------------------------------------------------------------------


@pytest.mark.parametrize(
    "endpoints",
    [{LISTENER: address(1)}, {LISTENER: ("N1", 9001)}, {LISTENER: address(2), "SECOND": address(1)}],
    ids=["the same", "in capitals", "of another listener"],
)
def test_a_controller_at_the_address_of_a_voter_is_not_added(endpoints: dict[str, Address]) -> None:
    world = quorum(1, others=1)
    reply = ask(world, m.AddVoter(Voter(ReplicaKey(2, directory(2)), endpoints, (0, 1))))
    assert reply.error == ErrorCode.INVALID_REQUEST
    assert f"n1:9001 of voter {key(2)} is the endpoint of voter {key(1)} already" in (reply.message or "")
    assert "remove voter 1 first" in (reply.message or "")
    assert lead(world).core.state.voters.ids == [1]
    assert ask(world, m.AddVoter(voter(2))).error == ErrorCode.NONE


def test_an_addition_without_an_endpoint_for_the_listener_names_the_listener() -> None:
    reply = ask(quorum(1), m.AddVoter(Voter(key(2), {"CTRL": address(2)}, (0, 1))))
    assert reply.error == ErrorCode.INVALID_REQUEST
    assert f"no endpoint for listener {LISTENER}, under which voters reach one another (it has: CTRL)" in (
        reply.message or ""
    )
