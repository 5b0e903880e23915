"""Faults of the core that simulations found, each in the smallest quorum that shows it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import messages as m
from quorate.raft.core.events import PeerLost, Received, Resign, Shutdown
from quorate.raft.types import Role
from simulation.config import DiskConfig, NetworkConfig, SimulationConfig, Topology
from simulation.core.replica import Replica
from simulation.core.world import World
from simulation.identifiers import voter
from simulation.runner import run_seed


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def world_of(seed: int = 1, **topology: int) -> World:
    """Returns a quorum without faults, with a leader, a committed record and fast disks."""
    world = World(
        SimulationConfig(
            seed, Topology(**topology), NetworkConfig(delay_s=(0.001, 0.002)), DiskConfig(inline=1.0)
        )
    )
    world.start_all()
    world.await_leader()
    world.commit_value("first")
    return world


def slow_disk(world: World, replica: Replica, sync_s: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "sync_delay", lambda of: sync_s if of is replica else None)


def others(world: World, replica: Replica) -> list[Replica]:
    return [r for r in world.replicas.values() if r is not replica and r.can_vote]


def ask(world: World, replica: Replica, request: m.RaftRequest) -> ErrorCode:
    token = replica.request_from_outside(request)
    assert world.run(10, lambda: token in replica.replies)
    return replica.replies[token].error


def test_the_end_of_an_older_fsync_acknowledges_nothing_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that becomes follower during an fsync sends no Fetch before the fetched records are
    durable."""
    world = world_of()
    old = world.await_leader()
    slow_disk(world, old, 1.0, monkeypatch)
    old.propose(["being written"])
    old.step(Resign(old.core.state.epoch, "test"))
    assert world.run(
        10,
        lambda: (
            world.leader is not None and world.leader is not old and world.leader.core.state.hwm is not None
        ),
    )
    world.commit_value("second")
    assert world.run(10, lambda: old.committed == world.checker.committed_end)


def test_a_refused_pre_vote_does_not_acknowledge_what_is_being_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_of()
    leader = world.await_leader()
    follower = others(world, leader)[0]
    slow_disk(world, follower, 0.5, monkeypatch)
    leader.propose(["being written"])
    assert world.run(5, lambda: follower.disk.end == leader.disk.end > follower.disk.durable_end)
    follower.step(PeerLost(leader.address))
    assert world.run(5, lambda: follower.core.state.role is Role.PROSPECTIVE)
    assert world.run(5, lambda: follower.core.state.role is Role.FOLLOWER)
    assert follower.syncing
    assert world.run(5, lambda: follower.committed == leader.disk.end)


def test_an_observer_returns_to_a_leader_that_is_no_bootstrap_server() -> None:
    world = world_of(voters=1, spares=1, observers=1)
    first, second, observer = world.replicas.values()
    assert world.run(5, lambda: second.committed == observer.committed == first.committed)
    world.isolate(observer.id)  # then it knows the first voter only
    assert ask(world, first, m.AddVoter(voter(2))) == ErrorCode.NONE
    assert ask(world, first, m.RemoveVoter(first.key)) == ErrorCode.NONE
    assert world.run(10, lambda: world.leader is second)
    world.cut_links = {(3, 2), (2, 3)}
    assert world.run(10, lambda: observer.core.state.leader_id == 2)
    world.run(5)
    world.heal()
    end = world.commit_value("second")
    assert world.run(10, lambda: observer.committed >= end)


def test_a_download_goes_on_after_the_leader_was_looked_for_anew() -> None:
    world = world_of(observers=1)
    observer = world.replicas[4]
    observer.crash(lose_power=False)
    for i in range(3):
        end = world.commit_value(i)
        assert world.run(5, lambda end=end: all(r.committed >= end for r in others(world, observer)))  # type: ignore[misc]
        for replica in others(world, observer):
            replica.take_snapshot()
    observer.start()
    leader = world.await_leader()
    assert world.run(5, lambda: observer.downloaded_bytes > 0)
    world.cut_links |= {(leader.id, 4)}
    world.run(2.5)  # longer than the fetch timeout
    world.heal()
    assert world.run(10, lambda: observer.committed == leader.committed)


def test_a_removal_that_only_the_removed_has_written_is_committed_by_it() -> None:
    """The remaining voter cannot win, as its log is shorter.

    So the removed one becomes candidate once more.
    """
    world = world_of(voters=2)
    leader = world.await_leader()
    [other] = others(world, leader)
    assert world.run(5, lambda: other.committed == leader.committed)
    [link] = other.core.state.links.values()
    parked = link.in_flight[m.Fetch]
    leader.request_from_outside(m.RemoveVoter(leader.key))
    # The other voter shows that it is alive by a Fetch, whose answer does not arrive.
    assert world.run(1, lambda: link.in_flight.get(m.Fetch, parked) is not parked)
    world.isolate(leader.id)
    assert world.run(1, lambda: not leader.core.state.is_voter)
    world.kill(leader.id)
    world.heal()
    leader.start()
    assert world.run(20, lambda: world.leader is other and other.core.state.hwm is not None)
    assert other.core.state.voters.ids == [other.id]
    world.commit_value("alone")
    assert world.run(10, lambda: leader.committed == other.committed)
    assert not leader.core.state.can_start_election


def test_an_update_to_a_leader_that_cannot_be_reached_waits_for_the_link() -> None:
    """With kraft.version 0 each voter sends UpdateRaftVoter to its leader.

    An endless loop of wake-ups is caught.
    """
    world = world_of(kraft_version=0)
    world.kill(world.await_leader().id)
    world.await_leader()
    for replica in world.replicas.values():
        if replica.alive and replica.core.state.following is not None:
            replica.core.state.following.update_voter_at = 0.0
            replica.core.state.following.updated_leader = False
    world.kill(world.await_leader().id)
    world.run(3)


def test_a_follower_that_shuts_down_does_not_wait_actively() -> None:
    world = world_of(voters=2)
    leader = world.await_leader()
    [other] = others(world, leader)
    other.step(Shutdown())
    other.step(Received(m.EndEpoch(leader.id, leader.core.state.epoch, [other.key], {}), "end"))
    world.run(1)
    assert other.core.state.shutdown_complete


def test_an_unavailable_leaders_late_answer_to_a_prospective_voter_is_no_error() -> None:
    """It answers the Fetch of a voter that has meanwhile begun to ask for pre-votes and still knows it as the
    leader."""
    assert run_seed("core", 5_000_463, 8000).events >= 8000


def test_records_written_before_a_new_voter_set_are_committed_by_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of their fsync is reported after the voter set was appended, but before the core has heard of
    the append.

    An addition waits for a majority, and two removals overtake it. When the second one is committed, the
    leader appends what was proposed meanwhile, and the voter set of the addition behind it.
    """
    world = world_of(voters=3, spares=1)
    leader = world.await_leader()
    added = world.replicas[4]
    first, second = [replica for replica in others(world, leader) if replica is not added]
    assert world.run(5, lambda: all(r.committed == leader.committed for r in (first, second, added)))
    world.cut_links = {(first.id, leader.id), (second.id, leader.id)}
    leader.request_from_outside(m.AddVoter(voter(added.id)))

    def waits() -> bool:
        change = leader.core.state.leading and leader.core.state.leading.voter_change
        return bool(change and change.fetched and change.fetched == {added.key})

    assert world.run(5, waits)
    world.heal()
    leader.request_from_outside(m.RemoveVoter(first.key))
    assert world.run(5, lambda: leader.core.state.voters.ids == sorted([leader.id, second.id]))
    leader.request_from_outside(m.RemoveVoter(second.key))
    slow_disk(world, leader, 0.1, monkeypatch)
    assert world.run(5, lambda: leader.core.state.voters.ids == [leader.id])
    assert leader.syncing
    leader.propose(["after the removal"])
    slow_disk(world, leader, None, monkeypatch)
    assert world.run(5, lambda: leader.core.state.voters.ids == sorted([leader.id, added.id]))
    assert world.run(5, lambda: added.committed == leader.disk.end)


def test_a_voter_set_is_in_force_before_an_older_fsync_is_counted() -> None:
    """The same with faults, as it was found."""
    assert run_seed("core", 5_002_424, 8000).events >= 8000
