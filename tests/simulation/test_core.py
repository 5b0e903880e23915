"""Simulations of the pure core under faults, repeatable by their seeds."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from simulation.__main__ import main
from simulation.actions.nemesis import Nemesis
from simulation.actions.run import run_simulation
from simulation.actions.workload import WorkloadActions
from simulation.checker.invariants import InvariantError
from simulation.config import FaultSchedule, NetworkConfig, SimulationConfig, Topology
from simulation.core.world import World
from simulation.runner import run_seeds
from tests.simulation import coverage


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_random_worlds_keep_every_invariant() -> None:
    statistics = run_seeds("core", 100, 100_000, 3000, lambda line: None)
    assert statistics.elections > 100
    assert statistics.truncations > 20
    assert statistics.voter_changes > 20


def test_a_seed_gives_the_same_history_each_time() -> None:
    def history(seed: int) -> tuple[object, ...]:
        trace: list[str] = []
        world = World(SimulationConfig.from_seed(seed), trace.append)
        run_simulation(world, 2000)
        return trace, world.events, world.now, world.checker.digests

    assert history(7) == history(7)
    assert history(7) != history(8)


def test_a_failure_names_the_seed_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from quorate.raft.core import election

    monkeypatch.setattr(election, "may_grant", lambda r, q: True)
    assert main(["--events", "1000000", "--seed", "30", "--each", "3000"]) == 1
    out = capsys.readouterr().out
    seed = int(out.split("FAILED: seed ")[1].split(",")[0])
    assert main(["--replay", str(seed), "--each", "3000"]) == 1
    again = capsys.readouterr().out
    assert out.split("FAILED: ")[1].splitlines()[0] == again.split("FAILED: ")[1].splitlines()[0]


def test_every_kind_of_fault_and_work_occurs() -> None:
    def run(config: SimulationConfig) -> Counter[str]:
        world = World(config)
        run_simulation(world, 8000)
        checker = world.checker
        done = {
            "elections": checker.elections,
            "truncations": checker.truncations,
            "changes of voters": checker.voter_changes,
        }
        return world.coverage + Counter(done)

    assert coverage.missing(run, (*coverage.KINDS, "unsynced tails lost")) == []


def test_without_faults_the_first_leader_stays() -> None:
    """As in Kafka's RaftEventSimulationTest. Delays and duplicates are no faults."""
    for seed in range(10):
        world = World(
            SimulationConfig(
                seed, Topology(voters=3, observers=1), NetworkConfig(delay_s=(0.001, 0.1), duplicate=0.1)
            )
        )
        world.start_all()
        leader = world.await_leader()
        epoch = leader.core.state.epoch
        world.run(120)
        assert world.leader is leader
        assert leader.core.state.epoch == epoch
        assert world.checker.elections == 1


def test_a_follower_that_returns_deposes_nobody() -> None:
    """While it is cut off, its pre-votes fail, and its epoch stays (KIP-996)."""
    for seed in range(10):
        world = World(SimulationConfig(seed))
        world.start_all()
        leader = world.await_leader()
        epoch = leader.core.state.epoch
        away = next(r for r in world.replicas.values() if r is not leader)
        world.isolate(away.id)
        world.run(30)
        world.heal()
        end = world.commit_value("again")
        assert world.run(10, lambda r=away, end=end: r.committed >= end)  # type: ignore[misc]
        assert (world.leader, leader.core.state.epoch) == (leader, epoch)


def test_after_the_faults_everybody_holds_everything() -> None:
    world = World(SimulationConfig(1, faults=FaultSchedule(crash_every_s=0.5, power=1.0)))
    workload, nemesis = WorkloadActions(world), Nemesis(world)
    world.start_all()
    workload.start()
    nemesis.start()
    world.run(events=5000)
    workload.stop()
    nemesis.stop()
    world.stop_faults()
    end = world.commit_value("last")
    assert world.run(30, lambda: all(r.committed >= end for r in world.replicas.values()))
    assert len({r.model.log.digest_at(end) for r in world.replicas.values()}) == 1


def test_a_world_that_cannot_go_on_fails_instead_of_waiting_for_ever() -> None:
    world = World(SimulationConfig(1))
    world.start_all()
    world.isolate(1)
    world.isolate(2)
    with pytest.raises(InvariantError, match=r"seed 1, .* no leader within"):
        world.await_leader(20.0)
