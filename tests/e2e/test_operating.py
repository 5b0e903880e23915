"""docs/operating.md: all its commands do what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.walkthrough import Walkthrough

DOCUMENT = Path(__file__).parents[2] / "docs" / "operating.md"


def shape(output: str) -> str:
    """The first line of an output without what differs in each run: ids, numbers and the width of columns."""
    line = output.partition("\n")[0]
    line = re.sub(r"(?<![\w-])[\w-]{22}(?![\w-])", "ID", line)
    line = re.sub(r"leader \d+ has not been heard for", "no leader for", line)  # by a former follower
    return re.sub(r"\s+", " ", re.sub(r"-?\d+", "0", line))


@pytest.mark.timeout(600)
def test_the_commands_of_the_walk_through_print_what_it_shows() -> None:
    walkthrough = Walkthrough(DOCUMENT)
    try:
        walkthrough.run()
    finally:
        walkthrough.close()
    assert len(walkthrough.steps) > 40
    differing = {
        step.command: (step.output, step.documented)
        for step in walkthrough.steps
        if shape(step.output) != shape(step.documented)
    }
    assert differing == {}
