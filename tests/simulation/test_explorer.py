"""Complete explorations within small bounds. `python -m simulation.explorer` is for larger ones."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorate.raft.core.effects import Effects
from quorate.raft.types import QuorumState
from simulation.explorer.__main__ import main
from simulation.explorer.bounds import Bounds
from simulation.explorer.canonical_form import canonical_form
from simulation.explorer.replica import ExploredReplica
from simulation.explorer.replica_table import Outcome
from simulation.explorer.search import ExplorationResult, explore
from simulation.explorer.state_space import StateSpace
from simulation.explorer.symmetry import WorldState
from simulation.explorer.visited import HashedWorlds
from tests.simulation import planted

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


SLOW_DISK = Bounds(epochs=1, entries=0, crashes=0, late_messages=0, slow_disk=True)
LARGE_WORLDS = {
    "two epochs": Bounds(epochs=2, entries=0, crashes=0, late_messages=0),
    "entries": Bounds(epochs=1, entries=2, crashes=0, late_messages=0),
    "one message is late": Bounds(epochs=1, entries=0, crashes=0, late_messages=1),
}
SMALL_WORLDS = {
    "pre-votes are late": Bounds(epochs=1, entries=0, crashes=0, late_messages=0, late_pre_votes=True),
    "everybody crashes": Bounds(
        replicas=2, epochs=1, entries=1, crashes=1, late_messages=0, down=True, mid_step=True
    ),
    "fsyncs take time": Bounds(replicas=2, epochs=1, entries=1, crashes=1, late_messages=0, slow_disk=True),
    "quick failover": Bounds(
        replicas=2, epochs=1, entries=1, crashes=1, late_messages=0, down=True, quick=True
    ),
    "requests are given up": Bounds(
        replicas=2, epochs=1, entries=1, crashes=0, late_messages=1, timeouts=1, repeats=1
    ),
    "leaders resign": Bounds(epochs=1, entries=0, crashes=0, late_messages=0, check_quorum=True),
}


@pytest.mark.timeout(900)  # the largest world takes two minutes on a quiet machine
@pytest.mark.parametrize(
    "bounds",
    [
        *(
            pytest.param(bounds, id=name.replace(" ", "-"), marks=pytest.mark.slow)
            for name, bounds in LARGE_WORLDS.items()
        ),
        *(pytest.param(bounds, id=name.replace(" ", "-")) for name, bounds in SMALL_WORLDS.items()),
    ],
)
def test_no_world_within_the_bounds_breaks_an_invariant(bounds: Bounds) -> None:
    found = explore(bounds)
    assert found.violation is None, "\n".join(found.trace)
    assert found.complete
    assert found.worlds > 500


def trace_of(found: ExplorationResult) -> str:
    assert found.violation is not None
    return "\n".join(found.trace)


Plant = Callable[[Patch], None]


@pytest.mark.parametrize(
    ("plant", "bounds", "broken", "actions"),
    [
        (planted.vote_twice, Bounds(epochs=1, entries=0, crashes=0, late_messages=1), "one vote an epoch", 8),
        pytest.param(
            planted.vote_for_a_shorter_log,
            Bounds(epochs=2, entries=0, crashes=0, late_messages=0),
            "leader completeness",
            16,
            marks=pytest.mark.slow,
        ),
        (
            planted.commit_older_epochs_by_counting,
            Bounds(epochs=2, entries=0, crashes=0, late_messages=0),
            "high watermark",
            7,
        ),
        (
            planted.skip_fsync,
            Bounds(epochs=1, entries=0, crashes=0, late_messages=0, slow_disk=True),
            "acknowledged is durable",
            8,
        ),
        (
            planted.count_oneself_too_early,
            Bounds(epochs=1, entries=0, crashes=0, late_messages=0, slow_disk=True),
            "majority",
            10,
        ),
        (
            planted.grant_a_pre_vote_while_hearing_the_leader,
            Bounds(epochs=1, entries=0, crashes=0, late_messages=0),
            "pre-vote",
            13,
        ),
    ],
    ids=lambda v: v.__name__.replace("_", "-") if callable(v) else None,
)
def test_a_planted_bug_is_found_with_a_shortest_trace(
    plant: Plant, bounds: Bounds, broken: str, actions: int, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    found = explore(bounds)
    trace = trace_of(found)
    assert broken in str(found.violation)
    assert found.trace[-1].splitlines()[-1].startswith(f"FAILED: {broken}"), trace
    assert len(found.trace) == actions, trace


def test_a_vote_that_a_crash_takes_away_is_found(monkeypatch: Patch) -> None:
    crash = ExploredReplica.crash_keeping

    def forget(self: ExploredReplica, keep: int, late: bool, last: bool) -> None:
        crash(self, keep, late, last)
        if self.disk.stored is not None:
            self.disk.stored = QuorumState(self.disk.stored.epoch)

    monkeypatch.setattr(ExploredReplica, "crash_keeping", forget)
    found = explore(Bounds(epochs=1, entries=0, crashes=1, late_messages=0))
    assert re.search(r"one vote an epoch: n(\d+) votes for .* in epoch 1", trace_of(found))
    assert "crashes" in trace_of(found)


def test_the_trace_names_nodes_and_messages(monkeypatch: Patch) -> None:
    planted.vote_twice(monkeypatch)
    trace = trace_of(explore(Bounds(epochs=1, entries=0, crashes=0, late_messages=1)))
    assert "1. n1's election timer goes off\n    n1 is prospective in epoch 0" in trace
    assert "n1's Vote(epoch 1, log 0-0) to n3 is late" in trace
    assert trace.endswith("FAILED: one vote an epoch: n3 votes for 2 and 1 in epoch 1")


def test_a_search_with_hashes_visits_the_same_worlds() -> None:
    bounds = SMALL_WORLDS["everybody crashes"]
    exact, hashed = explore(bounds), explore(bounds, hashed=True)
    assert hashed.complete
    assert (hashed.worlds, hashed.transitions, hashed.depth) == (exact.worlds, exact.transitions, exact.depth)


def test_a_search_with_hashes_finds_the_same_trace(monkeypatch: Patch) -> None:
    planted.vote_twice(monkeypatch)
    bounds = Bounds(epochs=1, entries=0, crashes=0, late_messages=1)
    assert trace_of(explore(bounds, hashed=True)) == trace_of(explore(bounds))


def test_a_table_of_hashes_keeps_its_worlds_when_it_grows() -> None:
    worlds = [number.to_bytes(8) for number in range(200_000)]
    visited = HashedWorlds()
    for predecessor, world in zip([None, *worlds], worlds, strict=False):
        assert visited.add(world, predecessor)
    assert not any(visited.add(world, None) for world in worlds)
    assert len(visited) == len(worlds)
    assert visited.path_to(worlds[-1]) == [visited.key(world) for world in worlds]


@pytest.mark.slow
def test_worlds_that_differ_in_names_alone_are_one() -> None:
    """Without symmetry reduction the same worlds are found, each under nearly all of its six names."""
    space = StateSpace(Bounds(epochs=1, entries=0, crashes=0, late_messages=0))

    def found(successors: Callable[[WorldState], Iterator[WorldState]]) -> set[WorldState]:
        level, seen = [space.initial_world()], set()
        while level:
            seen |= set(level)
            level = list({w for world in level for w in successors(world)} - seen)
        return seen

    def at_rest(worlds: set[WorldState]) -> set[WorldState]:
        """Returns the worlds without urgent messages: of several, which one arrives first is arbitrary."""
        messages = space.replicas.messages.all
        return {space.canonical(w) for w in worlds if all(messages[at].stage == "held" for at in w[10:])}

    reduced, each = found(space.successors), found(lambda world: space.successors(world, []))
    assert at_rest(reduced) == at_rest(each)
    assert 5 * len(reduced) < len(each) <= 6 * len(reduced)


def test_serialization_loses_nothing() -> None:
    """Neither serialization nor a renaming and its inverse change a replica, in all states of an
    exploration."""
    space = StateSpace(Bounds(epochs=1, entries=1, crashes=0, late_messages=0))
    level, seen = [space.initial_world()], set()
    while level and len(seen) < 400:
        seen |= set(level)
        level = list({w for world in level for w in space.successors(world)} - seen)
    replicas = space.replicas
    serializer = replicas.serializer
    roles = set()
    for state in list(replicas.states):
        deserialized = serializer.deserialize(state.serialized)
        there = serializer.deserialize(state.serialized, (1, 2, 0))
        back = serializer.deserialize(serializer.serialize(there), (2, 0, 1))
        assert back.canonical_form() == deserialized.canonical_form()
        assert there.id != deserialized.id
        if state.alive:
            roles.add(state.role)
            assert isinstance(deserialized.core.state.effects, Effects)
            assert deserialized.core.state.epoch == state.epoch
    assert len(roles) >= 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(epochs=2, entries=1, crashes=1, late_messages=0),
        Bounds(
            epochs=1,
            entries=1,
            late_messages=1,
            down=True,
            check_quorum=True,
            quick=True,
            slow_disk=True,
            late_pre_votes=True,
        ),
    ],
)
def test_replicas_of_one_form_do_the_same(bounds: Bounds, monkeypatch: Patch) -> None:
    """Replicas with one form are treated as one, although they may differ in some bits.

    So their outcomes must be equal.
    """
    space = StateSpace(bounds)
    replicas = space.replicas
    others: dict[int, list[bytes]] = {}
    number_of = replicas._number

    def number(replica: ExploredReplica) -> int:
        found = number_of(replica)
        if replica.alive:
            replica.core.state.effects = Effects()
        data = replicas.serializer.serialize(replica)
        if data != replicas.states[found].serialized:
            others.setdefault(found, []).append(data)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(replicas, "_number", number)
        level, seen = [space.initial_world()], set()
        while level and len(seen) < 2500:
            seen |= set(level)
            level = sorted({w for world in level for w in space.successors(world)} - seen)

    def view(out: Outcome) -> object:
        answers = [(token, kind, canonical_form(reply)) for token, kind, reply in out.answers]
        facts = [(name, canonical_form(args)) for name, args in out.facts]
        return (
            out.after,
            out.violation,
            out.epoch,
            out.sends,
            out.held,
            out.orphans,
            out.crash_points,
            answers,
            facts,
        )

    compared = 0
    for (at, event), out in list(replicas.outcomes.items()):
        first = replicas.states[at].serialized
        for data in others.get(at, [])[:2]:
            replicas.states[at].serialized = data
            assert view(replicas._compute(at, event)) == view(out), (at, event)
            compared += 1
        replicas.states[at].serialized = first
    assert compared > 200


def test_the_command_writes_its_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.json"
    options = ["--epochs", "1", "--entries", "0", "--crashes", "0", "--late-messages", "0"]
    assert main([*options, "--json", str(out)]) == 0
    result = json.loads(out.read_text())
    assert result["complete"] and result["violation"] is None
    assert result["bounds"]["replicas"] == 3
    assert f"{result['worlds']} worlds" in capsys.readouterr().out
    assert main([*options, "--max-seconds", "0"]) == 2


def test_the_command_fails_with_the_trace(monkeypatch: Patch, capsys: pytest.CaptureFixture[str]) -> None:
    planted.commit_older_epochs_by_counting(monkeypatch)
    assert main(["--epochs", "2", "--entries", "0", "--crashes", "0", "--late-messages", "0"]) == 1
    assert "FAILED: high watermark" in capsys.readouterr().out
