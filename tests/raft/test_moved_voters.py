"""Elections among voters that have come back with other addresses, which the voter set does not have yet."""

from __future__ import annotations

import dataclasses

import pytest

from quorate.raft.core.effects import Outgoing
from quorate.raft.core.election import vote_addresses
from quorate.raft.core.events import Replied
from quorate.raft.core.messages import Failure, Vote
from quorate.raft.types import Address, Role
from tests.raft.world import Node as Replica
from tests.raft.world import World, address

MOVED = 100
"""A moved voter has the address of its id and this number."""


def moved_world(moved: set[int], silent: bool) -> World:
    """Voters 1 to 3. Voter 1 has led and has a longer log than the others, of which `moved` have other
    addresses now. At their old ones there is no host (`silent`), or a connection is refused."""
    world = World(3, kraft=1)
    world.bootstrap = [1, *(i + MOVED if i in moved else i for i in (2, 3))]
    world.boot_all()
    world.nodes[1].core.state.election_deadline = 0.0
    leader = world.elect()
    world.settle("all have it")
    world.run(1)
    others = [i for i in world.nodes if i != leader.id]
    for i in others:
        world.kill(i)
    leader.propose("only one has it")
    assert world.run(30, lambda: leader.core.state.role is not Role.LEADER)
    names = dict(zip(sorted(moved), others, strict=False))
    places = {i + MOVED: at for i, at in names.items()}
    gone = None if silent else Replica(world, 0, leader.static)

    def node_at(where: Address) -> Replica | None:
        number = where[1] - address(0)[1]
        if number in places:
            return world.nodes[places[number]]
        return gone if number in places.values() else world.nodes.get(number)

    world.node_at = node_at  # type: ignore[method-assign]
    for wanted, at in names.items():
        node = world.nodes[at]
        node.boot_up()
        params = node.core.state.params
        new = {name: address(wanted + MOVED) for name in params.endpoints}
        node.core.state.params = dataclasses.replace(params, endpoints=new)
    return world


@pytest.mark.parametrize("silent", [True, False], ids=["no host", "refused"])
def test_voters_that_have_moved_elect_one_of_them_by_the_bootstrap_servers(silent: bool) -> None:
    """The third one, which they can reach, has a longer log, and does not know where they are."""
    world = moved_world({2, 3}, silent)
    assert world.run(60, lambda: world.leader is not None)


SILENT = 99
"""A bootstrap server of which nobody has the address."""


@pytest.mark.parametrize("seed", range(20))
def test_a_silent_bootstrap_server_delays_no_election(seed: int) -> None:
    """A voter that was down while votes were asked for is asked at its own address as soon as it is back."""
    world = World(3, seed, kraft=1)
    world.bootstrap = [1, 2, 3, SILENT]
    world.boot_all()
    leader = world.elect()
    restarted, other = (i for i in world.nodes if i != leader.id)
    world.kill(restarted)
    leader.propose("the restarted one lacks it")
    assert world.run(10, lambda: world.nodes[other].log.end_offset == leader.log.end_offset)
    world.kill(leader.id)
    world.run(5)
    world.nodes[restarted].boot_up()
    assert world.run(0.6, lambda: world.leader is not None)


def asked_at(kraft: int) -> list[Address]:
    """Where voter 1 may ask voter 2, which has an address in the voter set, and perhaps another one."""
    world = World(3, kraft=kraft)
    world.bootstrap = [1, 2, 3, 2 + MOVED]
    world.boot_all()
    state = world.nodes[1].core.state
    return vote_addresses(state, state.voters.by_id[2])


def test_a_voter_is_asked_for_its_vote_at_bootstrap_servers_that_are_no_voters() -> None:
    assert asked_at(kraft=1) == [address(2), address(2 + MOVED)]


def test_a_static_voter_is_asked_for_its_vote_only_at_its_configured_address() -> None:
    """A Vote of version 0, as Kafka before 3.9 knows it, does not name the voter that it is for."""
    assert asked_at(kraft=0) == [address(2)]


def test_a_bootstrap_server_that_does_not_know_vote_makes_no_candidate() -> None:
    """A broker's listener, for example. A candidate would depose a leader that another voter still hears."""
    world = World(3, kraft=1)
    world.bootstrap = [1, 2, 3, MOVED]
    world.boot_all()
    leader = world.elect()
    one = next(node for node in world.nodes.values() if node is not leader)
    world.cut_links |= {(leader.id, one.id), (one.id, leader.id)}
    send = world.send

    def to_a_broker(sender: Replica, out: Outgoing) -> None:
        if out.to.address == address(MOVED) and isinstance(out.request, Vote):
            reply = Replied(out.to, out.request, Failure.UNSUPPORTED_VERSION)
            world.after(world.delay_s, lambda: sender.step(reply))
        else:
            send(sender, out)

    world.send = to_a_broker  # type: ignore[method-assign]
    epoch = leader.core.state.epoch
    world.run(60)
    assert (world.leader, leader.core.state.epoch) == (leader, epoch)
