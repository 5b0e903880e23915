"""Every world of the real core within small bounds; larger ones are explored by `python -m simulation.explore`."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorate.raft.messages import Effects
from quorate.raft.quorum_state import QuorumState
from simulation.explore import Found, explore, main
from simulation.explore_replica import Explored
from simulation.explore_states import Outcome
from simulation.explore_values import form
from simulation.explore_world import Bounds, SmallWorld, World
from tests.simulation import planted

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


LARGE_WORLDS = {
    "two epochs": Bounds(epochs=2, entries=0, crashes=0, letters=0),
    "entries": Bounds(epochs=1, entries=2, crashes=0, letters=0),
    "one message is late": Bounds(epochs=1, entries=0, crashes=0, letters=1),
}
SMALL_WORLDS = {
    "pre-votes are late": Bounds(epochs=1, entries=0, crashes=0, letters=0, late_pre_votes=True),
    "everybody crashes": Bounds(replicas=2, epochs=1, entries=1, crashes=1, letters=0, down=True, mid_step=True),
    "fsyncs take time": Bounds(replicas=2, epochs=1, entries=1, crashes=1, letters=0, slow_disk=True),
    "quick failover": Bounds(replicas=2, epochs=1, entries=1, crashes=1, letters=0, down=True, quick=True),
    "requests are given up": Bounds(replicas=2, epochs=1, entries=1, crashes=0, letters=1, timeouts=1, again=1),
    "leaders resign": Bounds(epochs=1, entries=0, crashes=0, letters=0, check_quorum=True),
}


@pytest.mark.parametrize(
    "bounds",
    [
        *(pytest.param(bounds, id=name.replace(" ", "-"), marks=pytest.mark.slow) for name, bounds in LARGE_WORLDS.items()),
        *(pytest.param(bounds, id=name.replace(" ", "-")) for name, bounds in SMALL_WORLDS.items()),
    ],
)
def test_no_world_within_the_bounds_breaks_an_invariant(bounds: Bounds) -> None:
    found = explore(bounds)
    assert found.violation is None, "\n".join(found.story)
    assert found.complete
    assert found.worlds > 500


def told(found: Found) -> str:
    assert found.violation is not None
    return "\n".join(found.story)


Plant = Callable[[Patch], None]


@pytest.mark.parametrize(
    ("plant", "bounds", "broken", "moves"),
    [
        (planted.vote_twice, Bounds(epochs=1, entries=0, crashes=0, letters=1), "one vote an epoch", 8),
        pytest.param(
            planted.vote_for_a_shorter_log,
            Bounds(epochs=2, entries=0, crashes=0, letters=0),
            "leader completeness",
            16,
            marks=pytest.mark.slow,
        ),
        (planted.commit_older_epochs_by_counting, Bounds(epochs=2, entries=0, crashes=0, letters=0), "high watermark", 7),
        (planted.skip_fsync, Bounds(epochs=1, entries=0, crashes=0, letters=0, slow_disk=True), "acknowledged is durable", 8),
        (planted.count_oneself_too_early, Bounds(epochs=1, entries=0, crashes=0, letters=0, slow_disk=True), "majority", 10),
        (
            planted.grant_a_pre_vote_while_hearing_the_leader,
            Bounds(epochs=1, entries=0, crashes=0, letters=0),
            "pre-vote",
            13,
        ),
    ],
    ids=lambda v: v.__name__.replace("_", "-") if callable(v) else None,
)
def test_a_planted_bug_is_told_by_a_shortest_story(
    plant: Plant, bounds: Bounds, broken: str, moves: int, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    found = explore(bounds)
    story = told(found)
    assert broken in str(found.violation)
    assert found.story[-1].splitlines()[-1].startswith(f"FAILED: {broken}"), story
    assert len(found.story) == moves, story


def test_a_vote_that_a_crash_takes_away_is_found(monkeypatch: Patch) -> None:
    crash = Explored.crash

    def forget(self: Explored, keep: int, late: bool, last: bool) -> None:
        crash(self, keep, late, last)
        if self.disk.stored is not None:
            self.disk.stored = QuorumState(self.disk.stored.epoch)

    monkeypatch.setattr(Explored, "crash", forget)
    found = explore(Bounds(epochs=1, entries=0, crashes=1, letters=0))
    assert re.search(r"one vote an epoch: n(\d+) votes for .* in epoch 1", told(found))
    assert "crashes" in told(found)


def test_the_story_names_nodes_and_messages(monkeypatch: Patch) -> None:
    planted.vote_twice(monkeypatch)
    story = told(explore(Bounds(epochs=1, entries=0, crashes=0, letters=1)))
    assert "1. n1's election timer goes off\n    n1 is prospective in epoch 0" in story
    assert "n1's Vote(epoch 1, log 0-0) to n3 is late" in story
    assert story.endswith("FAILED: one vote an epoch: n3 votes for 2 and 1 in epoch 1")


@pytest.mark.slow
def test_worlds_that_differ_in_names_alone_are_one() -> None:
    """Where every world is looked at under every name, nothing else is found, but nearly six times as much."""
    small = SmallWorld(Bounds(epochs=1, entries=0, crashes=0, letters=0))

    def found(moves: Callable[[World], Iterator[World]]) -> set[World]:
        level, seen = [small.first()], set()
        while level:
            seen |= set(level)
            level = list({w for world in level for w in moves(world)} - seen)
        return seen

    def at_rest(worlds: set[World]) -> set[World]:
        """In which no message arrives before anything else happens: which of several does first is arbitrary."""
        letters = small.replicas.letters.all
        return {small.standing_for(w) for w in worlds if all(letters[at].stage == "held" for at in w[10:])}

    one_for_all, each = found(small.moves), found(lambda world: small.moves(world, []))
    assert at_rest(one_for_all) == at_rest(each)
    assert 5 * len(one_for_all) < len(each) <= 6 * len(one_for_all)


def test_a_frozen_replica_thaws_as_it_was() -> None:
    """Of every replica that a small world meets: freezing and thawing loses nothing, renaming there and back neither."""
    small = SmallWorld(Bounds(epochs=1, entries=1, crashes=0, letters=0))
    level, seen = [small.first()], set()
    while level and len(seen) < 400:
        seen |= set(level)
        level = list({w for world in level for w in small.moves(world)} - seen)
    replicas = small.replicas
    shared = replicas.shared
    roles = set()
    for known in list(replicas.known):
        thawed = shared.thaw(known.frozen)
        there = shared.thaw(known.frozen, (1, 2, 0))
        back = shared.thaw(shared.freeze(there), (2, 0, 1))
        assert back.form() == thawed.form()
        assert there.id != thawed.id
        if known.alive:
            roles.add(known.role)
            assert isinstance(thawed.core.fx, Effects)
            assert thawed.core.epoch == known.epoch
    assert len(roles) >= 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(epochs=2, entries=1, crashes=1, letters=0),
        Bounds(epochs=1, entries=1, letters=1, down=True, check_quorum=True, quick=True, slow_disk=True, late_pre_votes=True),
    ],
)
def test_replicas_of_one_form_do_the_same(bounds: Bounds, monkeypatch: Patch) -> None:
    """Worlds merge where replicas have one form, though they are not the same bit by bit: so each must do as the first did."""
    small = SmallWorld(bounds)
    replicas = small.replicas
    others: dict[int, list[bytes]] = {}
    number_of = replicas._number

    def number(replica: Explored) -> int:
        found = number_of(replica)
        if replica.alive:
            replica.core.fx = Effects()
        data = replicas.shared.freeze(replica)
        if data != replicas.known[found].frozen:
            others.setdefault(found, []).append(data)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(replicas, "_number", number)
        level, seen = [small.first()], set()
        while level and len(seen) < 2500:
            seen |= set(level)
            level = sorted({w for world in level for w in small.moves(world)} - seen)

    def view(out: Outcome) -> object:
        answers = [(asker, kind, form(reply)) for asker, kind, reply in out.answers]
        facts = [(name, form(args)) for name, args in out.facts]
        return (out.after, out.violation, out.epoch, out.sends, out.held, out.orphans, out.dooms, answers, facts)

    compared = 0
    for (at, event), out in list(replicas.outcomes.items()):
        first = replicas.known[at].frozen
        for data in others.get(at, [])[:2]:
            replicas.known[at].frozen = data
            assert view(replicas._compute(at, event)) == view(out), (at, event)
            compared += 1
        replicas.known[at].frozen = first
    assert compared > 200


def test_the_command_writes_what_it_has_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.json"
    options = ["--epochs", "1", "--entries", "0", "--crashes", "0", "--letters", "0"]
    assert main([*options, "--json", str(out)]) == 0
    result = json.loads(out.read_text())
    assert result["complete"] and result["violation"] is None
    assert result["bounds"]["replicas"] == 3
    assert f"{result['worlds']} worlds" in capsys.readouterr().out
    assert main([*options, "--max-seconds", "0"]) == 2


def test_the_command_fails_with_the_story(monkeypatch: Patch, capsys: pytest.CaptureFixture[str]) -> None:
    planted.commit_older_epochs_by_counting(monkeypatch)
    assert main(["--epochs", "2", "--entries", "0", "--crashes", "0", "--letters", "0"]) == 1
    assert "FAILED: high watermark" in capsys.readouterr().out
