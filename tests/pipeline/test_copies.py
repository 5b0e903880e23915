"""Finding and merging the copies that nodes have of a metadata log."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorate.metadata import records as r
from quorate.pipeline.copies import find_copies, find_logs, merge
from quorate.pipeline.layout import slices

from .conftest import rows_of, write_log, write_state

LOG = "__cluster_metadata-0"


def log_of(folder: Path, base_offset: int, count: int, *, epoch: int = 1, cluster: str = "c") -> Path:
    """A node's log directory with a segment of batches of one record."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={cluster}\n")
    log = folder / LOG
    write_log(log, base_offset, [[r.NoOpRecord()] for _ in range(count)], epoch=epoch)
    return log


def offsets(*paths: Path) -> list[int]:
    layout = merge(find_copies([str(path) for path in paths]))
    return [row["offset"] for part in slices(layout, snapshots=()) for row in rows_of(part)]


@pytest.mark.parametrize("depth", range(4))
def test_logs_are_found_in_the_folders_of_logs_nodes_and_clusters(tmp_path: Path, depth: int) -> None:
    log = log_of(tmp_path / "node-1" / "data", 0, 3)
    place = [log, *log.parents][depth]
    assert find_logs(str(place)) == [log]
    assert find_logs(f"file://{place}") == [log]
    assert offsets(place) == [0, 1, 2]


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_path_without_a_log_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=name):
        find_copies([str(tmp_path / name)])


def test_each_offset_of_several_copies_is_read_once(tmp_path: Path) -> None:
    for node, count in (("a", 5), ("b", 7), ("c", 6)):
        log_of(tmp_path / node, 0, count)
    assert offsets(tmp_path) == list(range(7))
    assert offsets(tmp_path / "a", tmp_path / "c", tmp_path / "a") == list(range(6))


def test_the_copy_of_the_last_epoch_wins_as_in_an_election(tmp_path: Path) -> None:
    log_of(tmp_path / "late", 0, 9)
    write_log(log_of(tmp_path / "new", 0, 4), 4, [[r.NoOpRecord()]], epoch=2)
    assert offsets(tmp_path) == list(range(5))


def test_older_segments_come_from_another_copy_of_the_same_epoch(tmp_path: Path) -> None:
    older = log_of(tmp_path / "older", 0, 12)
    newer = log_of(tmp_path / "newer", 10, 8)
    write_state(newer, 10, [])
    for log in (older, newer):
        (log / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    assert offsets(tmp_path) == list(range(18))
    (older / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
    assert offsets(tmp_path) == list(range(10, 18))


def test_a_copy_that_does_not_overlap_is_read_up_to_its_newest_snapshot(tmp_path: Path) -> None:
    older = log_of(tmp_path / "older", 0, 6)
    newer = log_of(tmp_path / "newer", 10, 8)
    write_state(newer, 10, [])
    assert offsets(tmp_path) == list(range(10, 18))
    write_state(older, 4, [])
    assert offsets(tmp_path) == [0, 1, 2, 3, *range(10, 18)]
    merged = merge(find_copies([str(tmp_path)]))
    assert [snapshot.end_offset for snapshot in merged.snapshots] == [4, 10]


def test_a_half_written_last_batch_does_not_count_as_the_end(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a", 0, 5)
    path = log / f"{0:020d}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert find_copies([str(log)])[0].end_offset == 4
    path.write_bytes(whole[:-1])
    assert find_copies([str(log)])[0].end_offset == 4


def test_logs_of_several_clusters_are_refused(tmp_path: Path) -> None:
    log_of(tmp_path / "a", 0, 1)
    log_of(tmp_path / "b", 0, 1, cluster="d")
    with pytest.raises(ValueError, match="logs of several clusters: c, d"):
        find_copies([str(tmp_path)])
