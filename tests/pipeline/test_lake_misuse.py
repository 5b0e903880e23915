"""What the commands of a lake answer to wrong inputs, and states that cannot be told after an expiry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quorate.protocol.schema import Data
from quorate.records.batch import build_control_batch
from quorate.records.control import ControlRecordType, LeaderChangeMessage

from .conftest import ORDERS, change, config, partition, topic, write_log
from .test_lake import apply, contents
from .test_lake_upkeep import command

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.lake, pytest.mark.timeout(400)]

BATCHES: list[list[Data]] = [
    [topic("orders", ORDERS), config("orders", "k", "1"), partition(ORDERS)],  # 1 to 3
    [change(ORDERS, leader=2)],  # 4
    [change(ORDERS, leader=1)],  # 5
    [config("orders", "k", "2")],  # 6
]


def write(folder: Path, epoch: int, batches: Sequence[Sequence[Data]]) -> Path:
    """A log that begins with a record of the quorum, as each does."""
    path = write_log(folder, 1, batches, epoch=epoch)
    first = build_control_batch(
        [(ControlRecordType.LEADER_CHANGE, LeaderChangeMessage(leader_id=1).encode(0))],
        base_offset=0,
        leader_epoch=1,
        timestamp=0,
    )
    log = folder / f"{0:020d}.log"
    log.write_bytes(first + path.read_bytes())
    path.unlink()
    return log


@pytest.fixture(scope="module")
def filled(lakes: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder, lake = tmp_path_factory.mktemp("log"), lakes()
    for batches in (BATCHES[:2], BATCHES):
        write(folder, 1, batches)
        apply(lake, folder)
    return lake


EXPIRE = ("expire", "--older-than", "1970-01-01T00:00:05.5", "--yes", "--lake")


@pytest.mark.parametrize(
    "words", [["compact", "--yes"], ["expire", "--older-than", "1d", "--yes"], ["migrate", "--yes"]]
)
def test_a_folder_that_is_no_lake_is_refused(
    lake: Lake, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*words, "--lake", lake.folder) == 1
    assert f"{lake.folder} is not a lake: quorate-pipeline run" in capsys.readouterr().err


def test_an_unknown_cluster_expires_nothing(filled: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*EXPIRE, filled.folder, "--cluster", "x") == 1
    assert "x" in capsys.readouterr().err


def test_a_log_that_differs_in_expired_records_is_refused(
    filled: Lake, copied: Callable[[Lake], Lake], tmp_path: Path
) -> None:
    """The records of the quorum stay, so that the first one of both logs agrees."""
    from quorate.pipeline.tables.lake import LakeError

    lake = copied(filled)
    assert command(*EXPIRE, lake.folder) == 0
    before = contents(lake)
    first = write(tmp_path, 1, BATCHES[:2])
    rest = write_log(tmp_path, 5, [[change(ORDERS, leader=3)], [config("orders", "k", "3")]], epoch=2)
    first.write_bytes(first.read_bytes() + rest.read_bytes())
    rest.unlink()
    with pytest.raises(LakeError, match=r"differs .* from offset 6 .* expired"):
        apply(lake, tmp_path)
    assert contents(lake) == before


def test_a_table_with_deletion_vectors_is_refused_and_continued_without_them(
    filled: Lake, copied: Callable[[Lake], Lake], tmp_path: Path
) -> None:
    """A program that is none of ours may have deleted rows."""
    lake = copied(filled)
    place = f"delta.`{lake.path('partitions')}`"
    lake.spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)")
    lake.spark.sql(f"DELETE FROM {place} WHERE valid_from_offset = 3")
    write(tmp_path, 1, [*BATCHES, [change(ORDERS, leader=2)]])
    with pytest.raises(ValueError, match=r"has deletion vectors: REORG TABLE delta\..* APPLY \(PURGE\)"):
        apply(lake, tmp_path)
    lake.spark.sql(f"REORG TABLE {place} APPLY (PURGE)")
    apply(lake, tmp_path)
    leaders = lake.read("partitions").orderBy("valid_from_offset").select("leader").collect()
    assert [row["leader"] for row in leaders] == [2, 1, 2]


def test_a_table_that_lost_commits_is_complete_up_to_what_is_left(
    filled: Lake, copied: Callable[[Lake], Lake]
) -> None:
    """The events that it needs have expired."""
    from quorate.pipeline.questions.moments import offset_of
    from quorate.pipeline.tables import ENTITIES

    lake = copied(filled)
    assert command(*EXPIRE, lake.folder) == 0
    assert offset_of(lake, "c", None, ENTITIES["partitions"]) == 6
    last = max(Path(lake.path("partitions"), "_delta_log").glob("*.json"))
    last.unlink()
    last.with_suffix(".crc").unlink(missing_ok=True)
    assert offset_of(lake, "c", None, ENTITIES["partitions"]) == 4
