"""Complete quorums of the core on a simulated network: elections, replication, faults, invariants."""

from __future__ import annotations

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.protocol.uuids import ZERO_UUID
from quorate.raft.core import messages as m
from quorate.raft.core.events import Shutdown, UpgradeKraftVersion
from quorate.raft.types import ReplicaKey, Role
from quorate.records.control import LeaderChangeMessage
from tests.raft.world import LISTENER, World, address, directory, voter


@pytest.mark.parametrize("kraft", [0, 1])
@pytest.mark.parametrize("voters", [1, 2, 3, 5])
def test_a_quorum_elects_one_leader_and_commits(voters: int, kraft: int) -> None:
    world = World(voters, seed=voters, kraft=kraft)
    world.boot_all()
    leader = world.elect()
    offset = world.settle("a")
    assert world.run(5, lambda: all(n.committed > offset for n in world.nodes.values()))
    assert {n.core.state.leader_id for n in world.nodes.values()} == {leader.id}


def test_a_sole_voter_leads_at_once_in_a_new_epoch_after_each_start() -> None:
    world = World(1)
    node = world.nodes[1]
    for epoch in (1, 2, 3):
        node.boot_up()
        assert node.core.state.role is Role.LEADER
        assert node.core.state.epoch == epoch
        assert world.run(1, lambda: node.core.state.hwm == node.log.end_offset)
        node.crash()


def test_the_first_batch_of_a_leader_has_leader_change_and_under_kraft_1_version_and_voters() -> None:
    for kraft, kinds in ((0, [2]), (1, [2, 5, 6])):
        world = World(1, kraft=kraft)
        world.boot_all()
        world.elect()
        assert [e.control[0] for e in world.nodes[1].log.entries if e.control] == kinds


def test_a_leader_change_has_version_0_and_the_directory_ids_in_a_field_that_peers_skip() -> None:
    for kraft, id_ in ((0, ZERO_UUID), (1, directory(1))):
        world = World(1, kraft=kraft)
        world.boot_all()
        world.elect()
        change = next(e.control[1] for e in world.nodes[1].log.entries if e.control)
        assert isinstance(change, LeaderChangeMessage)
        assert change.version == 0
        for each in (*change.voters, *change.granting_voters):
            assert (each.voter_id, each.voter_directory_id, each.directory_id) == (1, ZERO_UUID, id_)


def test_voters_are_written_once_and_not_again_by_the_next_leader() -> None:
    world = World(1, kraft=1)
    world.boot_all()
    world.elect()
    world.kill(1)
    world.nodes[1].boot_up()
    world.elect()
    assert [e.control[0] for e in world.nodes[1].log.entries if e.control] == [2, 5, 6, 2]


@pytest.mark.parametrize("seed", range(12))
def test_a_dead_leader_is_replaced_soon_after_its_connections_are_reset(seed: int) -> None:
    world = World(3, seed=seed, kraft=1)
    world.boot_all()
    leader = world.elect()
    world.settle("a")
    world.run(3)
    died = world.now
    world.kill(leader.id)
    world.settle("b")
    assert world.now - died < 0.6
    assert world.leader is not None
    assert world.leader.id != leader.id


@pytest.mark.parametrize("seed", range(6))
def test_a_silent_leader_is_replaced_after_the_fetch_timeout_and_resigns_by_check_quorum(seed: int) -> None:
    world = World(3, seed=seed, kraft=1)
    world.boot_all()
    old = world.elect()
    world.run(2)
    cut = world.now
    world.isolate(old.id)
    assert world.run(10, lambda: world.leader is not None and world.leader.id != old.id)
    assert 1.0 < world.now - cut < 8
    assert world.run(10, lambda: old.core.state.role is not Role.LEADER)
    world.heal()
    offset = world.settle("b")
    assert world.run(10, lambda: all(n.committed > offset for n in world.nodes.values()))


@pytest.mark.parametrize("seed", range(6))
def test_an_isolated_follower_does_not_disturb_the_leader_when_it_returns(seed: int) -> None:
    world = World(3, seed=seed, kraft=1)
    world.boot_all()
    leader = world.elect()
    epoch = leader.core.state.epoch
    lonely = next(n for n in world.nodes.values() if n is not leader)
    world.isolate(lonely.id)
    world.run(20)
    world.heal()
    offset = world.settle("a")
    assert world.run(10, lambda: lonely.committed > offset)
    assert leader.core.state.is_leader
    assert leader.core.state.epoch == epoch


def test_records_that_a_minority_leader_wrote_are_truncated() -> None:
    world = World(3, seed=3, kraft=1)
    world.boot_all()
    old = world.elect()
    world.run(2)
    world.isolate(old.id)
    for i in range(5):
        old.propose(f"lost {i}")
    assert world.run(10, lambda: world.leader is not None and world.leader.id != old.id)
    world.heal()
    offset = world.settle("kept")
    assert world.run(10, lambda: old.committed > offset)
    assert not any(str(e.payload).startswith("lost") for e in old.log.entries)


def test_after_a_graceful_shutdown_the_preferred_successor_leads_at_once() -> None:
    world = World(3, seed=5, kraft=1)
    world.boot_all()
    leader = world.elect()
    world.run(3)
    at = world.now
    leader.step(Shutdown())
    assert world.run(5, lambda: world.leader is not None and world.leader.core.state.hwm is not None)
    assert world.now - at < 0.5
    assert leader.core.state.shutdown_complete


@pytest.mark.parametrize("kraft", [0, 1])
def test_an_observer_finds_the_leader_by_bootstrap_and_follows_it(kraft: int) -> None:
    world = World(3, seed=9, observers=2, kraft=kraft)
    world.boot_all()
    world.elect()
    offset = world.settle("a")
    assert world.run(5, lambda: all(n.committed > offset for n in world.nodes.values()))
    leader = world.leader
    assert leader is not None
    world.kill(leader.id)
    at = world.now
    offset = world.settle("b")
    assert world.run(5, lambda: all(n.committed > offset for n in world.nodes.values() if n.alive))
    assert world.now - at < 2.0


def test_an_observer_counts_for_no_majority() -> None:
    world = World(3, seed=2, observers=2, kraft=1)
    world.boot_all()
    leader = world.elect()
    world.run(2)
    for node in world.nodes.values():
        if node.id != leader.id and node.can_vote:
            world.kill(node.id)
    before = leader.committed
    leader.propose("x")
    world.run(1.0)
    assert leader.committed == before
    assert world.run(10, lambda: not leader.core.state.is_leader)


def test_a_new_replica_loads_the_snapshot_in_chunks_then_the_log() -> None:
    world = World(3, seed=4, observers=1, kraft=1)
    for i in (1, 2, 3):
        world.nodes[i].boot_up()
    leader = world.elect()
    for i in range(20):
        world.settle(i)
    for i in (1, 2, 3):
        world.run(2, lambda i=i: world.nodes[i].committed >= leader.committed)
        world.nodes[i].take_snapshot(cut=True)
    offset = world.settle("after")
    world.nodes[4].boot_up()
    assert world.run(10, lambda: world.nodes[4].committed > offset)
    assert world.nodes[4].log.start > 0
    assert world.nodes[4].core.state.voters == leader.core.state.voters


# --- membership -----------------------------------------------------------------------------------


def grown(seed: int = 1) -> World:
    """One voter, and a controller that is not a voter yet."""
    world = World(1, seed=seed, observers=1, kraft=1)
    world.nodes[2].can_vote = True
    world.boot_all()
    world.elect()
    world.run(3, lambda: world.nodes[2].committed > 0)
    world.run(1)
    return world


def ask(world: World, node_id: int, request: m.RaftRequest, seconds: float = 5.0) -> m.Reply:
    node = world.nodes[node_id]
    token = world.ask(node, request)
    assert world.run(seconds, lambda: token in node.answers)
    return node.answers[token]


def test_a_voter_is_added_and_counts() -> None:
    world = grown()
    assert ask(world, 1, m.AddVoter(voter(2))).error == ErrorCode.NONE
    assert world.run(5, lambda: world.nodes[2].core.state.voters.ids == [1, 2])
    assert world.nodes[2].core.state.is_voter
    world.kill(2)
    before = world.nodes[1].committed
    world.nodes[1].propose("needs both")
    world.run(1)
    assert world.nodes[1].committed == before


def test_a_removed_leader_answers_then_resigns_and_the_other_leads() -> None:
    world = grown()
    assert ask(world, 1, m.AddVoter(voter(2))).error == ErrorCode.NONE
    world.run(3)
    assert ask(world, 1, m.RemoveVoter(ReplicaKey(1, directory(1)))).error == ErrorCode.NONE
    assert world.run(10, lambda: world.leader is not None and world.leader.id == 2)
    assert world.nodes[2].core.state.voters.ids == [2]
    assert not world.nodes[1].core.state.is_voter
    world.settle("alone")


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (m.AddVoter(voter(1)), ErrorCode.DUPLICATE_VOTER),
        (m.AddVoter(voter(2), "another cluster"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (m.AddVoter(voter(9)), ErrorCode.REQUEST_TIMED_OUT),
        (m.RemoveVoter(ReplicaKey(1, directory(1))), ErrorCode.VOTER_NOT_FOUND),
        (m.RemoveVoter(ReplicaKey(2, directory(2))), ErrorCode.VOTER_NOT_FOUND),
        (m.RemoveVoter(ReplicaKey(1)), ErrorCode.INVALID_REQUEST),
        (m.UpdateVoter(voter(2), 1), ErrorCode.VOTER_NOT_FOUND),
        (m.UpdateVoter(voter(1), 0), ErrorCode.FENCED_LEADER_EPOCH),
        (m.UpdateVoter(voter(1), 2), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_what_membership_requests_are_refused_with(request_: m.RaftRequest, error: ErrorCode) -> None:
    assert ask(grown(), 1, request_, 40.0).error == error


def test_changes_need_kraft_version_1() -> None:
    world = World(1, kraft=0)
    world.boot_all()
    world.elect()
    assert ask(world, 1, m.AddVoter(voter(2))).error == ErrorCode.UNSUPPORTED_VERSION


def test_kraft_version_is_upgraded_when_every_voter_has_reported_its_directory_id() -> None:
    world = World(3, seed=8, kraft=0)
    world.boot_all()
    leader = world.elect()
    world.run(15)
    leader.step(UpgradeKraftVersion(leader.core.state.epoch, 1, False, "up"))
    assert world.run(5, lambda: "up" in leader.answers)
    assert leader.answers["up"].error == ErrorCode.NONE, leader.answers["up"].message
    assert world.run(5, lambda: all(n.core.state.members.kraft_version == 1 for n in world.nodes.values()))
    assert leader.core.state.voters.by_id[2].key == ReplicaKey(2, directory(2))
    world.settle("after")


def test_a_voter_reports_its_changed_endpoint_to_the_leader() -> None:
    world = World(3, seed=8, kraft=1)
    moved = {LISTENER: ("elsewhere", 9002), "SECOND": ("elsewhere", 1)}
    world.boot_all()
    leader = world.elect()
    follower = next(n for n in world.nodes.values() if n is not leader)
    world.settle("a")
    import dataclasses

    follower.core.state.params = dataclasses.replace(follower.core.state.params, endpoints=moved)
    assert world.run(20, lambda: dict(leader.core.state.voters.endpoints(follower.id)) == moved)


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("voters", [3, 5])
@pytest.mark.parametrize("seed", range(15))
def test_nothing_committed_is_lost_under_crashes_losses_and_cuts(voters: int, seed: int) -> None:
    world = World(voters, seed=seed, kraft=seed % 2, loss=0.05, observers=1)
    world.boot_all()
    committed = [world.settle(0)]
    for i in range(1, 12):
        fault = world.rng.randrange(4)
        victim = world.rng.choice(range(1, voters + 1))
        if fault == 0 and world.nodes[victim].alive:
            world.kill(victim)
        elif fault == 1:
            world.isolate(victim)
        elif fault == 2:
            other = world.rng.choice(range(1, voters + 1))
            world.cut_links.add((victim, other))
        world.run(world.rng.uniform(0, 2))
        if world.leader is not None:
            world.leader.propose(f"maybe {i}")
        world.run(world.rng.uniform(0, 1))
        world.heal()
        for node in world.nodes.values():
            if not node.alive:
                node.boot_up()
        committed.append(world.settle(i, 60))
    world.loss = 0.0
    assert world.run(30, lambda: all(n.committed > committed[-1] for n in world.nodes.values())), seed
    values = [world.truth[o].payload for o in committed]
    assert values == list(range(12))


def test_the_same_seed_gives_the_same_history() -> None:
    def history() -> list[tuple[int, int]]:
        world = World(3, seed=77, kraft=1, loss=0.1)
        world.boot_all()
        for i in range(5):
            world.settle(i)
        return [*world.leaders.items(), (world.events, int(world.now * 1e9))]

    assert history() == history()


__all__ = ["address"]


@pytest.mark.parametrize("seed", range(15))
def test_nothing_is_lost_during_voter_changes_and_truncations(seed: int) -> None:
    """Additions and removals of voters, snapshots that replace the log, crashes and cut links, in random
    order."""
    world = World(3, seed=seed, kraft=1, loss=0.02, observers=2)
    for i in (4, 5):
        world.nodes[i].can_vote = True
    world.boot_all()
    committed = [world.settle(0)]
    for i in range(1, 12):
        leader = world.leader
        if leader is not None:
            chosen = world.rng.randint(1, 5)
            key = ReplicaKey(chosen, directory(chosen))
            if leader.core.state.voters.has_key(key) and len(leader.core.state.voters) > 2:
                world.ask(leader, m.RemoveVoter(key))
            elif chosen not in leader.core.state.voters.by_id:
                world.ask(leader, m.AddVoter(voter(chosen)))
        world.run(world.rng.uniform(0, 0.5))
        victim = world.nodes[world.rng.randint(1, 5)]
        match world.rng.randrange(4):
            case 0 if victim.alive:
                world.kill(victim.id)
            case 1:
                world.isolate(victim.id)
            case 2 if victim.alive:
                victim.take_snapshot(cut=True)
        world.run(world.rng.uniform(0, 3))
        world.heal()
        for node in world.nodes.values():
            if not node.alive:
                node.boot_up()
        committed.append(world.settle(i, 90))
    world.loss = 0.0
    voters = [world.nodes[v.id] for v in world.elect().core.state.voters]
    assert world.run(30, lambda: all(n.committed > committed[-1] for n in voters)), seed
    assert [world.truth[o].payload for o in committed] == list(range(12))
