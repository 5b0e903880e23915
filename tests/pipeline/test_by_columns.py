"""The decoder by columns gives what the decoder of objects gives."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quorate.metadata.framing import encode_record
from quorate.metadata.json import type_name
from quorate.metadata.records import RECORD_TYPES
from quorate.pipeline.datasource.columns import JSON, TYPED_COLUMNS, UNTYPED_COLUMNS, Selection, select
from quorate.pipeline.decoder import table
from quorate.pipeline.decoder.framing import Values, find_values
from quorate.pipeline.decoder.table import content_columns, decode
from quorate.pipeline.directories.copies import find_logs
from quorate.protocol.schema import Data
from quorate.records.batch import build_batch, build_metadata_batch, metadata_values, parse_header
from tests.metadata.streams import any_record
from tests.support.golden import ALL_KINDS, unpack_golden

from .conftest import all_rows

OBJECTS_ONLY = sys.maxsize
CASES = [
    pytest.param(cls, version, id=f"{cls.__name__}-{version}")
    for cls in RECORD_TYPES.values()
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
]
ENTITIES = ",".join(name for name in UNTYPED_COLUMNS if name != JSON)


def values_of(records: list[bytes]) -> Values:
    batch = build_metadata_batch(records, base_offset=0, leader_epoch=1, timestamp=0)
    found = find_values([batch], [len(records)])
    assert found is not None
    return found


def rows(values: Values, selection: Selection, least: int) -> list[tuple[Any, ...]]:
    content = decode(values, selection, least)
    columns = [content.columns[name].to_pylist() for name in content_columns(selection)]
    return list(zip(*columns, strict=True))


def variants(rng: random.Random, cls: type[Data], version: int) -> list[bytes]:
    """Random records, and some of their shape with other numbers."""
    found = [encode_record(any_record(rng, cls, version), version) for _ in range(12)]
    return [record for record in found for _ in range(3)]


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_every_type_and_version_is_decoded_by_columns(
    cls: type[Data], version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = values_of(variants(random.Random(version), cls, version))
    typed = type_name(cls).lower()
    selection = select(f"type,version,{typed if typed in TYPED_COLUMNS else 'control'}")
    expected = rows(values, selection, OBJECTS_ONLY)
    monkeypatch.delattr(table, "decode_value")
    assert rows(values, selection, 1) == expected


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_entities_of_every_type_and_version_are_equal(cls: type[Data], version: int) -> None:
    values = values_of(variants(random.Random(version), cls, version))
    selection = select(ENTITIES)
    assert rows(values, selection, 1) == rows(values, selection, OBJECTS_ONLY)


@pytest.mark.parametrize("seed", range(6))
def test_mixtures_of_types_come_in_the_order_of_the_log(seed: int) -> None:
    rng = random.Random(seed)
    known = [param.values for param in CASES]
    pool = [
        encode_record(any_record(rng, cls, version), version)  # type: ignore[arg-type, type-var]
        for cls, version in rng.choices(known, k=30)
    ]
    pool.append(b"\x01\x7f\x00")  # a type of the future
    pool.append(pool[0][:-1])
    values = values_of(rng.choices(pool, k=400))
    selection = select(f"{ENTITIES},{','.join(TYPED_COLUMNS)}")
    expected = rows(values, selection, OBJECTS_ONLY)
    assert rows(values, selection, 8) == expected
    assert rows(values, selection, 1) == expected


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_directories_of_apache_kafka_are_decoded_equally(tmp_path: Path, kind: str) -> None:
    folder = unpack_golden(kind, tmp_path)
    selection = select(
        f"{','.join(name for name in UNTYPED_COLUMNS if name != JSON)},{','.join(TYPED_COLUMNS)}"
    )
    logs = find_logs(str(folder / "data"))
    for log in logs:
        expected = all_rows(log, selection=selection, least=OBJECTS_ONLY)
        assert len(expected) > 20
        assert all_rows(log, selection=selection, least=1) == expected


@pytest.mark.parametrize("seed", range(4))
def test_records_are_found_as_by_the_reader_of_batches(seed: int) -> None:
    rng = random.Random(seed)
    sizes = rng.choices([1, 40, 57, 58, 59, 200, 9_000, 70_000], weights=[9, 9, 9, 9, 9, 9, 1, 1], k=60)
    records = [rng.randbytes(size) for size in sizes for _ in range(rng.choice((1, 1, 3, 30, 90)))]
    batches = [
        build_metadata_batch(records[at : at + 900], base_offset=at, leader_epoch=1, timestamp=0)
        for at in range(0, len(records), 900)
    ]
    values = find_values(batches, [parse_header(batch).count for batch in batches])
    assert values is not None
    expected = [bytes(value) for batch in batches for value in metadata_values(batch)]
    assert [
        values.data[at : at + size].tobytes() for at, size in zip(values.at, values.size, strict=True)
    ] == expected
    assert np.array_equal(values.batch * 900 + values.index, np.arange(len(records)))


@pytest.mark.parametrize(
    "record",
    [
        pytest.param((b"k", b"v", (), 0), id="key"),
        pytest.param((None, b"v", (("h", b"v"),), 0), id="header"),
        pytest.param((None, b"v", (), 5), id="timestamp delta"),
        pytest.param((None, None, (), 0), id="no value"),
        pytest.param((None, b"", (), 0), id="empty value"),
    ],
)
def test_records_of_another_form_are_left_to_the_strict_reader(record: Any) -> None:
    batch = build_batch([(None, b"v", (), 0), record, (None, b"v", (), 0)])
    assert find_values([batch], [3]) is None


def test_every_damaged_byte_of_a_batch_is_found_or_changes_a_value_only() -> None:
    records = [bytes([n]) * 9 for n in range(40)]
    batch = build_metadata_batch(records, base_offset=0, leader_epoch=1, timestamp=0)
    whole = find_values([batch], [40])
    assert whole is not None
    inside = {int(at) + place for at in whole.at for place in range(9)}
    for position in range(61, len(batch)):
        for bit in (0, 7):
            damaged = bytearray(batch)
            damaged[position] ^= 1 << bit
            assert (find_values([bytes(damaged)], [40]) is not None) == (position in inside)
