"""The generated metadata log of a large cluster's years."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.metadata.snapshot import image_from_snapshot, parse_name
from quorate.pipeline.directories.layout import scan
from quorate.pipeline.generator.cluster import Size
from quorate.pipeline.generator.years import LEVELS, Written, generate

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


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / LOG).iterdir() if path.suffix != ".lock"}


_IN_ANOTHER_PROCESS = """
import sys
from pathlib import Path
from tests.pipeline.test_generator import write
write(Path(sys.argv[1]))
"""


@pytest.mark.process
@pytest.mark.parametrize("hashes", ["1", "2"])
def test_the_same_seed_gives_the_same_files_in_every_process(
    years: Path, tmp_path: Path, hashes: str
) -> None:
    """The order of Python's sets differs from process to process."""
    environment = {**os.environ, "PYTHONHASHSEED": hashes}
    command = [sys.executable, "-c", _IN_ANOTHER_PROCESS, str(tmp_path / "same")]
    subprocess.run(command, check=True, env=environment, cwd=Path(__file__).parents[2])
    found = contents(years)
    assert len([name for name in found if name.endswith(("log", "checkpoint"))]) > 5
    assert contents(tmp_path / "same") == found


def test_another_seed_gives_another_log(years: Path, tmp_path: Path) -> None:
    write(tmp_path / "other", seed=2)
    assert contents(tmp_path / "other")[f"{0:020d}.log"] != contents(years)[f"{0:020d}.log"]


@pytest.mark.parametrize(
    "size",
    [Size(1, 1, 1, 1), Size(brokers=1), Size(brokers=2, racks=1, topics=1), Size(3, 50, 2, 1)],
    ids=["one of each", "one broker", "one rack", "more racks than brokers"],
)
def test_small_clusters_have_years_too(tmp_path: Path, size: Size) -> None:
    for seed in range(4):
        folder = tmp_path / str(seed)
        written = generate(folder, seed=seed, records=1500, size=size, snapshot_every=500)
        assert written.records >= 1500
        assert [row["offset"] for row in all_rows(folder) if row["snapshot"] is None] == list(
            range(written.records)
        )


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


def test_a_repeated_cycle_is_valid_after_itself_and_has_other_topics(tmp_path: Path) -> None:
    done = generate(tmp_path / "node", seed=3, records=2500, size=SIZE, segment_bytes=1 << 18, cycle=800)
    folder = tmp_path / "node" / LOG
    every = list(images(log_records(folder)))
    size = done.records
    assert size >= 2500
    assert every[-1][0] == size - 1
    rows = all_rows(folder)
    log = [row for row in rows if row["snapshot"] is None]
    assert [row["offset"] for row in log] == list(range(size))
    created = [(row["topic_id"], row["topic_name"]) for row in log if row["type"] == "TOPIC_RECORD"]
    assert len(set(created)) == len(created)
    names = Counter(name for _, name in created)
    levels = [row["value"] for row in log if row["type"] == "FEATURE_LEVEL_RECORD"]
    times = levels.count(str(LEVELS[0]))
    assert times > 2
    assert all(count % times == 0 for count in names.values())
    moments = [row["timestamp"] for row in log]
    assert moments == sorted(moments)
    epochs = [row["epoch"] for row in log]
    assert epochs == sorted(epochs)
