"""Others who write to a table: what a run remembers of its files while they commit, and a later release."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")
pytest.importorskip("pyarrow", reason="PyArrow is not installed (pip install 'quorate[spark]')")

from quorate.pipeline.applying.histories import Table
from quorate.pipeline.storage.data_files import DataFile
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables import lake as lakes
from quorate.pipeline.tables.lake import SCHEMA, Changes, Lake, LakeError, Progress
from quorate.pipeline.tables.upkeep import compact

BROKERS = ENTITIES["brokers"]


def present(name: str) -> DataFile:
    """A file of states that hold."""
    return DataFile(f"cluster=c/{name}", "c", 100, {"numRecords": 1, "nullCount": {"valid_to_offset": 1}})


class TableOfDelta:
    """The commits of one table: the files after each of them, and how often they were listed."""

    def __init__(self, *files: DataFile) -> None:
        self.states = [list(files)]
        self.listed = 0

    def commit(self, added: Any, removed: Any, text: str = "", version: int = 0) -> int:
        """Adds and removes files on top of what others have committed."""
        gone = {file.path for file in removed}
        assert gone <= {file.path for file in self.states[-1]}
        self.states.append([*[file for file in self.states[-1] if file.path not in gone], *added])
        return len(self.states) - 1

    def commit_of(self, snapshot: int) -> tuple[int, int]:
        return snapshot, 0

    def begin(self, *_: Any) -> Any:
        version = len(self.states) - 1

        def files(cluster: str, where: str) -> list[DataFile]:
            self.listed += 1
            return self.states[version]

        return SimpleNamespace(
            version=version, begun_at=(version, 0), application="a", commit=self.commit, files=files
        )


@pytest.fixture
def delta() -> TableOfDelta:
    return TableOfDelta(present("one"), present("other"))


@pytest.fixture
def lake(delta: TableOfDelta, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(lakes, "require_delta", lambda spark: None)
    monkeypatch.setattr(lakes, "commit_of", delta.commit_of)
    spark: Any = None
    found = Lake(spark, str(tmp_path))
    monkeypatch.setattr(found, "begin", delta.begin)
    monkeypatch.setattr(found, "snapshot", lambda table: len(delta.states) - 1)
    monkeypatch.setattr(found, "schemas", lambda table: {"c": SCHEMA})
    return found


def opened(lake: Lake, end: int) -> Table:
    return Table.opened(lake, "c", BROKERS, Progress(0, end), resets=False)


def names(table: Table) -> list[str]:
    return sorted(file.path.rpartition("/")[2] for file in table.changing)


def test_files_are_listed_once_while_no_one_else_commits(lake: Lake, delta: TableOfDelta) -> None:
    opened(lake, 5).commit(lake, Changes([present("new")]), Progress(0, 7))
    assert names(opened(lake, 7)) == ["new", "one", "other"]
    assert delta.listed == 1


@pytest.mark.parametrize("is_after", [False, True])
def test_files_that_others_have_joined_meanwhile_are_not_read_again(
    lake: Lake, delta: TableOfDelta, monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    """`compact` joins files that the run leaves alone, so its commit is no conflict: before the one
    of the run, or between that and the moment in which the run looks up what it has committed."""

    def compact() -> None:
        delta.commit([present("joined")], [present("one"), present("other")])

    table = opened(lake, 5)
    if is_after:
        snapshot = lake.snapshot

        def late_snapshot(table: str) -> Any:
            compact()
            monkeypatch.setattr(lake, "snapshot", snapshot)
            return snapshot(table)

        monkeypatch.setattr(lake, "snapshot", late_snapshot)
    else:
        compact()
    table.commit(lake, Changes([present("new")]), Progress(0, 7))
    assert names(opened(lake, 7)) == ["joined", "new"]


def test_files_of_a_later_release_are_not_joined(
    lake: Lake, delta: TableOfDelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may have columns that this release would leave out."""
    monkeypatch.setattr(lake, "schemas", lambda table: {"c": SCHEMA, "other": SCHEMA + 1})
    with pytest.raises(LakeError, match=f"has schema {SCHEMA + 1}, but .* upgrade quorate"):
        compact(lake, "brokers", 168)
    assert len(delta.states) == 1
