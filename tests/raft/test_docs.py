"""The diagram of the roles in docs/raft.md corresponds to the table of transitions in the code."""

from __future__ import annotations

from pathlib import Path

from quorate.raft.types import TRANSITIONS


def test_the_diagram_of_roles_is_drawn_from_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "raft.md").read_text()
    drawn = [line.strip() for line in text.splitlines() if " --> " in line]
    assert drawn == [
        f"{a.value} --> {b.value}" for a in TRANSITIONS for b in sorted(TRANSITIONS[a], key=lambda r: r.value)
    ]
