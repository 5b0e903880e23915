"""The pure core under faults: random worlds, found again by their seed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from simulation.actors import Actors, run_plan
from simulation.invariants import InvariantError
from simulation.plan import Faults, Links, Plan, Topology
from simulation.simulate import main, simulate
from simulation.world import World
from tests.simulation import everything


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_random_worlds_keep_every_invariant() -> None:
    tally = simulate("core", 100, 100_000, 3000, lambda line: None)
    assert tally.elections > 100
    assert tally.truncations > 20
    assert tally.set_changes > 20


def test_a_seed_gives_the_same_history_each_time() -> None:
    def history(seed: int) -> tuple[object, ...]:
        told: list[str] = []
        world = World(Plan.draw(seed), told.append)
        run_plan(world, 2000)
        return told, world.events, world.now, world.history.digests

    assert history(7) == history(7)
    assert history(7) != history(8)


def test_a_failure_names_the_seed_that_replays_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from quorate.raft import election

    monkeypatch.setattr(election, "may_grant", lambda r, q: True)
    assert main(["--events", "1000000", "--seed", "30", "--each", "3000"]) == 1
    out = capsys.readouterr().out
    seed = int(out.split("FAILED: seed ")[1].split(",")[0])
    assert main(["--replay", str(seed), "--each", "3000"]) == 1
    again = capsys.readouterr().out
    assert out.split("FAILED: ")[1].splitlines()[0] == again.split("FAILED: ")[1].splitlines()[0]


def test_every_kind_of_fault_and_work_occurs() -> None:
    def run(plan: Plan) -> Counter[str]:
        world = World(plan)
        run_plan(world, 8000)
        history = world.history
        done = {"elections": history.elections, "truncations": history.truncations, "changes of voters": history.set_changes}
        return world.happened + Counter(done)

    assert everything.missing(run, (*everything.KINDS, "unsynced tails lost")) == []


def test_without_faults_the_first_leader_stays() -> None:
    """As Kafka's simulation demands; delays and duplicates are no faults."""
    for seed in range(10):
        world = World(Plan(seed, Topology(voters=3, observers=1), Links(delay_s=(0.001, 0.1), duplicate=0.1)))
        world.start_all()
        leader = world.elect()
        epoch = leader.core.epoch
        world.run(120)
        assert world.leader is leader
        assert leader.core.epoch == epoch
        assert world.history.elections == 1


def test_a_follower_that_returns_deposes_nobody() -> None:
    """Cut off it asks for pre-votes in vain, and its epoch stays (KIP-996)."""
    for seed in range(10):
        world = World(Plan(seed))
        world.start_all()
        leader = world.elect()
        epoch = leader.core.epoch
        away = next(r for r in world.replicas.values() if r is not leader)
        world.isolate(away.id)
        world.run(30)
        world.heal()
        end = world.settle("again")
        assert world.run(10, lambda r=away, end=end: r.committed >= end)  # type: ignore[misc]
        assert (world.leader, leader.core.epoch) == (leader, epoch)


def test_after_the_faults_everybody_holds_everything() -> None:
    world = World(Plan(1, faults=Faults(crash_every_s=0.5, power=1.0)))
    actors = Actors(world)
    world.start_all()
    actors.begin()
    world.run(events=5000)
    actors.end()
    world.calm_down()
    end = world.settle("last")
    assert world.run(30, lambda: all(r.committed >= end for r in world.replicas.values()))
    assert len({r.subject.trail.digest_at(end) for r in world.replicas.values()}) == 1


def test_a_world_that_cannot_go_on_fails_instead_of_waiting_for_ever() -> None:
    world = World(Plan(1))
    world.start_all()
    world.isolate(1)
    world.isolate(2)
    with pytest.raises(InvariantError, match=r"seed 1, .* no leader within"):
        world.elect(20.0)
