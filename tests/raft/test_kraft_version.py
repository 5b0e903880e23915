"""The upgrade of kraft.version from 0 to 1, and updates of the voters' entries in the log (KIP-853)."""

from __future__ import annotations

import dataclasses

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import messages as m
from quorate.raft.core.events import Received, Resign, UpgradeKraftVersion
from quorate.raft.core.voters import Voter
from quorate.raft.types import NO_DIRECTORY, Endpoints, ReplicaKey, Role
from tests.raft.world import LISTENER, Node, World, address, directory, voter

ELSEWHERE = {LISTENER: ("elsewhere", 9077)}
KRAFT_VERSION, KRAFT_VOTERS = 5, 6


def quorum(voters: int, kraft: int) -> tuple[World, Node]:
    """Voters that follow one leader and have sent it their endpoints and versions."""
    world = World(voters, seed=8, kraft=kraft)
    world.boot_all()
    leader = world.elect()
    offset = world.settle("begin")
    world.run(8, lambda: all(n.committed > offset for n in world.nodes.values()))
    world.run(8)
    return world, leader


def upgrade(node: Node, level: int = 1, validate_only: bool = False) -> str:
    node.step(UpgradeKraftVersion(node.core.state.epoch, level, validate_only, "upgrade"))
    return "upgrade"


def controls(node: Node) -> list[int]:
    return [e.control[0] for e in node.log.entries if e.control]


def levels(world: World) -> set[int]:
    return {n.core.state.members.kraft_version for n in world.nodes.values()}


# --- the upgrade ----------------------------------------------------------------------------------


def test_an_upgrade_writes_the_version_and_the_voter_set_in_one_batch() -> None:
    world, leader = quorum(3, kraft=0)
    assert all(v.key.directory_id == NO_DIRECTORY for v in leader.core.state.voters)
    token = upgrade(leader)
    assert world.run(5, lambda: token in leader.answers)
    assert leader.answers[token].error == ErrorCode.NONE
    kinds = [e.control[0] if e.control else None for e in leader.log.entries]
    at = kinds.index(KRAFT_VERSION)
    assert kinds[at : at + 2] == [KRAFT_VERSION, KRAFT_VOTERS]
    assert {v.key for v in leader.core.state.voters} == {ReplicaKey(i, directory(i)) for i in (1, 2, 3)}
    assert world.run(5, lambda: levels(world) == {1})


@pytest.mark.parametrize("seed", range(8))
def test_voters_report_themselves_before_the_first_record_of_an_epoch_commits(seed: int) -> None:
    world = World(3, seed, kraft=0)
    world.boot_all()
    for _ in range(2):
        leader = world.elect()
        assert world.run(0.1, lambda node=leader: len(node.core.state.leading.reported_voters) == 2)
        token = upgrade(leader, validate_only=True)
        assert leader.answers[token].error == ErrorCode.NONE
        leader.answers.clear()
        leader.step(Resign(leader.core.state.epoch, "another one's turn"))
        world.run(5.0, lambda: not any(n.core.state.is_leader for n in world.nodes.values()))


def test_a_level_takes_effect_when_appended_and_is_finalised_when_committed() -> None:
    world, leader = quorum(3, kraft=0)
    for node in world.nodes.values():
        if node is not leader:
            world.isolate(node.id)
    token = upgrade(leader)
    world.run(0.2)
    members = leader.core.state.members
    assert (members.kraft_version, members.kraft_version_at(leader.committed - 1)) == (1, 0)
    assert token not in leader.answers
    world.heal()
    assert world.run(10, lambda: token in leader.answers)
    assert leader.answers[token].error == ErrorCode.NONE
    assert members.kraft_version_at(leader.committed - 1) == 1


def test_an_upgrade_that_is_truncated_is_reverted_to_the_static_voters() -> None:
    world, old = quorum(3, kraft=0)
    world.isolate(old.id)
    token = upgrade(old)
    world.run(0.1)
    assert old.core.state.members.kraft_version == 1
    assert world.run(20, lambda: world.leader not in (None, old) and token in old.answers)
    assert old.answers[token].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.heal()
    world.settle("by another leader")
    assert world.run(20, lambda: levels(world) == {0})
    assert all(v.key.directory_id == NO_DIRECTORY for v in old.core.state.voters)
    assert KRAFT_VERSION not in controls(old)


def test_validate_only_writes_nothing() -> None:
    world, leader = quorum(3, kraft=0)
    token = upgrade(leader, validate_only=True)
    world.run(1)
    assert leader.answers[token].error == ErrorCode.NONE
    assert KRAFT_VERSION not in controls(leader)


def test_an_upgrade_to_the_current_level_changes_nothing() -> None:
    world, leader = quorum(1, kraft=1)
    before = controls(leader)
    token = upgrade(leader)
    world.run(1)
    assert (leader.answers[token].error, controls(leader)) == (ErrorCode.NONE, before)


def test_an_upgrade_names_a_voter_that_has_not_reported_itself() -> None:
    world = World(3, seed=8, kraft=0)
    for i in (1, 2):
        world.nodes[i].boot_up()
    leader = world.elect()
    world.run(8)
    reply = leader.answers[upgrade(leader)]
    assert reply.error == ErrorCode.INVALID_UPDATE_VERSION
    assert "voter 3 has not told" in (reply.message or "")
    world.nodes[3].boot_up()
    world.run(8)
    upgrade(leader, validate_only=True)
    assert leader.answers["upgrade"].error == ErrorCode.NONE


def test_an_upgrade_names_every_voter_that_blocks() -> None:
    world = World(5, seed=8, kraft=0)
    for i in (1, 2, 3):
        world.nodes[i].boot_up()
    leader = world.elect()
    world.run(8)
    message = leader.answers[upgrade(leader)].message or ""
    assert "voter 4 has not told" in message and "voter 5 has not told" in message
    assert "Each voter must run" in message


def test_a_voter_that_does_not_support_the_level_is_named() -> None:
    world = World(3, seed=8, kraft=0)
    world.boot_all()
    other = world.nodes[3]
    other.core.state.params = dataclasses.replace(other.core.state.params, kraft_versions=(0, 0))
    leader = world.elect()
    assert leader is not other
    world.run(8)
    reply = leader.answers[upgrade(leader)]
    assert reply.error == ErrorCode.INVALID_UPDATE_VERSION
    assert f"voter {other.id} supports kraft.version 0 to 0" in (reply.message or "")


@pytest.mark.parametrize(("kraft", "level"), [(1, 0), (1, 2), (0, 2), (0, -1)])
def test_downgrades_and_unknown_levels_are_refused(kraft: int, level: int) -> None:
    _, leader = quorum(1, kraft)
    reply = leader.answers[upgrade(leader, level)]
    assert reply.error == ErrorCode.INVALID_UPDATE_VERSION
    assert f"from {kraft} to {level}" in (reply.message or "")


# --- entries kept true ----------------------------------------------------------------------------


def test_a_new_leader_whose_endpoints_have_changed_writes_its_own_entry_with_its_first_record() -> None:
    world, old = quorum(3, kraft=1)
    for node in world.nodes.values():
        if node is not old:
            node.core.state.params = dataclasses.replace(node.core.state.params, endpoints=ELSEWHERE)
    world.kill(old.id)
    assert world.run(20, lambda: world.leader not in (None, old))
    leader = world.leader
    assert leader is not None
    assert dict(leader.core.state.voters.endpoints(leader.id)) == ELSEWHERE
    first = [e.control[0] for e in leader.log.entries if e.control and e.epoch == leader.core.state.epoch][:3]
    assert first == [2, KRAFT_VERSION, KRAFT_VOTERS]
    other = next(i for i in (1, 2, 3) if i not in (old.id, leader.id))
    assert dict(leader.core.state.voters.endpoints(other)) == {
        LISTENER: address(other)
    }  # not its own word yet


def told(entry: Voter, epoch: int, kraft: int = 1) -> m.Reply:
    world, leader = quorum(1, kraft)
    token = world.ask(leader, m.UpdateVoter(entry, leader.core.state.epoch + epoch))
    world.run(1)
    return leader.answers[token]


@pytest.mark.parametrize("kraft", [0, 1])
@pytest.mark.parametrize(
    ("entry", "epoch", "error"),
    [
        (Voter(ReplicaKey(1, directory(1)), {}, (0, 1)), 0, ErrorCode.INVALID_REQUEST),
        (Voter(ReplicaKey(1, directory(1)), {"OTHER": address(1)}, (0, 1)), 0, ErrorCode.INVALID_REQUEST),
        (Voter(ReplicaKey(1), {LISTENER: address(1)}, (0, 1)), 0, ErrorCode.INVALID_REQUEST),
        (Voter(ReplicaKey(-1, directory(1)), {LISTENER: address(1)}, (0, 1)), 0, ErrorCode.INVALID_REQUEST),
        (Voter(ReplicaKey(1, directory(1)), {LISTENER: address(1)}, (2, 3)), 0, ErrorCode.INVALID_REQUEST),
        (Voter(ReplicaKey(1, directory(1)), {LISTENER: address(1)}, (1, 0)), 0, ErrorCode.INVALID_REQUEST),
        (voter(7), 0, ErrorCode.VOTER_NOT_FOUND),
        (voter(1), -1, ErrorCode.FENCED_LEADER_EPOCH),
        (voter(1), 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (voter(1), 0, ErrorCode.NONE),
    ],
    ids=["no endpoint", "not the first listener", "no directory", "no id", "range above", "range upside down", "no voter",
         "old epoch", "epoch to come", "good"],
)  # fmt: skip
def test_responses_to_update_raft_voter(kraft: int, entry: Voter, epoch: int, error: ErrorCode) -> None:
    assert told(entry, epoch, kraft).error == error


def test_another_disk_of_a_voters_id_cannot_change_its_entry() -> None:
    assert told(Voter(ReplicaKey(1, directory(44)), ELSEWHERE, (0, 1)), 0).error == ErrorCode.VOTER_NOT_FOUND


def test_an_update_is_repeated_while_a_voter_change_is_uncommitted() -> None:
    world, leader = quorum(3, kraft=1)
    follower, other = (n for n in world.nodes.values() if n is not leader)
    leader.step(Received(m.RemoveVoter(ReplicaKey(other.id, directory(other.id))), "removing"))
    assert world.run(1, lambda: other.id not in leader.core.state.voters.ids)
    for node in (follower, other):
        world.isolate(node.id)
    update = m.UpdateVoter(
        Voter(ReplicaKey(follower.id, directory(follower.id)), ELSEWHERE, (0, 1)), leader.core.state.epoch
    )
    refused = world.ask(leader, update)
    assert leader.answers[refused].error == ErrorCode.REQUEST_TIMED_OUT
    follower.core.state.params = dataclasses.replace(follower.core.state.params, endpoints=ELSEWHERE)
    world.heal()
    assert world.run(12, lambda: dict(leader.core.state.voters.endpoints(follower.id)) == ELSEWHERE)
    assert leader.answers["removing"].error == ErrorCode.NONE
    assert leader.core.state.role is Role.LEADER


def test_an_update_does_not_wait_for_a_controller_that_is_to_be_added() -> None:
    world, leader = quorum(3, kraft=1)
    follower = next(n for n in world.nodes.values() if n is not leader)
    adding = world.ask(leader, m.AddVoter(voter(9), timeout_ms=20_000))
    follower.core.state.params = dataclasses.replace(follower.core.state.params, endpoints=ELSEWHERE)
    assert world.run(8, lambda: dict(leader.core.state.voters.endpoints(follower.id)) == ELSEWHERE)
    assert adding not in leader.answers


def update(world: World, leader: Node, i: int, endpoints: Endpoints) -> ErrorCode:
    entry = Voter(ReplicaKey(i, directory(i)), endpoints, (0, 1))
    token = world.ask(leader, m.UpdateVoter(entry, leader.core.state.epoch))
    world.run(0.5)
    return leader.answers[token].error


def test_a_voter_cannot_take_the_address_of_another(caplog: pytest.LogCaptureFixture) -> None:
    world, leader = quorum(3, kraft=1)
    moving, other = (i for i in world.nodes if i != leader.id)
    assert update(world, leader, moving, {LISTENER: address(other)}) == ErrorCode.REQUEST_TIMED_OUT
    assert dict(leader.core.state.voters.endpoints(moving)) == {LISTENER: address(moving)}
    host, port = address(other)
    assert (
        f"{LISTENER}://{host}:{port} of voter {ReplicaKey(moving, directory(moving))} is the endpoint of "
        "voter" in caplog.text
    )
    assert (
        update(world, leader, moving, {LISTENER: address(moving), "SECOND": address(other)})
        == ErrorCode.REQUEST_TIMED_OUT
    )


def test_two_voters_may_exchange_addresses(caplog: pytest.LogCaptureFixture) -> None:
    world, leader = quorum(3, kraft=1)
    one, two = (i for i in world.nodes if i != leader.id)
    assert update(world, leader, one, {LISTENER: address(two)}) == ErrorCode.REQUEST_TIMED_OUT
    assert update(world, leader, two, {LISTENER: address(one)}) == ErrorCode.NONE
    assert update(world, leader, one, {LISTENER: address(two)}) == ErrorCode.NONE
    assert [dict(leader.core.state.voters.endpoints(i)) for i in (one, two)] == [
        {LISTENER: address(i)} for i in (two, one)
    ]


def test_a_voter_without_an_endpoint_for_the_listener_is_named_with_what_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, leader = quorum(3, kraft=1)
    follower = next(i for i in world.nodes if i != leader.id)
    assert update(world, leader, follower, {"CTRL": address(follower)}) == ErrorCode.INVALID_REQUEST
    assert f"UpdateRaftVoter of {ReplicaKey(follower, directory(follower))} is refused" in caplog.text
    assert (
        f"no endpoint for listener {LISTENER}, under which voters reach one another (it has: CTRL)"
        in caplog.text
    )
