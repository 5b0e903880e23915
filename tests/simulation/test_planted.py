"""Bugs planted in the core are caught, each within a bounded number of events."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from simulation.checker.invariants import InvariantError
from simulation.runner import run_seeds
from tests.simulation.planted import PLANTED, Planted

BOUND = 150_000  # events; without the bug the same seeds pass (test_core, and the long runs)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda p: p.name.replace(" ", "-"))
def test_a_planted_bug_is_caught(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.plant(monkeypatch)
    with pytest.raises(InvariantError, match=rf"seed \d+, event \d+, [0-9.]+ s: .*({planted.caught_by})"):
        run_seeds("core", planted.seed, BOUND, 3000, lambda line: None)


def test_the_same_worlds_pass_without_a_planted_bug() -> None:
    run_seeds("core", 0, 30_000, 3000, lambda line: None)
