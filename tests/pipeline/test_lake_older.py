"""A lake that an older release wrote continues: nothing is lost or doubled.

Spark wrote its files: times are INT96 without a zone, a file has current states and
ended ones, and the column `cluster`. tests/golden/README.md says how the archive was made.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .conftest import LOG
from .test_lake import apply, contents

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.lake, pytest.mark.timeout(400)]

ARCHIVE = Path(__file__).parents[1] / "golden" / "lake-of-spark.tar.xz"
APPLIED = 511
"""The end of the records that the lake has."""
END = 1105
"""The end of the log."""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `lake` and `node`, the log from which it comes."""
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def anew(older: Path, lakes: Callable[[], Lake]) -> dict[str, list[str]]:
    """The rows of a lake that this release has filled from the same log."""
    lake = lakes()
    assert apply(lake, older / "node" / LOG).end == END
    return contents(lake)


@pytest.mark.parametrize("by_workers", [False, True], ids=["here", "by workers"])
def test_a_lake_that_an_older_release_wrote_continues(
    older: Path,
    anew: dict[str, list[str]],
    lakes: Callable[[], Lake],
    copied: Callable[[Lake], Lake],
    monkeypatch: pytest.MonkeyPatch,
    by_workers: bool,
) -> None:
    from quorate.pipeline import lake_source
    from quorate.pipeline.applying import news
    from quorate.pipeline.tables.lake import Lake as Tables

    if by_workers:
        for module in (lake_source, news):
            monkeypatch.setattr(module, "FEW_RECORDS", 0)
    lake = copied(Tables(lakes().spark, str(older / "lake")))
    assert lake.applied("events", "c") == APPLIED
    done = apply(lake, older / "node" / LOG)
    assert (done.start, done.end) == (APPLIED, END)
    found = contents(lake)
    assert found.keys() == anew.keys()
    for table, rows in anew.items():
        assert found[table] == rows, table
