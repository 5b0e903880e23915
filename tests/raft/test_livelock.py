"""Candidates that start at the same time elect a leader within a few rounds, with any timers, random numbers
and network delays."""

from __future__ import annotations

import random

import pytest

from quorate.raft.core.events import Timeout
from quorate.raft.types import Role
from tests.raft.world import World


class Mirror(random.Random):
    """Returns the same numbers to all replicas. Every delay is the longest possible, and no message is
    lost."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.one = super().random()

    def random(self) -> float:
        return self.one

    def uniform(self, a: float, b: float) -> float:
        return b


def rounds_until_elected(world: World, after: int) -> int:
    """The number of epochs since `after`, up to the one in which a leader is elected."""
    assert world.run(60, lambda: world.leader is not None and world.leader.core.state.epoch > after)
    assert world.leader is not None
    return world.leader.core.state.epoch - after


def equal_deadlines(world: World, at: float) -> None:
    """All voters are without a leader, and their election timers end at the same moment."""
    for node in world.nodes.values():
        node.core.state.election_deadline = at
        assert node.core.state.role is Role.UNATTACHED
        world.after(at - world.now, lambda node=node: node.step(Timeout()))  # type: ignore[misc]


@pytest.mark.parametrize("voters", [2, 3, 4, 5, 6])
def test_equal_random_draws_still_elect_a_leader_within_two_rounds(voters: int) -> None:
    for seed in range(25):
        world = World(voters, seed=seed, kraft=1)
        world.rng = Mirror(seed)
        world.boot_all()
        equal_deadlines(world, world.now + 0.01)
        assert rounds_until_elected(world, 0) <= 2, f"seed {seed}"


@pytest.mark.parametrize("voters", [3, 4, 5])
def test_followers_that_lose_their_leader_together_and_draw_equal_numbers_elect_a_leader(
    voters: int,
) -> None:
    for seed in range(25):
        world = World(voters, seed=seed, kraft=1)
        world.boot_all()
        leader = world.elect()
        world.settle("a")
        world.run(1)
        before = leader.core.state.epoch
        world.rng = Mirror(seed)
        for node in world.nodes.values():
            node.core.state.rng = random.Random(seed)
        world.kill(leader.id)
        assert rounds_until_elected(world, before) <= 2, f"seed {seed}"


@pytest.mark.parametrize("quick", [True, False], ids=["quick failover", "Kafka's timers"])
@pytest.mark.parametrize("delay_s", [0.001, 0.01, 0.05, 0.2])
@pytest.mark.parametrize("voters", [2, 4])
def test_equal_timers_split_the_votes_only_a_few_times(voters: int, delay_s: float, quick: bool) -> None:
    rounds = []
    for seed in range(40):
        world = World(voters, seed=seed, kraft=1, quick=quick)
        world.delay_s = delay_s
        world.boot_all()
        equal_deadlines(world, world.now + 0.01)
        rounds.append(rounds_until_elected(world, 0))
    assert sorted(rounds)[len(rounds) // 2] <= 2
    assert max(rounds) <= 8
