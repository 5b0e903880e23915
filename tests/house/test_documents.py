"""What the documents name exists: files, targets of links, and tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCE = ROOT / "src" / "quorate"
FILES = [
    f"/{path.relative_to(ROOT)}"
    for folder in ("src", "tests", "simulation", "bench", "scripts", "spec", "docs")
    for path in (ROOT / folder).rglob("*.*")
]


def table_rows(text: str, heading: str) -> list[str]:
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def test_every_file_in_the_map_of_kafkas_classes_exists() -> None:
    rows = table_rows((ROOT / "docs" / "architecture.md").read_text(), "From Kafka's classes to our files")
    assert len(rows) >= 40
    missing = []
    for row in rows:
        folder = SOURCE
        for path in re.findall(r"`([\w/]+(?:\.py|/))`", row.split("|")[2]):
            full = SOURCE / path if "/" in path else folder / path
            folder = full.parent
            if not full.exists():
                missing.append(f"{path} in {row}")
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", document.read_text()):
        if "://" in target:
            continue
        path = document.parent / target if target else document
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_files_exist(document: Path) -> None:
    """A file may be named by the last parts of its path, as in `core/raft.py`."""
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    named = set(re.findall(r"`([\w/.-]+\.(?:py|xml|tla))`", text))
    named |= set(
        re.findall(r"`((?:src|tests|simulation|bench|scripts|spec|docs)/[\w/.-]+\.(?:md|json))`", text)
    )
    missing = sorted(name for name in named if not any(path.endswith(f"/{name}") for path in FILES))
    assert missing == []


def conformance_rows() -> list[tuple[str, str]]:
    """The statements in docs/conformance.md, each with its tests or the reason why it has none."""
    text = (ROOT / "docs" / "conformance.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| section")]
    return [(cells[2].strip(), cells[3].strip()) for cells in (row.split("|") for row in rows)]


def test_every_statement_of_the_conformance_table_has_a_test_or_a_reason() -> None:
    rows = conformance_rows()
    assert len(rows) > 200
    reason = re.compile(r"\*(not so|no behaviour|missing)\*: \w")
    assert [s for s, why in rows if "::test_" not in why and not reason.match(why)] == []


def test_every_test_of_the_conformance_table_exists() -> None:
    named = {test for _, why in conformance_rows() for test in re.findall(r"`([\w/]+\.py)::(test_\w+)`", why)}
    assert len(named) > 100
    defined: dict[str, set[str]] = {}
    for path, _ in named:
        file = ROOT / "tests" / path
        text = file.read_text() if file.exists() else ""
        defined[path] = set(re.findall(r"^\s*(?:async )?def (test_\w+)\(", text, re.MULTILINE))
    assert sorted(f"{path}::{test}" for path, test in named if test not in defined[path]) == []
