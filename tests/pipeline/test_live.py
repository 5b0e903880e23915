"""Following a metadata log: the offsets of a stream, directories, and a running quorum.

Without a Spark session.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any, cast

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.admin.errors import ErrorCode, KafkaError
from quorate.admin.metadata_log import Fetched, SnapshotId
from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.metadata import records as r
from quorate.metadata.errors import MetadataError
from quorate.pipeline.datasource.bounds import parse_time
from quorate.pipeline.datasource.options import parse_options
from quorate.pipeline.datasource.source import MetadataLogReader
from quorate.pipeline.datasource.tasks import read_task
from quorate.pipeline.decoder.read import Reading
from quorate.pipeline.live.directory import DirectoryTail
from quorate.pipeline.live.offsets import (
    OffsetError,
    Range,
    Start,
    StreamOffset,
    check_order,
    parse_offset,
    parse_starting_offset,
)
from quorate.pipeline.live.quorum import Quorum
from quorate.pipeline.live.ranges import read_range
from quorate.pipeline.live.stream import MetadataStreamReader
from quorate.pipeline.live.tail import QuorumTail
from quorate.records.batch import iter_batches
from quorate.testing import KafkaCluster
from tests.support.cluster import wait_for

from .conftest import LOG, ORDERS, all_rows, topic, voter, write_log, write_state

Rows = list[dict[str, Any]]


# -- offsets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Start.EARLIEST),
        ("LATEST", Start.LATEST),
        ("17", StreamOffset(17)),
        ('{"offset": 17, "epoch": 3}', StreamOffset(17, 3)),
        ('{"clusterId": "c", "offset": 17, "epoch": 3, "highWatermark": 20}', StreamOffset(17, 3, "c", 20)),
    ],
)
def test_a_starting_offset_is_a_word_a_number_or_an_offset_of_a_checkpoint(
    text: str, expected: object
) -> None:
    assert parse_starting_offset(text) == expected
    if isinstance(expected, StreamOffset):
        assert parse_offset(expected.to_json()) == expected


@pytest.mark.parametrize(
    "text", ["", "-1", "first", "[1]", "{}", '{"offset": -1}', '{"offset": true}', '{"offset": 1, "part": 2}']
)
def test_another_starting_offset_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"option startingOffset is .* must be earliest, latest, a number"):
        parse_starting_offset(text)


def test_an_end_before_the_start_or_of_another_cluster_is_refused() -> None:
    check_order(StreamOffset(5, 1, "c"), StreamOffset(5, 2, "c"))
    with pytest.raises(OffsetError, match="read up to offset 5, but the log ends at 4"):
        check_order(StreamOffset(5), StreamOffset(4))
    with pytest.raises(OffsetError, match="read cluster c, but this is d"):
        check_order(StreamOffset(5, 1, "c"), StreamOffset(6, 1, "d"))


# -- directories ---------------------------------------------------------------------------------------


def step(
    tail: QuorumTail | DirectoryTail, position: StreamOffset, **options: str
) -> tuple[StreamOffset, Rows]:
    """Reads what is committed after a position."""
    end = tail.advance(position)
    parsed = parse_options(options, stream=True)
    found = [batch for task in tail.plan(position, end) for batch in read_task(task, parsed)]
    return end, [row for batch in found for row in batch.to_pylist()]


def offsets(rows: Rows) -> list[int]:
    return [row["offset"] for row in rows if row["snapshot"] is None]


def test_a_directory_is_followed_as_its_log_grows(tmp_path: Path) -> None:
    voter(tmp_path, 1, 5, voters=1)
    tail = DirectoryTail([str(tmp_path)], 1 << 20)
    position, rows = step(tail, tail.first(Start.EARLIEST), path=str(tmp_path))
    assert (offsets(rows), position) == ([0, 1, 2, 3, 4], StreamOffset(5, 2, "c", 5))
    write_log(
        tmp_path / "node-1" / LOG, 5, [[r.NoOpRecord()], [topic("orders", ORDERS), r.NoOpRecord()]], epoch=2
    )
    position, rows = step(tail, position, path=str(tmp_path))
    assert (offsets(rows), position.offset) == ([5, 6, 7], 8)
    assert all(row["committed"] for row in rows)
    assert tail.first(Start.LATEST) == position
    assert tail.advance(tail.first(Start.EARLIEST), 3).offset == 3


def test_records_that_are_not_known_to_be_committed_are_left_for_later(tmp_path: Path) -> None:
    voter(tmp_path, 1, 9)
    tail = DirectoryTail([str(tmp_path)], 1 << 20)
    position, rows = step(tail, tail.first(Start.EARLIEST), path=str(tmp_path))
    assert (position.offset, rows) == (0, [])
    voter(tmp_path, 2, 7)
    position, rows = step(tail, position, path=str(tmp_path))
    assert offsets(rows) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("which", ["all", "none"])
def test_a_stream_begins_with_the_snapshot_where_the_start_of_the_log_is_gone(
    tmp_path: Path, which: str
) -> None:
    voter(tmp_path, 1, 2, voters=1)
    log = tmp_path / "node-1" / LOG
    (log / f"{0:020d}.log").unlink()
    write_log(log, 10, [[r.NoOpRecord()] for _ in range(4)], epoch=2)
    write_state(log, 10, [topic("orders", ORDERS)])
    tail = DirectoryTail([str(tmp_path)], 1 << 20, snapshots=which == "all")
    position, rows = step(tail, tail.first(Start.EARLIEST), path=str(tmp_path))
    assert (position.offset, offsets(rows)) == (14, [10, 11, 12, 13])
    assert {row["type"] for row in rows if row["snapshot"] == 10} >= (
        {"TOPIC_RECORD"} if which == "all" else set()
    )
    assert {row["snapshot"] for row in rows} == ({10, None} if which == "all" else {None})


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (StreamOffset(10, 2, "c"), "read up to offset 10, but the log ends at 5"),
        (StreamOffset(3, 2, "d"), "read cluster d, but this is c"),
        (StreamOffset(3, 1, "c"), "the record before offset 3 is of epoch 2, and not 1"),
    ],
)  # fmt: skip
def test_a_directory_that_does_not_have_what_was_read_is_refused(
    tmp_path: Path, position: StreamOffset, message: str
) -> None:
    voter(tmp_path, 1, 5, voters=1)
    (tmp_path / "node-1" / LOG / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n2 2\n")
    tail = DirectoryTail([str(tmp_path)], 1 << 20)
    with pytest.raises(OffsetError, match=message):
        tail.advance(position)
    with pytest.raises(OffsetError, match=message):
        tail.plan(position, position)


def test_a_stale_copy_with_uncommitted_records_does_not_confuse_a_stream(tmp_path: Path) -> None:
    """The leader of epoch 3 was lost with records that nobody else had. When it is back, they are gone."""
    epochs = "0\n2\n1 0\n{} 2\n"
    voter(tmp_path, 1, 14, epoch=3)
    for node in (2, 3):
        voter(tmp_path, node, 20, epoch=4)
    for node, epoch in ((1, 3), (2, 4), (3, 4)):
        (tmp_path / f"node-{node}" / LOG / "leader-epoch-checkpoint").write_text(epochs.format(epoch))
    tail = DirectoryTail([str(tmp_path)], 1 << 20)
    first = tail.advance(StreamOffset(0, 0, "c"), 10)
    assert (first.offset, first.epoch) == (10, 4)
    shutil.rmtree(tmp_path / "node-1")
    voter(tmp_path, 1, 20, epoch=4)
    assert tail.advance(first, 10).offset == 20


# -- the stream reader ---------------------------------------------------------------------------------


def reader(path: Path, **options: str) -> MetadataStreamReader:
    return MetadataStreamReader(parse_options({"path": str(path), **options}, stream=True))


def test_a_restarted_stream_continues_at_the_offset_of_its_checkpoint(tmp_path: Path) -> None:
    voter(tmp_path, 1, 9, voters=1)
    first = reader(tmp_path, maxOffsetsPerTrigger="4")
    begin = first.initialOffset()
    checkpoint = first.latestOffset()
    assert (begin["offset"], checkpoint["offset"]) == (0, 4)
    again = reader(tmp_path, maxOffsetsPerTrigger="4")
    assert again.partitions(checkpoint, checkpoint) == []
    assert again.latestOffset()["offset"] == 8


def test_a_stream_without_its_checkpoint_continues_at_a_given_offset(tmp_path: Path) -> None:
    voter(tmp_path, 1, 9, voters=1)
    stream = reader(tmp_path, startingOffset='{"offset": 6, "epoch": 2}')
    begin, end = stream.initialOffset(), stream.latestOffset()
    tasks = stream.partitions(begin, end)
    rows = [row for task in tasks for batch in stream.read(task) for row in batch.to_pylist()]
    assert (begin["offset"], offsets(rows)) == (6, [6, 7, 8])
    with pytest.raises(OffsetError, match="read up to offset 10, but the log ends at 9"):
        reader(tmp_path, startingOffset="10").latestOffset()


def test_offsets_that_go_back_are_refused(tmp_path: Path) -> None:
    voter(tmp_path, 1, 9, voters=1)
    stream = reader(tmp_path)
    end = stream.latestOffset()
    with pytest.raises(OffsetError, match="read up to offset 9, but the log ends at 7"):
        stream.partitions(end, end | {"offset": 7})


def test_a_limit_that_would_be_counted_from_the_wrong_offset_is_refused(tmp_path: Path) -> None:
    voter(tmp_path, 1, 9, voters=1)
    checkpoint = StreamOffset(6, 2, "c", 9).to_json()
    stream = reader(tmp_path, maxOffsetsPerTrigger="4")
    stream.latestOffset()
    with pytest.raises(OffsetError, match="maxOffsetsPerTrigger does not work with the trigger availableNow"):
        stream.partitions(checkpoint, checkpoint)
    unlimited = reader(tmp_path)
    end = unlimited.latestOffset()
    assert len(unlimited.partitions(checkpoint, end)) == 1


# -- the tasks of a quorum -----------------------------------------------------------------------------


class Controllers:
    """An active controller with a log from `start` on and its snapshots; one that is asked for
    first is gone."""

    name = "the metadata log of a test"

    def __init__(self, log: Path, *, start: int = 0, gone: SnapshotId | None = None) -> None:
        self.data = b"".join([path.read_bytes() for path in sorted(log.glob("*.log"))])
        self.start = start
        self.snapshots = {
            SnapshotId(int(path.stem[:20]), int(path.stem[21:])): path.read_bytes()
            for path in sorted(log.glob("*.checkpoint"))
        }
        self.gone = gone

    def fetch(self, offset: int, epoch: int) -> Fetched:
        if offset < self.start:
            offered = self.gone or max(self.snapshots)
            return Fetched(b"", 100, self.start, offered)
        found = [bytes(batch) for header, batch in iter_batches(self.data) if header.last_offset >= offset]
        return Fetched(b"".join(found), 100, self.start)

    def download(self, snapshot: SnapshotId, file: IO[bytes]) -> int:
        self.gone = None
        if snapshot not in self.snapshots:
            raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND)
        file.write(self.snapshots[snapshot])
        file.flush()
        return len(self.snapshots[snapshot])


def range_rows(found: Controllers, wanted: Range) -> Rows:
    quorum = cast(Quorum, found)
    return [row for batch in read_range(quorum, wanted, Reading()) for row in batch.to_pylist()]


def log_with_snapshot(folder: Path) -> Path:
    write_log(folder, 0, [[topic("orders", ORDERS), r.NoOpRecord()] for _ in range(4)])
    write_state(folder, 4, [topic("orders", ORDERS)])
    return folder


def test_a_task_reads_no_more_than_its_range(tmp_path: Path) -> None:
    found = Controllers(log_with_snapshot(tmp_path))
    assert offsets(range_rows(found, Range(1, 5, 1, "c"))) == [1, 2, 3, 4]


def test_a_snapshot_of_which_the_next_active_controller_has_a_newer_one_is_replaced(tmp_path: Path) -> None:
    found = Controllers(log_with_snapshot(tmp_path), start=4, gone=SnapshotId(3, 1))
    rows = range_rows(found, Range(0, 8, 0, "c", begins_with_snapshot=True))
    assert ({row["snapshot"] for row in rows}, offsets(rows)) == ({4, None}, [4, 5, 6, 7])


def test_a_range_whose_start_was_deleted_after_its_planning_is_refused(tmp_path: Path) -> None:
    found = Controllers(log_with_snapshot(tmp_path), start=4)
    with pytest.raises(OffsetError, match="no longer has offset 2: it was deleted since"):
        range_rows(found, Range(2, 8, 1, "c"))


def test_a_log_is_complete_although_its_snapshot_is_offered_for_offset_0(tmp_path: Path) -> None:
    class Offering(Controllers):
        def fetch(self, offset: int, epoch: int) -> Fetched:
            return super().fetch(offset, epoch) if offset else Fetched(b"", 100, 0, max(self.snapshots))

    found = Offering(log_with_snapshot(tmp_path))
    assert offsets(range_rows(found, Range(0, 8, 0, "c"))) == list(range(8))


@pytest.mark.parametrize("cut", [30, 70])
def test_a_response_without_a_complete_batch_is_refused(tmp_path: Path, cut: int) -> None:
    found = Controllers(log_with_snapshot(tmp_path))
    found.data = found.data[:cut]
    with pytest.raises(MetadataError, match=r"at offset 0 .* the response has no complete batch"):
        range_rows(found, Range(0, 8, 0, "c"))


class Connected(Controllers):
    """The same, in the place of a connection."""

    cluster_id = "c"

    def fetch(self, offset: int, epoch: int, **_: object) -> Fetched:
        found = super().fetch(offset, epoch)
        return Fetched(found.records, 8, self.start, found.snapshot)

    def __enter__(self) -> Connected:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        pass


@pytest.mark.parametrize("start", [0, 2], ids=["whole", "cleaned"])
def test_times_do_not_change_what_else_a_quorum_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    """Without the start of the log, the snapshot comes first."""
    folder = log_with_snapshot(tmp_path)
    for module in ("tail", "quorum"):
        monkeypatch.setattr(
            f"quorate.pipeline.live.{module}.Quorum", lambda *_: Connected(folder, start=start)
        )

    def read(**given: str) -> Rows:
        options = {"controllers": "a:1", "sliceBytes": "300", "complete": "false", **given}
        found = MetadataLogReader(parse_options(options))
        return [row for task in found.partitions() for batch in found.read(task) for row in batch.to_pylist()]

    every = read()
    assert ({row["snapshot"] for row in every} == {None}) == (start == 0)
    for second in range(9):
        at = f"1970-01-01T00:00:0{second}"
        before, after = read(endTime=at), read(startTime=at)
        assert sorted(before + after, key=str) == sorted(every, key=str)
        assert all((row["timestamp"] < parse_time(at)) == (row in before) for row in every)


# -- a running quorum ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(controllers=3, brokers=1, separate_roles=True) as found:
        yield found


def tail_of(cluster: KafkaCluster) -> QuorumTail:
    return QuorumTail(cluster.bootstrap_controllers, {}, 10)


def create(cluster: KafkaCluster, *names: str) -> None:
    with AdminClient(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 3) for name in names])


def in_the_directory(cluster: KafkaCluster, first: int, end: int) -> Rows:
    """The rows of a controller's directory, all of which are known to be committed."""
    rows = next(
        rows
        for node in cluster.controller_ids
        if offsets(rows := all_rows(cluster.data_directory(node)))[-1] >= end - 1
    )
    return [
        row | {"committed": True} for row in rows if row["snapshot"] is None and first <= row["offset"] < end
    ]


def test_a_quorum_gives_the_rows_of_its_directories(cluster: KafkaCluster) -> None:
    create(cluster, "orders")
    options = parse_options({"controllers": cluster.bootstrap_controllers, "sliceBytes": "1280"})
    tasks = MetadataLogReader(options).partitions()
    rows = [row for task in tasks for batch in read_task(task, options) for row in batch.to_pylist()]
    assert len(tasks) > 1
    assert rows == in_the_directory(cluster, 0, rows[-1]["offset"] + 1)
    assert {"TOPIC_RECORD", "LEADER_CHANGE", "PARTITION_RECORD"} <= {row["type"] for row in rows}


def test_a_stream_continues_with_the_next_active_controller(cluster: KafkaCluster) -> None:
    with closing(tail_of(cluster)) as tail, AdminClient(cluster.bootstrap_servers) as admin:
        position, rows = step(tail, tail.first(Start.EARLIEST), controllers=cluster.bootstrap_controllers)
        leader = admin.describe_quorum().leader_id
        cluster.kill(leader)
        create(cluster, "after-the-failover")

        def found() -> bool:
            nonlocal position
            position, more = step(tail, position, controllers=cluster.bootstrap_controllers)
            rows.extend(more)
            return any(row["topic_name"] == "after-the-failover" for row in rows)

        wait_for("the topic", found)
        cluster.start(leader)
    assert offsets(rows) == list(range(position.offset))
    assert {row["epoch"] for row in rows} > {1}
    assert rows == in_the_directory(cluster, 0, position.offset)


def test_nothing_beyond_the_high_watermark_is_read(cluster: KafkaCluster) -> None:
    with closing(tail_of(cluster)) as tail, AdminClient(cluster.bootstrap_servers) as admin:
        position = tail.first(Start.LATEST)
        leader = admin.describe_quorum().leader_id
        others = [node for node in cluster.controller_ids if node != leader]
        log = cluster.data_directory(leader)
        try:
            for node in others:
                cluster.freeze(node)
            committed = tail.advance(position)
            wait_for("a record without a majority", lambda: offsets(all_rows(log))[-1] >= committed.offset)
            assert tail.advance(committed) == committed
        finally:
            cluster.thaw()
        wait_for("a majority", lambda: tail.advance(committed).offset > committed.offset)


def test_a_limit_ends_at_the_end_of_a_batch(cluster: KafkaCluster) -> None:
    create(cluster, "limited")
    with closing(tail_of(cluster)) as tail:
        ends = [tail.first(Start.EARLIEST)]
        last = tail.first(Start.LATEST).offset
        while ends[-1].offset < last:
            ends.append(tail.advance(ends[-1], 2))
        rows = in_the_directory(cluster, 0, ends[-1].offset)
        epochs = {row["offset"] + 1: row["epoch"] for row in rows}
        assert [end.epoch for end in ends[1:]] == [epochs[end.offset] for end in ends[1:]]
        topic_at = next(row["offset"] for row in rows if row["topic_name"] == "limited")
        assert not {end.offset for end in ends} & {topic_at + 1, topic_at + 2, topic_at + 3}


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (StreamOffset(3, 1, "another"), "has read cluster another, but"),
        (StreamOffset(1_000_000, 1), "has another history than what was read up to offset 1000000 in epoch 1"),
    ],
)  # fmt: skip
def test_a_quorum_that_does_not_have_what_was_read_is_refused(
    cluster: KafkaCluster, position: StreamOffset, message: str
) -> None:
    with closing(tail_of(cluster)) as tail, pytest.raises(OffsetError, match=message):
        tail.advance(tail.first(position))


def test_a_quorum_whose_log_has_lost_its_start_gives_a_snapshot_first(kafka: Path) -> None:
    state = max((kafka / "running" / LOG).glob("*.checkpoint"))
    with KafkaCluster(snapshot=state) as cluster, closing(tail_of(cluster)) as tail:
        position, rows = step(tail, tail.first(Start.EARLIEST), controllers=cluster.bootstrap_controllers)
        log = cluster.data_directory(1)
        snapshot = rows[0]["snapshot"]
        assert snapshot > 0
        assert [row for row in rows if row["snapshot"]] == [row for row in all_rows(log) if row["snapshot"]]
        assert offsets(rows) == list(range(snapshot, position.offset))
        no_snapshot = parse_options({"controllers": cluster.bootstrap_controllers, "snapshots": "none"})
        tasks = MetadataLogReader(no_snapshot).partitions()
        found = [row for task in tasks for batch in read_task(task, no_snapshot) for row in batch.to_pylist()]
        assert {row["snapshot"] for row in found} == {None}
