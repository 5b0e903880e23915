"""A file of more than 500 lines has two subjects, and a reader cannot keep it in mind. Tests, whose tables
of cases take many lines, may have 600."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_LINES = {"src": 500, "simulation": 500, "bench": 500, "tests": 600}


def test_no_file_is_too_long() -> None:
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for folder in MOST_LINES
        for path in (ROOT / folder).rglob("*.py")
    }
    found = {path: count for path, count in lines.items() if count > MOST_LINES[path.partition("/")[0]]}
    assert not found, "\n".join(f"{path} has {count} lines: divide it" for path, count in found.items())
