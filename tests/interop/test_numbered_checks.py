"""The check of the mixed brokers' logs, in the tests and in the soak, finds each planted fault."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from quorate.records.batch import build_batch
from tests.support.metadata_disk import Disk, read_folder
from tests.support.numbered_load import UNKNOWN_OFFSET, LogChecker

BATCHES = ((0, 1, 2), (3, 4), (5, 6, 7, 8))
ACKNOWLEDGED = [*range(9)]


def replica(folder: Path, batches: Sequence[Sequence[int]] = BATCHES, start: int = 0, epoch: int = 3) -> Disk:
    """A partition's folder whose log has these numbers, in these batches."""
    folder.mkdir(parents=True, exist_ok=True)
    data, offset = b"", start
    for numbers in batches:
        records = [(None, b"%d ..." % number, [], 1_700_000_000_000) for number in numbers]
        data += build_batch(records, base_offset=offset, leader_epoch=epoch)
        offset += len(numbers)
    (folder / f"{start:020d}.log").write_bytes(data)
    return read_folder(folder)


@pytest.fixture
def good(tmp_path: Path) -> Disk:
    return replica(tmp_path / "good")


def test_equal_logs_with_all_records_are_right(good: Disk, tmp_path: Path) -> None:
    checker = LogChecker("t-0")
    assert checker.check({1: good, 2: replica(tmp_path / "two")}, 9, ACKNOWLEDGED) == []


def test_segments_may_end_at_different_offsets(good: Disk, tmp_path: Path) -> None:
    other = tmp_path / "other"
    replica(other, BATCHES[:1])
    replica(other, BATCHES[1:2], 3)
    assert LogChecker("t-0").check({1: good, 2: replica(other, BATCHES[2:], 5)}, 9, ACKNOWLEDGED) == []


def test_records_above_the_high_watermark_are_not_compared(good: Disk, tmp_path: Path) -> None:
    ahead = replica(tmp_path / "ahead", [*BATCHES, (9, 10)])
    assert LogChecker("t-0").check({1: good, 2: ahead}, 9, ACKNOWLEDGED) == []


@pytest.mark.parametrize(
    ("batches", "high_watermark", "acknowledged", "found"),
    [
        pytest.param(
            ((0, 1, 2), (5, 6, 7, 8)), 7, ACKNOWLEDGED, "record 5 at offset 3, expected 3: lost", id="a lost batch"
        ),
        pytest.param(BATCHES[:2], 5, ACKNOWLEDGED, "9 records were acknowledged, the log has 5", id="a lost end"),
        pytest.param(
            ((0, 1, 2), (0, 1, 2), (3,)), 7, [*range(4)], "record 0 at offset 3, expected 3: doubled", id="doubled"
        ),
        pytest.param(
            ((3, 4), (0, 1, 2)), 5, [*range(5)], "record 0 at offset 2, expected 5: doubled or reordered",
            id="reordered",
        ),
        pytest.param(
            BATCHES, 9, [0, 1, 2, 3, 3, 5, 6, 7, 8], "record 4 was acknowledged at offset 3, is at 4",
            id="another offset than was answered",
        ),
    ],
)  # fmt: skip
def test_a_fault_that_all_replicas_share_is_found(
    tmp_path: Path, batches: Sequence[Sequence[int]], high_watermark: int, acknowledged: list[int], found: str
) -> None:
    disks = {broker: replica(tmp_path / str(broker), batches) for broker in (1, 2)}
    assert any(found in each for each in LogChecker("t-0").check(disks, high_watermark, acknowledged))


@pytest.mark.parametrize(
    ("batches", "found"),
    [
        pytest.param(
            BATCHES[:2], "the log of broker 2 ends at 5, the high watermark is 9", id="a missing end"
        ),
        pytest.param((), "the log of broker 2 ends at 0, the high watermark is 9", id="an empty log"),
        pytest.param(
            ((0, 1, 2), (3, 9), (5, 6, 7, 8)), "other bytes at offset 3 of broker 2", id="another record"
        ),
        pytest.param(((0, 1), (2, 3, 4), (5, 6, 7, 8)), "other bytes at offset 0", id="other batches"),
    ],
)
def test_a_replica_that_differs_is_found(
    good: Disk, tmp_path: Path, batches: Sequence[Sequence[int]], found: str
) -> None:
    wrong = LogChecker("t-0").check({1: good, 2: replica(tmp_path / "bad", batches)}, 9, ACKNOWLEDGED)
    assert any(found in each for each in wrong), wrong


def test_a_replica_whose_log_starts_later_is_found(good: Disk, tmp_path: Path) -> None:
    late = replica(tmp_path / "late", BATCHES[1:], 3)
    wrong = LogChecker("t-0").check({1: good, 2: late}, 9, ACKNOWLEDGED)
    assert wrong == ["t-0: broker 2 has offset 3 after -1"]


def test_a_leader_epoch_that_differs_is_found(good: Disk, tmp_path: Path) -> None:
    other = replica(tmp_path / "other", epoch=4)
    assert LogChecker("t-0").check({1: good, 2: other}, 9, ACKNOWLEDGED)


def test_bytes_that_all_replicas_changed_since_the_last_check_are_found(good: Disk, tmp_path: Path) -> None:
    checker = LogChecker("t-0")
    assert checker.check({1: good}, 9, ACKNOWLEDGED) == []
    later = replica(tmp_path / "later", [*BATCHES, (9,)])
    assert checker.check({1: later}, 10, [*range(10)]) == []
    other = replica(tmp_path / "other", [*BATCHES[:2], (5, 6, 7, 7), (9,)])
    assert checker.check({1: other}, 10, [*range(10)]) == ["t-0: other bytes at offset 5 of broker 1"]


def test_an_answer_without_an_offset_leaves_only_the_order_to_check(good: Disk) -> None:
    unknown = [*range(8), UNKNOWN_OFFSET]
    assert LogChecker("t-0").check({1: good}, 9, unknown) == []
