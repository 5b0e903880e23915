"""The generated metadata log of a large cluster's years."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.metadata.snapshot import image_from_snapshot, parse_name
from quorate.pipeline.directories.layout import scan
from quorate.pipeline.generator.cluster import Size
from quorate.pipeline.generator.years import Written, generate

from .conftest import LOG, all_rows
from .oracle import images, log_records, rows_of

SIZE = Size(brokers=6, racks=3, topics=8, partitions=4)


def write(folder: Path, seed: int = 1, *, clean: bool = False) -> Written:
    return generate(
        folder, seed=seed, records=6000, size=SIZE, segment_bytes=1 << 18, snapshot_every=2000, clean=clean
    )


@pytest.fixture(scope="module")
def years(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("years") / "node"
    write(folder)
    return folder


def test_the_same_seed_gives_the_same_files(years: Path, tmp_path: Path) -> None:
    write(tmp_path / "same")
    write(tmp_path / "other", seed=2)
    files = [
        {path.name: path.read_bytes() for path in (folder / LOG).glob("*[gxt]")}
        for folder in (years, tmp_path / "same", tmp_path / "other")
    ]
    assert files[0] == files[1]
    assert files[0] != files[2]


def test_the_log_has_upgrades_outages_reassignments_deletions_and_storms(years: Path) -> None:
    rows = [row for row in all_rows(years) if row["snapshot"] is None]
    assert [row["offset"] for row in rows] == list(range(len(rows)))
    assert all(row["committed"] for row in rows)
    types = Counter(row["type"] for row in rows)
    assert {
        "LEADER_CHANGE", "REGISTER_BROKER_RECORD", "BROKER_REGISTRATION_CHANGE_RECORD", "TOPIC_RECORD",
        "REMOVE_TOPIC_RECORD", "PARTITION_RECORD", "PARTITION_CHANGE_RECORD", "CONFIG_RECORD",
        "FEATURE_LEVEL_RECORD", "BEGIN_TRANSACTION_RECORD", "END_TRANSACTION_RECORD",
        "ABORT_TRANSACTION_RECORD", "ACCESS_CONTROL_ENTRY_RECORD", "USER_SCRAM_CREDENTIAL_RECORD",
        "CLIENT_QUOTA_RECORD", "DELEGATION_TOKEN_RECORD", "PRODUCER_IDS_RECORD", "NO_OP_RECORD",
    } <= set(types)  # fmt: skip
    reasons = Counter(row["reason"] for row in rows)
    assert {"controlled shutdown", "no heartbeat for 9000 ms", "reassignment completed"} <= set(reasons)
    assert {row["principal"] for row in rows} >= {"User:ann", "User:terraform", None}
    assert len(scan(years).segments) > 2


def test_a_snapshot_has_the_state_of_the_log_at_its_end(years: Path) -> None:
    wanted = {int(path.name[:20]): path for path in (years / LOG).glob("*.checkpoint")}
    assert len(wanted) >= 2
    found = 0
    for offset, image in images(log_records(years / LOG)):
        path = wanted.get(offset + 1)
        if path is not None:
            snapshot_id = parse_name(path.name)
            assert snapshot_id is not None
            snapshot = image_from_snapshot(path.read_bytes(), snapshot_id)
            assert rows_of(snapshot) == rows_of(image)
            found += 1
    assert found == len(wanted)


def test_a_cleaned_log_begins_with_the_last_snapshot_but_one(tmp_path: Path) -> None:
    done = write(tmp_path / "node", clean=True)
    layout = scan(tmp_path / "node")
    assert next(found.end_offset for found in layout.snapshots) == done.start_offset > 0
    assert layout.log_start_offset <= done.start_offset
    assert layout.log_start_offset > 0
