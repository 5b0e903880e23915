"""The parts of the driver: proposals, the thread of an fsync, delivery, snapshot files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.raft.core.voters import VoterSet
from quorate.raft.runtime.delivery import Delivery
from quorate.raft.runtime.proposals import Proposals
from quorate.raft.storage.fsync import SAMPLES, STALL_S, Syncer
from quorate.raft.storage.snapshots.files import (
    SnapshotError,
    SnapshotWriter,
    footer_batch,
    header_batch,
    parse_name,
    place,
    read_batches,
    read_head,
    snapshot_name,
)
from quorate.raft.types import (
    MAX_BATCH_BYTES,
    BatchTooLargeError,
    CommittedBatch,
    LeaderAndEpoch,
    OffsetEpoch,
)
from quorate.records.batch import build_metadata_batch, iter_batches, metadata_values
from tests.raft.world import voter

# --- proposals ------------------------------------------------------------------------------------


def test_all_pending_records_become_one_batch_with_consecutive_offsets() -> None:
    proposals = Proposals()
    proposals.reset(10)
    assert proposals.add([b"a", b"b"], True) == 11
    assert proposals.add([b"c"], True) == 12
    [(batch, data)] = proposals.take(3, 99)
    assert (batch.base_offset, batch.last_offset, batch.epoch, batch.timestamp_ms) == (10, 12, 3, 99)
    [(header, raw)] = iter_batches(data)
    assert (header.base_offset, header.leader_epoch, header.count) == (10, 3, 3)
    assert [bytes(v) for v in metadata_values(raw)] == [b"a", b"b", b"c"]
    assert not proposals.pending
    assert proposals.next_offset == 13


def test_batches_stay_below_the_limit_and_atomic_groups_are_never_split() -> None:
    proposals = Proposals()
    for i in range(5):
        proposals.add([bytes([i]) * (1 << 20)] * 3, True)
    batches = list(proposals.take(1, 0))
    assert [b.last_offset - b.base_offset + 1 for b, _ in batches] == [6, 6, 3]
    assert all(len(data) <= MAX_BATCH_BYTES for _, data in batches)


def test_only_atomic_groups_must_fit_into_one_batch() -> None:
    proposals = Proposals()
    big = [b"x" * (1 << 20)] * 20
    with pytest.raises(BatchTooLargeError):
        proposals.add(big, True)
    assert proposals.add(big, False) == 19
    batches = list(proposals.take(1, 0))
    assert [b.last_offset for b, _ in batches][-1] == 19
    assert all(len(data) <= MAX_BATCH_BYTES for _, data in batches)
    with pytest.raises(BatchTooLargeError):
        proposals.add([b"x" * MAX_BATCH_BYTES], False)


# --- fsync ----------------------------------------------------------------------------------------


def test_fsync_moves_to_a_thread_while_the_disk_is_slow_and_back() -> None:
    pause, now = [0.0], [0.0]

    def flush() -> None:
        now[0] += pause[0]

    syncer = Syncer(flush, 0.001, durable=True, clock=lambda: now[0])

    async def main() -> None:
        for _ in range(20):
            syncer.now()
        assert syncer.inline
        pause[0] = 0.002
        for _ in range(3):
            syncer.now()
        assert not syncer.inline
        pause[0] = 0.0
        done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        syncer.in_thread(done.set_result)
        assert syncer.running
        assert await done is None
        assert not syncer.running
        for _ in range(120):
            syncer.now()
        assert syncer.inline

    asyncio.run(main())
    asyncio.run(syncer.close())


def test_after_one_stalled_fsync_the_next_ones_run_in_the_thread() -> None:
    took, now = [STALL_S * 2], [0.0]

    def flush() -> None:
        now[0] += took[0]

    syncer = Syncer(flush, 0.001, durable=True, clock=lambda: now[0])
    syncer.now()
    assert not syncer.inline
    took[0] = 0.0
    for _ in range(SAMPLES):
        assert not syncer.inline
        syncer.now()
    assert syncer.inline


def test_an_fsync_that_fails_in_the_thread_is_reported() -> None:
    def fail() -> None:
        raise OSError(5, "I/O error")

    syncer = Syncer(fail, 0.001, durable=True)

    async def main() -> BaseException | None:
        done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        syncer.in_thread(done.set_result)
        return await done

    assert isinstance(asyncio.run(main()), OSError)
    asyncio.run(syncer.close())


def test_a_truncation_that_waits_for_an_fsync_learns_that_it_failed() -> None:
    def fail() -> None:
        raise OSError(5, "I/O error")

    syncer = Syncer(fail, 0.001, durable=True)

    async def main() -> None:
        syncer.in_thread(lambda _: None)
        with pytest.raises(OSError, match="I/O error"):
            syncer.wait()

    asyncio.run(main())
    asyncio.run(syncer.close())


def test_an_observer_does_not_fsync() -> None:
    calls: list[int] = []
    syncer = Syncer(lambda: calls.append(1), 0.001, durable=False)
    syncer.now()
    assert syncer.inline
    assert not calls


def test_closing_a_syncer_waits_for_a_hung_disk_without_the_loop() -> None:
    hangs = threading.Event()
    syncer = Syncer(hangs.wait, 0.001, durable=True)  # type: ignore[arg-type]
    synced: list[BaseException | None] = []

    async def main() -> None:
        syncer.in_thread(synced.append)
        closing = asyncio.ensure_future(syncer.close())
        for _ in range(10):  # the loop runs
            await asyncio.sleep(0)
        assert not closing.done()
        hangs.set()
        await closing
        await asyncio.sleep(0)

    try:
        asyncio.run(asyncio.wait_for(main(), 10))
    finally:
        hangs.set()
    assert synced == [None]


# --- delivery -------------------------------------------------------------------------------------


def batch(offset: int, size: int = 100) -> CommittedBatch:
    return CommittedBatch(offset, offset, 1, 0, [b"v%d" % offset], size)


class Source:
    def __init__(self, count: int) -> None:
        self.batches = [batch(i) for i in range(count)]
        self.start_offset = 0
        self.snapshot: OffsetEpoch | None = None

    def read_committed(self, offset: int, end: int, max_bytes: int) -> list[CommittedBatch]:
        return [b for b in self.batches if offset <= b.base_offset < end][: max(1, max_bytes // 100)]

    def latest_snapshot(self) -> OffsetEpoch | None:
        return self.snapshot

    def snapshot_size(self, snapshot: OffsetEpoch) -> int:
        return sum(batch.size_bytes for batch in self.snapshot_batches(snapshot))

    def snapshot_batches(self, snapshot: OffsetEpoch) -> Iterator[CommittedBatch]:
        yield batch(0)


class Recorder:
    def __init__(self) -> None:
        self.events: list[object] = []
        self.offsets: list[int] = []

    def on_commit(self, batches: list[CommittedBatch]) -> None:
        self.offsets += [b.base_offset for b in batches]
        self.events.append(("commit", batches[-1].last_offset))

    def on_snapshot(self, snapshot_id: OffsetEpoch, batches: Iterator[CommittedBatch]) -> None:
        self.events.append(("snapshot", snapshot_id, len(list(batches))))

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.events.append(("leader", leader))

    def on_high_watermark(self, hwm: int) -> None:
        self.events.append(("hwm", hwm))


def fail_test(error: BaseException) -> None:
    raise AssertionError from error


def test_new_batches_reach_a_listener_that_keeps_up_in_the_same_turn() -> None:
    async def main() -> None:
        source = Source(0)
        delivery, listener = Delivery(source, fail_test), Recorder()
        delivery.register(listener)
        source.batches.append(batch(0))
        delivery.appended(batch(0))
        delivery.committed(1)  # the first time it is behind by definition: it begins with the snapshot
        await delivery.settled()
        delivery.appended(batch(1))
        delivery.committed(2)
        assert listener.offsets == [0, 1]
        assert listener.events[-1] == ("hwm", 2)

    asyncio.run(main())


def test_a_late_listener_gets_snapshot_then_log_in_order() -> None:
    async def main() -> None:
        source = Source(500)
        source.snapshot = OffsetEpoch(100, 1)
        delivery, listener = Delivery(source, fail_test), Recorder()
        delivery.committed(500)
        delivery.register(listener)
        await delivery.settled()
        assert listener.events[0] == ("snapshot", OffsetEpoch(100, 1), 1)
        assert listener.offsets == list(range(100, 500))

    asyncio.run(main())


def test_the_load_of_a_snapshot_shows_how_many_of_its_bytes_are_loaded() -> None:
    class Loading(Recorder):
        def on_snapshot(self, snapshot_id: OffsetEpoch, batches: Iterator[CommittedBatch]) -> None:
            for _ in batches:
                self.events.append(delivery.loading)

    class Large(Source):
        def snapshot_batches(self, snapshot: OffsetEpoch) -> Iterator[CommittedBatch]:
            yield from (batch(0, size=100), batch(1, size=300), batch(2, size=600))

    async def main() -> None:
        source = Large(10)
        source.snapshot = OffsetEpoch(10, 1)
        listener = Loading()
        delivery._source = source
        delivery.committed(10)
        delivery.register(listener)
        assert delivery.delivered == -1
        await delivery.settled()
        assert [event for event in listener.events if isinstance(event, tuple) and len(event) == 2][:3] == [
            (0, 1000),
            (100, 1000),
            (400, 1000),
        ]
        assert (delivery.loading, delivery.delivered) == (None, 10)

    delivery = Delivery(Source(0), fail_test)
    asyncio.run(main())


def test_two_listeners_at_different_places_both_get_everything_once() -> None:
    async def main() -> None:
        source = Source(300)
        delivery, first, second = Delivery(source, fail_test), Recorder(), Recorder()
        delivery.register(first)
        delivery.committed(300)
        await asyncio.sleep(0)
        delivery.register(second)
        for i in range(300, 320):
            source.batches.append(batch(i))
            delivery.appended(batch(i))
            delivery.committed(i + 1)
            await asyncio.sleep(0)
        await delivery.settled()
        assert first.offsets == second.offsets == list(range(320))

    asyncio.run(main())


def test_a_listener_learns_that_it_leads_when_it_has_all_earlier_records() -> None:
    async def main() -> None:
        source = Source(3)
        delivery, listener = Delivery(source, fail_test), Recorder()
        delivery.register(listener)
        delivery.committed(2)
        await delivery.settled()
        delivery.leader_changed(LeaderAndEpoch(1, 5), epoch_start=3)
        assert (
            "leader",
            LeaderAndEpoch(1, 5),
        ) not in listener.events  # offset 2 is not known to be committed
        source.batches.append(batch(3))  # of the new epoch: with it everything before commits
        delivery.committed(4)
        await delivery.settled()
        assert listener.events[-1] == ("leader", LeaderAndEpoch(1, 5))
        assert listener.offsets == [0, 1, 2, 3]

    asyncio.run(main())


def test_a_listener_that_lacks_nothing_need_not_wait_for_the_new_epochs_first_record() -> None:
    async def main() -> None:
        delivery, listener = Delivery(Source(3), fail_test), Recorder()
        delivery.register(listener)
        delivery.committed(3)
        await delivery.settled()
        delivery.leader_changed(LeaderAndEpoch(1, 5), epoch_start=3)
        assert listener.events[-1] == ("leader", LeaderAndEpoch(1, 5))

    asyncio.run(main())


def test_the_first_leader_of_a_quorum_learns_it_after_its_first_record() -> None:
    async def main() -> None:
        source = Source(1)
        delivery, listener = Delivery(source, fail_test), Recorder()
        delivery.register(listener)
        await delivery.settled()
        delivery.leader_changed(LeaderAndEpoch(1, 1), epoch_start=0)
        assert ("leader", LeaderAndEpoch(1, 1)) not in listener.events
        delivery.committed(1)
        await delivery.settled()
        assert listener.events[-1] == ("leader", LeaderAndEpoch(1, 1))

    asyncio.run(main())


def test_truncated_batches_are_never_delivered() -> None:
    async def main() -> None:
        source = Source(2)
        delivery, listener = Delivery(source, fail_test), Recorder()
        delivery.register(listener)
        delivery.committed(1)
        await delivery.settled()
        delivery.appended(CommittedBatch(1, 1, 1, 0, [b"lost"], 100))
        delivery.truncated(1)
        kept = CommittedBatch(1, 1, 2, 0, [b"kept"], 100)
        delivery.appended(kept)
        source.batches[1] = kept
        seen: list[CommittedBatch] = []
        listener.on_commit = seen.extend  # type: ignore[method-assign]
        delivery.committed(2)
        await delivery.settled()
        assert seen == [kept]

    asyncio.run(main())


def test_a_listener_that_raises_is_reported() -> None:
    async def main() -> None:
        failures: list[BaseException] = []
        delivery, listener = Delivery(Source(1), failures.append), Recorder()

        def broken(batches: list[CommittedBatch]) -> None:
            raise ValueError("broken")

        listener.on_commit = broken  # type: ignore[method-assign]
        delivery.register(listener)
        delivery.committed(1)
        for _ in range(3):
            await asyncio.sleep(0)
        delivery.close()
        assert isinstance(failures[0], ValueError)

    asyncio.run(main())


# --- snapshot files -------------------------------------------------------------------------------

ID = OffsetEpoch(40, 3)
VOTERS = VoterSet.of([voter(1), voter(2)])


def snapshot_file(directory: Path, kraft: int = 1) -> Path:
    writer = SnapshotWriter(directory, ID)
    writer.write(header_batch(ID, 12345, 99999, kraft, VOTERS))
    offset = 3 if kraft else 1
    for values in ([b"a", b"b"], [b"c"]):
        data, offset = place(
            build_metadata_batch(values, base_offset=0, leader_epoch=0, timestamp=7), offset, ID.epoch
        )
        writer.write(data)
    writer.write(footer_batch(ID, offset, 99999))
    writer.freeze()
    return writer.final


@pytest.mark.parametrize(("kraft", "first"), [(0, 1), (1, 3)])
def test_a_frozen_snapshot_is_read_back(tmp_path: Path, kraft: int, first: int) -> None:
    path = snapshot_file(tmp_path, kraft)
    assert [p.name for p in tmp_path.iterdir()] == [f"{40:020d}-{3:010d}.checkpoint"]
    head = read_head(path)
    assert head.last_timestamp_ms == 12345
    assert (head.kraft_version, head.voters) == ((1, VOTERS) if kraft else (None, None))
    batches = list(read_batches(path, 3))
    assert [[bytes(v) for v in b.values] for b in batches] == [[b"a", b"b"], [b"c"]]
    assert [b.base_offset for b in batches] == [first, first + 2]


def test_every_truncation_and_every_flipped_byte_is_detected(tmp_path: Path) -> None:
    path = snapshot_file(tmp_path)
    whole = path.read_bytes()
    path.chmod(0o644)
    headers = []
    position = 0
    for header, _ in iter_batches(whole):
        headers.append(position)
        position += header.size_bytes
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(SnapshotError):
            list(read_batches(path, 3))
    for at in range(len(whole)):
        inside = max(h for h in headers if h <= at)
        if at - inside < 8 or 12 <= at - inside < 16:
            continue  # base offset and epoch are not under the checksum and not used
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(SnapshotError):
            list(read_batches(path, 3))


def test_an_abandoned_snapshot_leaves_nothing(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path, ID)
    writer.write(b"x")
    writer.abandon()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (snapshot_name(ID), "snapshot"),
        (f"{40:020d}-{3:010d}-8273645.checkpoint.part", "part"),
        (f"{40:020d}-{3:010d}.checkpoint.deleted", "deleted"),
        ("bootstrap.checkpoint", None),
        (f"{40:020d}.log", None),
        (f"{40:020d}-{3:010d}.checkpoint.bak", None),
    ],
)
def test_file_names(name: str, kind: str | None) -> None:
    found = parse_name(name)
    assert (None if found is None else found[1]) == kind
    if found is not None:
        assert found[0] == ID
