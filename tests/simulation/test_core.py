"""The pure core under faults: random worlds, found again by their seed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from quorate.testing.actors import Actors, run_plan
from quorate.testing.invariants import InvariantError
from quorate.testing.plan import Faults, Links, Plan, Topology, Workload
from quorate.testing.simulate import main, simulate
from quorate.testing.world import World


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


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
    """A world in which all happens at once, so that no actor is dead code."""
    plan = Plan(
        5,
        Topology(voters=3, spares=2, observers=1, kraft_version=0),
        Links(loss=0.02, duplicate=0.05, stray=0.02),
        workload=Workload(0.02, (1, 4), 0.5, 1.0, 4.0, 4.0, 1.0),
        faults=Faults(
            crash_every_s=2.0,
            blackout_every_s=15.0,
            down_s=(0.0, 2.0),
            cut_every_s=2.0,
            isolate_every_s=4.0,
            split_every_s=4.0,
            cut_s=(0.1, 3.0),
            pause_every_s=3.0,
            pause_s=(0.05, 3.0),
            skew=0.05,
        ),
    )
    told: list[str] = []
    world = World(plan, told.append)
    run_plan(world, 20_000)
    text = "\n".join(told)
    for what in ("is killed", "loses power", "takes the snapshot", "loads the snapshot", "truncates", "is resigned", "commits"):
        assert what in text, what
    assert world.history.set_changes > 3
    assert world.history.elections > 5


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
