"""Runs of equal records are read as the same records one by one, and damage is found in the same way."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.records import batch as batches
from quorate.records.batch import build_metadata_batch, iter_metadata_values, parse_header, records_section
from quorate.records.errors import CorruptRecordError, InvalidRecordError
from quorate.records.record_runs import MAX_RUN, find_run


def outcome(batch: bytes) -> list[bytes] | tuple[list[bytes], str]:
    """The values of a batch, and the error behind them if there is one."""
    values = []
    try:
        for value in iter_metadata_values(batch):
            values.append(bytes(value))  # noqa: PERF401 - what came before an error is kept
    except (CorruptRecordError, InvalidRecordError) as error:
        return values, str(error)
    return values


def outcome_without_runs(batch: bytes, monkeypatch: pytest.MonkeyPatch) -> object:
    with monkeypatch.context() as patch:
        patch.setattr(batches, "find_run", lambda *_: None)
        return outcome(batch)


def batch_of(sizes: list[int], seed: int = 0) -> bytes:
    rng = random.Random(seed)
    return build_metadata_batch(
        [rng.randbytes(size) for size in sizes], base_offset=0, leader_epoch=0, timestamp=1
    )


@given(st.lists(st.tuples(st.sampled_from((1, 57, 63, 64, 110, 8_300)), st.integers(1, 60)), max_size=8))
@settings(max_examples=60, deadline=None)
def test_values_of_mixed_sizes_are_read_in_order(groups: list[tuple[int, int]]) -> None:
    rng = random.Random(1)
    values = [rng.randbytes(size) for size, count in groups for _ in range(count)]
    if values:
        batch = build_metadata_batch(values, base_offset=0, leader_epoch=0, timestamp=1)
        assert outcome(batch) == values


@pytest.mark.parametrize("count", [63, 64, 65, 8_191, 8_192, 8_193, 20_000])
def test_offset_deltas_of_every_width_are_read(count: int) -> None:
    values = [index.to_bytes(4) + bytes(40) for index in range(count)]
    assert outcome(build_metadata_batch(values, base_offset=0, leader_epoch=0, timestamp=1)) == values


@pytest.mark.parametrize("index", [0, 1, 63, 64, 100])
def test_a_run_ends_before_the_record_that_differs(index: int) -> None:
    batch = batch_of([100] * index + [101] + [100] * 20)
    body = memoryview(records_section(batch, parse_header(batch)))
    run = find_run(body, 0, 0, index + 21)
    assert run is not None
    assert run.length == (1 if index == 0 else min(index, 64))


def test_a_run_is_not_longer_than_the_limit() -> None:
    batch = batch_of([10] * (MAX_RUN + 500))
    body = memoryview(records_section(batch, parse_header(batch)))
    first = find_run(body, 0, 0, MAX_RUN + 500)
    assert first is not None and first.length == 64, "the offset deltas from 64 on take two bytes"
    second = find_run(body, 64 * first.stride, 64, MAX_RUN + 500)
    assert second is not None and second.length == MAX_RUN


def test_a_damaged_byte_has_the_same_outcome_as_without_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte of the heads of a long run is changed in turn, then bytes anywhere."""
    batch = bytearray(batch_of([20] * 150))
    start = len(batch) - len(records_section(batch, parse_header(batch)))
    rng = random.Random(3)
    places = [*range(start, start + 120), *(rng.randrange(start, len(batch)) for _ in range(300))]
    for place in places:
        before = batch[place]
        batch[place] ^= 1 << rng.randrange(8)
        assert outcome(bytes(batch)) == outcome_without_runs(bytes(batch), monkeypatch), place
        batch[place] = before


@pytest.mark.parametrize("cut", [1, 5, 24, 27, 500])
def test_a_truncated_batch_has_the_same_outcome_as_without_runs(
    cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = batch_of([20] * 150)[:-cut]
    header = parse_header(batch_of([20] * 150))
    with_runs = _drained(batch, header)
    monkeypatch.setattr(batches, "find_run", lambda *_: None)
    assert with_runs == _drained(batch, header)


def _drained(batch: bytes, header: batches.BatchHeader) -> tuple[list[bytes], str]:
    values: list[bytes] = []
    try:
        for value in batches._raft_values(memoryview(batch)[61:], header):
            values.append(bytes(value))  # noqa: PERF401 - what came before an error is kept
    except InvalidRecordError as error:
        return values, str(error)
    return values, ""
