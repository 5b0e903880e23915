"""Finding and merging the copies that nodes have of a metadata log."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.metadata import records as r
from quorate.metadata.errors import MetadataError
from quorate.pipeline.directories.committed import committed_end
from quorate.pipeline.directories.copies import find_copies, find_logs, merge
from quorate.pipeline.directories.layout import slices
from quorate.pipeline.lake_source import DirectorySource, Extent

from .conftest import LOG, rows_of, voter, write_log, write_state


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
    assert find_logs(str(place)) == [str(log)]
    assert find_logs(f"file://{place}") == [str(log)]
    assert offsets(place) == [0, 1, 2]


def test_every_node_of_a_cluster_is_found_at_its_own_depth_and_behind_links(tmp_path: Path) -> None:
    """A node that is not found would silently be missing from what is read, and from the majority."""
    cluster = tmp_path / "cluster"
    logs = [log_of(cluster / "node-1", 0, 3), log_of(cluster / "node-2" / "data", 0, 4)]
    log_of(tmp_path / "disk" / "data", 0, 5)
    (cluster / "node-3").symlink_to(tmp_path / "disk")
    logs.append(cluster / "node-3" / "data" / LOG)
    assert find_logs(str(cluster)) == [str(log) for log in logs]
    assert offsets(cluster) == list(range(5))


def test_partitions_are_not_searched_for_metadata_logs(tmp_path: Path) -> None:
    """A broker's log directory may have thousands of them."""
    log = log_of(tmp_path / "node" / "data-1", 0, 3)
    other = log_of(tmp_path / "node" / "data-2" / "topic-0", 0, 9)
    (tmp_path / "node" / "data-2" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    assert other.is_dir()
    assert find_logs(str(tmp_path)) == [str(log)]


@pytest.mark.parametrize("name", ["7.log", "²³.log", "00000000000000000007.log.gz"])
def test_files_with_other_names_are_no_segments(tmp_path: Path, name: str) -> None:
    log = log_of(tmp_path, 0, 3)
    (log / name).write_bytes(b"?")
    (log / f"{9:020d}.log").mkdir()
    (log / f"{9:020d}-{1:010d}.checkpoint").mkdir()
    assert offsets(tmp_path) == [0, 1, 2]


@pytest.mark.parametrize("name", ["with space", "a#b", "50%20", "é", "'\""])
def test_directories_have_any_name_but_one_with_a_comma(tmp_path: Path, name: str) -> None:
    log_of(tmp_path / name, 0, 3)
    assert offsets(tmp_path / name) == offsets(tmp_path) == [0, 1, 2]


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


def test_a_log_begins_after_the_last_gap_between_two_copies(tmp_path: Path) -> None:
    """What an old copy has is history, but the state at the gap's end comes from the snapshot there."""
    older = log_of(tmp_path / "older", 0, 6)
    newer = log_of(tmp_path / "newer", 10, 8)
    write_state(older, 4, [])
    write_state(newer, 10, [])
    merged = merge(find_copies([str(tmp_path)]))
    assert merged.log_start_offset == 10
    assert [snapshot.end_offset for snapshot in merged.resets()] == [4, 10]
    with pytest.raises(ValueError, match="begins at offset 10, after startOffset 2"):
        merged.check_complete(2)
    source = DirectorySource([str(tmp_path)])
    assert source.extent(0) == source.extent(2) == source.extent(4) == Extent(10, 18, 10)
    assert source.extent(10) == Extent(10, 18)


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


def test_a_last_batch_with_a_wrong_checksum_does_not_count_as_the_end(tmp_path: Path) -> None:
    """After a loss of power, a file may end in zeros."""
    log = log_of(tmp_path, 0, 5)
    path = log / f"{0:020d}.log"
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    for tail in (bytes(500), whole[-40:], b""):
        path.write_bytes(whole + tail)
        assert find_copies([str(log)])[0].end_offset == 4
        assert offsets(log) == [0, 1, 2, 3]
    whole[len(whole) // 5 - 1] ^= 1
    (log / f"{0:020d}.index").write_bytes(struct.pack(">ii", 4, len(whole) * 4 // 5))
    path.write_bytes(whole)
    assert find_copies([str(log)])[0].end_offset == 4


@pytest.mark.parametrize("place", [8, 10, 16, 17, 70])
def test_damage_in_the_middle_of_the_newest_segment_is_not_the_end_of_the_log(
    tmp_path: Path, place: int
) -> None:
    """Or a lake would wait for the records behind it forever."""
    log = log_of(tmp_path, 0, 8)
    path = log / f"{0:020d}.log"
    whole = bytearray(path.read_bytes())
    whole[3 * len(whole) // 8 + place] ^= 4
    path.write_bytes(whole)
    assert find_copies([str(log)])[0].end_offset == 8
    assert DirectorySource([str(tmp_path)]).extent(2) == Extent(2, 8)
    with pytest.raises(MetadataError, match="offset 3 cannot be read"):
        offsets(log)


def test_logs_of_several_clusters_are_refused(tmp_path: Path) -> None:
    log_of(tmp_path / "a", 0, 1)
    log_of(tmp_path / "b", 0, 1, cluster="d")
    with pytest.raises(ValueError, match="logs of several clusters: c, d"):
        find_copies([str(tmp_path)])


def known_end(folder: Path) -> int:
    return committed_end(find_copies([str(folder)]))


@pytest.mark.parametrize(
    ("ends", "known"),
    [
        ((9, 7, 5), 7),
        ((9, 9, 9), 9),
        ((9, 5), 5),
        ((9,), 0),
    ],
)  # fmt: skip
def test_what_a_majority_of_the_voters_has_is_committed(
    tmp_path: Path, ends: tuple[int, ...], known: int
) -> None:
    for node, end in enumerate(ends, start=1):
        voter(tmp_path, node, end)
    assert known_end(tmp_path) == known


def test_a_node_that_is_no_voter_does_not_count(tmp_path: Path) -> None:
    for node, end in ((1, 9), (2, 5), (104, 8)):
        voter(tmp_path, node, end)
    assert known_end(tmp_path) == 5


def test_records_of_an_epoch_before_the_voters_epoch_may_not_be_committed(tmp_path: Path) -> None:
    """As in figure 8 of the Raft paper: a later leader has spread them, and may still lose an election."""
    voter(tmp_path, 1, 9, state=4)
    voter(tmp_path, 2, 9, state=4)
    assert known_end(tmp_path) == 0
    write_state(tmp_path / "node-2" / LOG, 6, [])
    assert known_end(tmp_path) == 6


def test_voters_of_different_epochs_are_no_majority(tmp_path: Path) -> None:
    voter(tmp_path, 1, 9, epoch=2)
    voter(tmp_path, 2, 9, epoch=3)
    assert known_end(tmp_path) == 0
    voter(tmp_path, 3, 7, epoch=3)
    assert known_end(tmp_path) == 7


def test_a_voter_without_others_commits_all_that_it_writes(tmp_path: Path) -> None:
    voter(tmp_path, 1, 9, voters=1, state=3)
    assert known_end(tmp_path) == 9


@pytest.mark.parametrize("state", ["data", "running"])
def test_the_voters_are_those_of_the_log_where_it_has_them(kafka: Path, state: str) -> None:
    copies = find_copies([str(kafka / state)])
    assert committed_end(copies) == copies[0].end_offset > copies[0].layout.snapshots[-1].end_offset
