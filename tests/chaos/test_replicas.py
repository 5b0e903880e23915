"""Replicas whose batches differ are found, on real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorate.records.batch import CorruptRecordError, build_batch
from tests.chaos.replicas import differences, producer_epochs, read_replica


def write(directory: Path, values: dict[int, bytes]) -> Path:
    """Writes a replica of batches with one record each, in two segments."""
    directory.mkdir()
    batches = [
        build_batch(
            [(None, value, [], 1)], base_offset=offset,
            producer_id=7, producer_epoch=offset // 10, base_sequence=0,
        )
        for offset, value in values.items()
    ]  # fmt: skip
    half = len(batches) // 2
    (directory / "00000000000000000000.log").write_bytes(b"".join(batches[:half]))
    (directory / "00000000000000000001.log").write_bytes(b"".join(batches[half:]))
    return directory


HELD = {8: b"a", 9: b"b", 10: b"c", 11: b"d"}


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (HELD, []),
        ({9: b"b", 10: b"c", 11: b"d"}, []),
        ({8: b"a", 9: b"b", 10: b"c"}, ["differs at 11 on the brokers 4 and 5"]),
        ({**HELD, 12: b"e"}, ["differs at 12 on the brokers 4 and 5"]),
        ({**HELD, 10: b"x"}, ["differs at 10 on the brokers 4 and 5"]),
        ({8: b"a", 10: b"c", 11: b"d"}, ["differs at 9 on the brokers 4 and 5"]),
    ],
    ids=["same", "later start", "shorter", "longer", "other bytes", "gap"],
)
def test_replicas_are_compared(tmp_path: Path, other: dict[int, bytes], expected: list[str]) -> None:
    replicas = {
        4: read_replica(write(tmp_path / "4", HELD)),
        5: read_replica(write(tmp_path / "5", other)),
        6: read_replica(write(tmp_path / "6", HELD)),
    }
    assert list(differences(replicas)) == expected
    assert producer_epochs(replicas[4]) == {10: 1, 11: 1}


def test_a_batch_with_a_wrong_crc_is_refused(tmp_path: Path) -> None:
    replica = write(tmp_path / "4", HELD)
    segment = replica / "00000000000000000001.log"
    segment.write_bytes(segment.read_bytes()[:-2] + b"??")
    with pytest.raises(CorruptRecordError):
        read_replica(replica)
