"""Damaged, missing and unfinished parts of files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from quorate.metadata import records as r
from quorate.metadata.errors import MetadataError
from quorate.pipeline.datasource.bounds import Mode
from quorate.pipeline.datasource.columns import select
from quorate.pipeline.decoder.read import Reading, read_slice
from quorate.pipeline.directories.layout import Slice
from quorate.records.batch import build_batch, build_metadata_batch, compute_crc
from quorate.records.batch_header import CRC, LAST_OFFSET_DELTA

from .conftest import GONE, ORDERS, all_rows, partition, topic, write_log, write_state


def permissive(folder: Path) -> list[tuple[int | None, str | None]]:
    """The offset and the damage of each row."""
    return [(row["offset"], row["corrupt"]) for row in all_rows(folder, mode=Mode.PERMISSIVE)]


def ten_batches(folder: Path) -> tuple[Path, int]:
    """A segment of ten batches, and the size of each."""
    path = write_log(folder, 0, [[topic("orders", ORDERS)] for _ in range(10)])
    return path, path.stat().st_size // 10


def test_an_unfinished_end_of_the_newest_segment_is_not_read(tmp_path: Path) -> None:
    path = write_log(tmp_path, 0, [[topic("orders", ORDERS)], [partition(ORDERS)]])
    whole = path.read_bytes()
    first = len(whole) - 12 - int.from_bytes(whole[8:12], "big")
    for cut in range(len(whole) - first + 1, len(whole)):
        path.write_bytes(whole[:cut])
        assert [row["offset"] for row in all_rows(tmp_path)] == [0]
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert [row["offset"] for row in all_rows(tmp_path)] == [0]
    path.write_bytes(whole + bytes(4_096))
    assert [row["offset"] for row in all_rows(tmp_path)] == [0, 1]


@pytest.mark.parametrize(
    ("place", "content", "reason"),
    [
        pytest.param(8, b"\x00\x00\x00\x01", "no batch: length 1", id="length too small"),
        pytest.param(8, b"\x7f\x00\x00\x00", "the batch is cut", id="length too large"),
        pytest.param(16, b"\x01", "its magic is 1", id="magic"),
        pytest.param(17, b"????", "wrong checksum", id="checksum"),
        pytest.param(70, b"?", "wrong checksum", id="content"),
        pytest.param(0, b"\xff", "no batch", id="negative offset"),
        pytest.param(0, b"\x01", "the batch has offset 72057594037927940, and the next one 5", id="offset"),
    ],
)
def test_damage_in_the_middle_of_the_newest_segment_is_not_its_end(
    tmp_path: Path, place: int, content: bytes, reason: str
) -> None:
    path, size = ten_batches(tmp_path)
    whole = bytearray(path.read_bytes())
    whole[4 * size + place : 4 * size + place + len(content)] = content
    path.write_bytes(whole)
    with pytest.raises(MetadataError, match=rf"{path.name}: bytes {4 * size} to {5 * size - 1}: .*{reason}"):
        all_rows(tmp_path)
    found = permissive(tmp_path)
    assert [offset for offset, corrupt in found if corrupt is None] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    ((offset, text),) = [row for row in found if row[1] is not None]
    assert offset == 4
    assert reason in str(text)
    assert str(text).endswith("; offset 4 cannot be read")
    dropped = all_rows(tmp_path, mode=Mode.DROPMALFORMED)
    assert [row["offset"] for row in dropped] == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_a_wrong_offset_of_the_last_batch_of_a_segment_is_that_batch_s_damage(tmp_path: Path) -> None:
    path, size = ten_batches(tmp_path)
    write_log(tmp_path, 10, [[topic("orders", ORDERS)]])
    whole = bytearray(path.read_bytes())
    whole[9 * size] = 1
    path.write_bytes(whole)
    with pytest.raises(MetadataError, match=r"and the next one 10; offset 9 cannot be read"):
        all_rows(tmp_path)
    assert [offset for offset, corrupt in permissive(tmp_path) if corrupt is None] == [*range(9), 10]


def test_missing_offsets_are_found(tmp_path: Path) -> None:
    path, size = ten_batches(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: 3 * size] + whole[5 * size :])
    with pytest.raises(MetadataError, match="begins at offset 5; offsets 3 to 4 cannot be read"):
        all_rows(tmp_path)
    assert [offset for offset, corrupt in permissive(tmp_path) if corrupt is None] == [0, 1, 2, 5, 6, 7, 8, 9]


def test_repeated_offsets_are_read_once(tmp_path: Path) -> None:
    path, size = ten_batches(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: 5 * size] + whole[3 * size :])
    with pytest.raises(MetadataError, match="repeats offset 3, the next one is 5"):
        all_rows(tmp_path)
    assert [offset for offset, corrupt in permissive(tmp_path) if corrupt is None] == list(range(10))


def test_a_segment_that_ends_before_the_next_one_begins_is_damaged(tmp_path: Path) -> None:
    path, size = ten_batches(tmp_path)
    write_log(tmp_path, 10, [[topic("gone", GONE)]])
    path.write_bytes(path.read_bytes()[: 8 * size])
    with pytest.raises(MetadataError, match="ends too early; offsets 8 to 9 cannot be read"):
        all_rows(tmp_path)
    path.write_bytes(path.read_bytes()[: 7 * size + 9])
    with pytest.raises(MetadataError, match="the batch is cut: 9 bytes are left; offsets 7 to 9"):
        all_rows(tmp_path)
    path.write_bytes(b"")
    assert permissive(tmp_path)[-1] == (10, None)
    assert "offsets 0 to 9 cannot be read" in str(permissive(tmp_path)[0][1])


def test_a_batch_inside_of_a_damaged_one_is_not_taken_for_the_next(tmp_path: Path) -> None:
    inner = build_metadata_batch([b"\x01\x14\x00\x00"], base_offset=0, leader_epoch=1, timestamp=0)
    path = write_log(tmp_path, 5, [[r.NoOpRecord()], [r.NoOpRecord()]])
    size = path.stat().st_size // 2
    whole = path.read_bytes()
    path.write_bytes(whole[: size - 1] + b"?" + inner + whole[size:])
    assert [offset for offset, corrupt in permissive(tmp_path) if corrupt is None] == [6]


def test_a_snapshot_without_its_footer_is_incomplete(tmp_path: Path) -> None:
    path = write_state(tmp_path, 40, [topic("orders", ORDERS)])
    whole = path.read_bytes()
    footer = whole.rindex((3).to_bytes(8, "big"))
    path.write_bytes(whole[:footer])
    with pytest.raises(MetadataError, match="the snapshot has no footer"):
        all_rows(tmp_path)
    assert [row["type"] for row in all_rows(tmp_path, mode=Mode.PERMISSIVE)][-2:] == ["TOPIC_RECORD", None]
    path.write_bytes(b"")
    assert "no footer" in str(permissive(tmp_path))


def test_a_snapshot_in_progress_is_not_read(tmp_path: Path) -> None:
    write_log(tmp_path, 0, [[r.NoOpRecord()]])
    path = write_state(tmp_path, 40, [topic("orders", ORDERS)])
    path.rename(f"{path}.part")
    assert [row["type"] for row in all_rows(tmp_path)] == ["NO_OP_RECORD"]


def raw_log(folder: Path, values: list[Any]) -> Path:
    path = folder / f"{0:020d}.log"
    path.write_bytes(build_batch([(None, value, (), 0) for value in values]))
    return path


def test_a_record_that_does_not_decode_has_its_own_row(tmp_path: Path) -> None:
    noop = b"\x01\x14\x00\x00"
    path = raw_log(tmp_path, [noop, b"\x01\x7f\x00\x00", noop])
    with pytest.raises(MetadataError, match=rf"{path.name}: byte 0: offset 1: record type 127 is unknown"):
        all_rows(tmp_path)
    found = permissive(tmp_path)
    assert found[0] == (0, None)
    assert found[1] == (1, "record type 127 is unknown")
    assert found[2] == (2, None)
    assert [row["offset"] for row in all_rows(tmp_path, mode=Mode.DROPMALFORMED)] == [0, 2]
    without = all_rows(tmp_path, mode=Mode.PERMISSIVE, selection=select("offset,type"))
    assert [row["offset"] for row in without] == [0, 2]


def test_a_batch_whose_records_are_not_metadata_is_damaged(tmp_path: Path) -> None:
    raw_log(tmp_path, [b"\x01\x14\x00\x00", None])
    with pytest.raises(MetadataError, match=r"byte 0: the batch does not decode: .*Invalid value size"):
        all_rows(tmp_path)
    assert len(permissive(tmp_path)) == 1


NOOP = b"\x01\x14\x00\x00"


def batch_of(base_offset: int, count: int, *, last_delta: int | None = None, timestamp: int = 0) -> bytes:
    """A batch of NoOpRecords with a correct checksum, and perhaps with a wrong last offset delta."""
    values = [NOOP] * count
    found = bytearray(
        build_metadata_batch(values, base_offset=base_offset, leader_epoch=1, timestamp=timestamp)
    )
    if last_delta is not None:
        struct.pack_into(">i", found, LAST_OFFSET_DELTA, last_delta)
        struct.pack_into(">I", found, CRC, compute_crc(found))
    return bytes(found)


@pytest.mark.parametrize("last_delta", [5, 1], ids=["more offsets", "fewer offsets"])
def test_a_batch_with_another_number_of_records_than_offsets_is_damaged(
    tmp_path: Path, last_delta: int
) -> None:
    """Its records would leave offsets out, or have the offsets of the next batch."""
    path = tmp_path / f"{0:020d}.log"
    wrong, end = batch_of(0, 3, last_delta=last_delta), last_delta + 1
    path.write_bytes(wrong + batch_of(end, 2))
    text = f"bytes 0 to {len(wrong) - 1}: the batch has 3 records for {end} offsets; offsets 0 to {end - 1}"
    with pytest.raises(MetadataError, match=text):
        all_rows(tmp_path)
    assert [(offset, corrupt is None) for offset, corrupt in permissive(tmp_path)] == [
        (0, False), (end, True), (end + 1, True),
    ]  # fmt: skip
    path.write_bytes(wrong)
    assert len(permissive(tmp_path)) == 1, "a correct checksum is no unfinished end"


def test_a_time_that_no_calendar_has_is_null(tmp_path: Path) -> None:
    """A time in milliseconds that is multiplied would come out as another one."""
    path = tmp_path / f"{0:020d}.log"
    times = [-(1 << 63), -62_135_596_800_001, -62_135_596_800_000, -1, 0, 253_402_300_799_999]
    times += [253_402_300_800_000, (1 << 63) - 1]
    path.write_bytes(b"".join([batch_of(at, 1, timestamp=time) for at, time in enumerate(times)]))
    [found] = read_slice(Slice(str(path), 0, -1, 0), Reading(select("timestamp")))
    microseconds = found.column("timestamp").cast("int64").to_pylist()
    assert microseconds == [None, None, *[time * 1000 for time in times[2:6]], None, None]
