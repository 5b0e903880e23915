"""The values of a large batch, parsed lazily."""

from __future__ import annotations

import pytest

from quorate.raft.storage.lazy_batch_values import LAZY_RECORDS, LazyValues, values_of
from quorate.records.batch import build_metadata_batch, compute_crc, metadata_values, parse_header
from quorate.records.errors import InvalidRecordError

VALUES = [b"%d" % i for i in range(LAZY_RECORDS + 88)]
BATCH = memoryview(build_metadata_batch(VALUES, base_offset=0, leader_epoch=0, timestamp=1))


def lazy(batch: memoryview = BATCH) -> LazyValues:
    found = values_of(parse_header(batch), batch)
    assert isinstance(found, LazyValues)
    return found


def test_lazily_parsed_values_equal_those_parsed_at_once() -> None:
    assert [bytes(v) for v in lazy()] == VALUES == [bytes(v) for v in metadata_values(BATCH)]
    assert len(lazy()) == len(VALUES)
    assert bytes(lazy()[-1]) == VALUES[-1]
    assert [bytes(v) for v in lazy()[590:700]] == VALUES[590:]
    assert [bytes(v) for v in lazy()[10:20]] == VALUES[10:20]


def test_only_requested_values_are_parsed() -> None:
    values = lazy()
    for start in range(0, 512, 128):
        assert len(values[start : start + 128]) == 128
        assert len(values._found) == start + 128


def test_a_small_batch_is_read_at_once() -> None:
    batch = memoryview(build_metadata_batch(VALUES[:3], base_offset=0, leader_epoch=0, timestamp=1))
    assert isinstance(values_of(parse_header(batch), batch), list)


def test_an_invalid_record_raises_when_it_is_reached() -> None:
    bad = bytearray(BATCH)
    bad[-1] = 2  # the last record claims a header
    values = lazy(memoryview(bad))
    assert len(values[:599]) == 599
    with pytest.raises(InvalidRecordError, match="left-over bytes in record 599"):
        values[599]
    longer = bytearray(BATCH) + b"\x00"
    longer[8:12] = (len(longer) - 12).to_bytes(4, "big")
    longer[17:21] = compute_crc(longer).to_bytes(4, "big")
    with pytest.raises(InvalidRecordError, match="1 bytes are left after the last record"):
        list(lazy(memoryview(longer)))
