"""The producer state that is loaded from disk equals the state in memory before the stop, for any history
and any kind of stop."""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.log.files import OpenFiles
from quorate.log.partition import producer_state_manager
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.partition.producer_state import AppendOrigin
from quorate.log.partition.producer_state_manager import RECENT_BATCHES_READ
from quorate.log.partition.results import AppendInfo
from quorate.log.segment.segment import Segment
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records.batch import MAX_INT32, BatchHeader, build_batch, build_control_batch

from .logs import NOW, open_log, put

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["data", "txn"]), st.integers(1, 4), st.integers(1, 3)),
        st.tuples(st.sampled_from(["commit", "abort", "bump"]), st.integers(1, 4), st.just(0)),
        st.tuples(
            st.sampled_from(["plain", "roll", "flush", "reopen", "reopen clean"]), st.just(0), st.just(0)
        ),
        st.tuples(st.just("truncate"), st.just(0), st.integers(1, 12)),
    ),
    max_size=30,
)


class Writer:
    """Idempotent producers that follow the protocol."""

    def __init__(self, root: Path) -> None:
        self.log = open_log(root, OpenFiles(4), segment_bytes=1_000)
        self.epochs: dict[int, int] = {}

    def state(self) -> tuple:
        log = self.log
        log.high_watermark = log.log_end_offset
        producers = {
            (
                p.producer_id,
                p.producer_epoch,
                tuple(p.batches),
                p.current_txn_first_offset,
                p.coordinator_epoch,
            )
            for p in log.active_producers()
        }
        aborted = log.aborted_transactions(0, log.log_end_offset)
        return (
            log.log_end_offset,
            producers,
            log.last_stable_offset,
            sorted(aborted, key=lambda pair: pair[1]),
        )

    def step(self, kind: str, producer: int, count: int) -> None:
        log = self.log
        known = {p.producer_id: p for p in log.active_producers()}
        if kind in ("data", "txn"):
            transactional = kind == "txn"
            if not transactional and producer in known and known[producer].current_txn_first_offset >= 0:
                return
            epoch = self.epochs.setdefault(producer, 0)
            same_epoch = producer in known and known[producer].producer_epoch == epoch
            sequence = known[producer].last_sequence + 1 if same_epoch else 0
            data = build_batch(
                [(b"k", b"v" * 20, [], NOW)] * count,
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=transactional,
            )
            log.append_as_leader(data, 0, NOW)
        elif kind in ("commit", "abort"):
            marker = build_control_batch(
                [(int(kind == "commit"), struct.pack(">hi", 0, 0))],
                timestamp=NOW,
                producer_id=producer,
                producer_epoch=self.epochs.setdefault(producer, 0),
                is_transactional=True,
            )
            log.append_as_leader(marker, 0, NOW, AppendOrigin.COORDINATOR)
        elif kind == "bump":
            if producer not in known or known[producer].current_txn_first_offset < 0:
                self.epochs[producer] = self.epochs.get(producer, 0) + 1
        elif kind == "plain":
            put(log, b"plain")
        elif kind == "roll":
            log.roll(NOW)
        elif kind == "flush":
            log.flush()
        elif kind == "truncate":
            log.truncate_to(max(log.log_end_offset - count, 0))
        elif log.has_files:
            self.reopen(clean=kind.endswith("clean"))

    def reopen(self, *, clean: bool) -> None:
        if clean:
            self.log.close()
        self.log = PartitionLog.open(
            self.log.dir,
            self.log.config,
            files=OpenFiles(4),
            recovery_point=self.log.recovery_point,
            clean_shutdown=clean,
            now_ms=NOW,
        )


@pytest.mark.parametrize("clean", [True, False])
@given(steps=STEPS)
@settings(max_examples=120, deadline=None)
def test_state_on_disk_is_the_state_in_memory(clean: bool, steps: list) -> None:
    root = Path(tempfile.mkdtemp(prefix="quorate-producers-"))
    try:
        writer = Writer(root)
        for kind, producer, count in steps:
            writer.step(kind, producer, count)
        if not writer.log.has_files:
            return
        before = writer.state()
        writer.reopen(clean=clean)
        after = writer.state()
        if after[0] != before[0]:  # the end lay inside of a batch that was cut: it is not on disk
            return
        assert after == before
    finally:
        shutil.rmtree(root)


def send(
    log: PartitionLog,
    sequence: int,
    *,
    producer: int = 7,
    epoch: int = 0,
    value: bytes = b"v",
    transactional: bool = False,
) -> AppendInfo:
    """One batch of two records."""
    data = build_batch(
        [(b"k", value, [], NOW)] * 2,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return log.append_as_leader(data, 0, NOW)


def reopen(log: PartitionLog, *, clean: bool) -> PartitionLog:
    if clean:
        log.close()
    return PartitionLog.open(
        log.dir,
        log.config,
        files=OpenFiles(4),
        recovery_point=log.recovery_point,
        clean_shutdown=clean,
        now_ms=NOW,
    )


def assert_known(log: PartitionLog, offsets: dict[int, int]) -> None:
    """Asserts that batches with these sequence numbers are recognised as retries of the batches at these
    offsets."""
    end = log.log_end_offset
    for sequence, offset in offsets.items():
        info = send(log, sequence)
        assert info.duplicate and info.first_offset == offset, f"sequence {sequence}"
    assert log.log_end_offset == end


LAST_FIVE = {2 * i: 2 * i for i in range(1, 6)}  # sequence -> offset, of six batches


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("roll_after", [-1, 0, 3, 5])
def test_the_last_five_batches_of_a_producer_are_recognised_after_a_restart(
    tmp_path: Path, clean: bool, roll_after: int
) -> None:
    """A producer may have five requests in flight. It repeats all of them if the restart has lost their
    responses."""
    log = open_log(tmp_path)
    for i in range(6):
        send(log, 2 * i)
        if i == roll_after:
            log.roll(NOW)  # takes a snapshot, which holds the last batch alone
            log.flush()
    log = reopen(log, clean=clean)
    assert_known(log, LAST_FIVE)
    with pytest.raises(KafkaError) as refused:
        send(log, 0)  # the sixth from the end
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 12).first_offset == 12


def test_the_last_five_batches_of_a_producer_are_recognised_after_a_truncation(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for i in range(7):
        send(log, 2 * i)
        if i == 4:
            log.roll(NOW)
    log.truncate_to(12)
    assert_known(log, LAST_FIVE)


def test_a_restarted_follower_recognises_the_last_five_batches_as_a_leader(tmp_path: Path) -> None:
    leader = open_log(tmp_path, name="topic-0")
    for i in range(6):
        send(leader, 2 * i)
    follower = open_log(tmp_path, name="topic-1")
    follower.append_as_follower(leader.read_bytes(0, 1 << 20), NOW)
    assert_known(reopen(follower, clean=True), LAST_FIVE)


def test_batches_below_the_log_start_are_not_restored(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for i in range(6):
        send(log, 2 * i)
    log.high_watermark = log.log_end_offset
    log.close()
    log = PartitionLog.open(
        log.dir, log.config, files=OpenFiles(4), log_start_offset=8, clean_shutdown=True, now_ms=NOW
    )
    assert [batch.first_offset for batch in log.active_producers()[0].batches] == [8, 10]


def test_batches_of_an_older_epoch_are_not_restored(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for i in range(3):
        send(log, 2 * i)
    send(log, 0, epoch=1)
    log = reopen(log, clean=True)
    assert [batch.first_offset for batch in log.active_producers()[0].batches] == [6]


def test_sequence_numbers_that_wrap_are_restored(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, MAX_INT32 - 2)
    send(log, MAX_INT32)  # its second record has sequence 0
    send(log, 1)
    log = reopen(log, clean=True)
    assert_known(log, {MAX_INT32 - 2: 0, MAX_INT32: 2, 1: 4})


class HeadersRead:
    """Counts the batch headers that are read from segments from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        headers = Segment.headers

        def counted(segment: Segment, *where: Any) -> Iterator[tuple[BatchHeader, int]]:
            for found in headers(segment, *where):
                self.count += 1
                yield found

        monkeypatch.setattr(Segment, "headers", counted)


def test_how_far_back_batches_are_searched_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer with old batches must not make each start read the complete log."""
    log = open_log(tmp_path, segment_bytes=100_000)
    for i in range(3):
        send(log, 2 * i)
    for i in range(2 * RECENT_BATCHES_READ):
        send(log, 2 * i, producer=8)
    send(log, 6)
    log.close()
    read = HeadersRead(monkeypatch)
    log = PartitionLog.open(log.dir, log.config, files=OpenFiles(4), clean_shutdown=True, now_ms=NOW)
    known = {p.producer_id: len(p.batches) for p in log.active_producers()}
    assert known == {7: 1, 8: 5}
    assert read.count < 1.5 * RECENT_BATCHES_READ  # with what finding the windows costs


@pytest.mark.parametrize(("cut", "known"), [(1, 5), (4, 5), (9, 5), (2 * RECENT_BATCHES_READ, 5)])
def test_a_truncation_reads_only_the_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int, known: int
) -> None:
    """A follower truncates in the event loop. Reading a segment of a gigabyte there would cost a broker
    its session."""
    log = open_log(tmp_path, segment_bytes=10_000_000)
    batches = 6 * RECENT_BATCHES_READ
    for i in range(batches):
        send(log, 2 * i)
    read = HeadersRead(monkeypatch)
    log.truncate_to(2 * (batches - cut))
    assert read.count < 1.5 * RECENT_BATCHES_READ
    assert [len(p.batches) for p in log.active_producers()] == [known]
    last = batches - cut - 1
    assert_known(log, {2 * i: 2 * i for i in range(last - known + 1, last + 1)})
    assert send(log, 2 * (last + 1)).first_offset == 2 * (last + 1)


def finish(log: PartitionLog, *, producer: int = 7, commit: bool = True) -> AppendInfo:
    """The marker that ends a transaction."""
    marker = build_control_batch(
        [(int(commit), struct.pack(">hi", 0, 0))],
        timestamp=NOW,
        producer_id=producer,
        producer_epoch=0,
        is_transactional=True,
    )
    return log.append_as_leader(marker, 0, NOW, AppendOrigin.COORDINATOR)


@pytest.mark.parametrize("before_it", [None, "clean", "unclean", "roll"])
def test_a_truncation_after_transactions_replays_only_the_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before_it: str | None
) -> None:
    """The same with transactions, also if the broker was started again or the segment rolled before it."""
    interval = 100
    monkeypatch.setattr(producer_state_manager, "SNAPSHOT_INTERVAL_BATCHES", interval)
    log = open_log(tmp_path, segment_bytes=10_000_000)
    batches = 20 * interval
    for i in range(batches):
        send(log, 2 * i, transactional=True)
        if i % 7 == 6:
            finish(log, commit=i % 500 != 6)
    if before_it == "roll":
        log.roll(NOW)
    elif before_it is not None:
        log = reopen(log, clean=before_it == "clean")
    before = log.log_end_offset
    read = HeadersRead(monkeypatch)
    monkeypatch.setattr(producer_state_manager, "RECENT_BATCHES_READ", 10)
    for _ in range(3):  # each from where the one before ended
        read.count = 0
        log.truncate_to(log.log_end_offset - 20)
        assert read.count < 3 * interval
    assert before - 70 < log.log_end_offset <= before - 60
    found = [(p.producer_id, p.current_txn_first_offset, *p.batches) for p in log.active_producers()]
    for path in log.dir.glob("*.snapshot"):
        path.unlink()
    log._producer_state.rebuild(log.log_start_offset, log.log_end_offset, NOW)
    assert found == [(p.producer_id, p.current_txn_first_offset, *p.batches) for p in log.active_producers()]


def test_snapshots_inside_of_a_segment_stay_until_the_second_roll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def snapshots() -> list[int]:
        return sorted(int(path.stem) for path in log.dir.glob("*.snapshot"))

    monkeypatch.setattr(producer_state_manager, "SNAPSHOT_INTERVAL_BATCHES", 3)
    log = open_log(tmp_path)
    for i in range(10):
        send(log, 2 * i)
    assert snapshots() == [6, 12, 18]
    log.roll(NOW)
    assert snapshots() == [6, 12, 18, 20]
    for i in range(10, 14):
        send(log, 2 * i)
    log.roll(NOW)
    assert snapshots() == [20, 26, 28]
    log = reopen(log, clean=False)
    assert snapshots() == [20, 28], "a power failure may have brought back an old one"


def test_producers_after_a_truncation_are_those_of_a_complete_replay(tmp_path: Path) -> None:
    """One producer is not affected, one loses some batches, one all retained batches, one its latest epoch,
    one disappears, and one has written long ago."""
    log = open_log(tmp_path, segment_bytes=200_000)
    send(log, 0, producer=6)
    for _ in range(2 * RECENT_BATCHES_READ):
        put(log, b"plain")
    for i in range(8):
        send(log, 2 * i, producer=1)
        send(log, 2 * i, producer=2)
        send(log, 2 * i, producer=3)
        send(log, 2 * i, producer=4)
    end = log.log_end_offset
    send(log, 16, producer=2)
    for i in range(8, 15):
        send(log, 2 * i, producer=3)
    send(log, 0, producer=4, epoch=1)
    send(log, 0, producer=5)
    for i in range(1, 8):
        send(log, 2 * i, producer=6)
    log.truncate_to(end)

    def states() -> list[tuple[object, ...]]:
        return sorted(
            (p.producer_id, p.producer_epoch, p.last_timestamp, *p.batches) for p in log.active_producers()
        )

    found = states()
    assert [(row[0], row[1], len(row) - 3) for row in found] == [
        (1, 0, 5),
        (2, 0, 5),
        (3, 0, 5),
        (4, 0, 5),
        (6, 0, 1),
    ]
    log._producer_state.rebuild(log.log_start_offset, end, NOW)
    assert states() == found


def test_no_search_is_needed_for_a_producer_with_all_of_its_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    send(log, 0)  # a short-lived producer: its first batch is its last one
    for i in range(100):
        put(log, b"plain %d" % i)
    log.close()
    looked = []
    monkeypatch.setattr(Segment, "batch_start_before", lambda *args: looked.append(args))
    PartitionLog.open(log.dir, log.config, files=OpenFiles(4), clean_shutdown=True, now_ms=NOW)
    assert not looked


def test_a_cleanly_closed_log_with_damage_before_its_end_can_be_opened(tmp_path: Path) -> None:
    """After a clean stop, Kafka does not read flushed segments. The search for recent batches must not fail
    the start because of them."""
    log = open_log(tmp_path)
    for i in range(40):
        send(log, 2 * i, value=b"v" * 1000)
    log.close()
    path = Path(log.segments[0].log_path)
    with path.open("r+b") as file:
        batch_bytes = path.stat().st_size // 40
        file.seek(37 * batch_bytes + 8)
        file.write(b"\xff" * 4)  # the length of the third batch from the end
    reopened = PartitionLog.open(log.dir, log.config, files=OpenFiles(4), clean_shutdown=True, now_ms=NOW)
    assert reopened.log_end_offset == 80
    assert reopened.active_producers()[0].last_sequence == 79
