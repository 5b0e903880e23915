"""Raft clients on real files: single voters, restarts and snapshots."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from quorate.log.partition.results import UnexpectedAppendOffset
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.raft.runtime.timers import PeriodicTimer
from quorate.raft.storage.metadata_log import MetadataLog
from quorate.raft.storage.quorum_state import decode_quorum_state
from quorate.raft.storage.snapshots.files import SnapshotWriter, snapshot_name
from quorate.raft.types import NotLeaderError, OffsetEpoch
from quorate.records.batch import build_metadata_batch, control_records, iter_batches
from tests.raft.nodes import Node, metadata, sole
from tests.raft.world import address


@pytest.mark.parametrize("kraft", [0, 1])
def test_an_only_voter_leads_commits_and_keeps_everything_over_a_restart(tmp_path: Path, kraft: int) -> None:
    async def main() -> None:
        node = await sole(tmp_path, kraft)
        assert node.client.epoch == 1
        await node.commit(b"a", b"b")
        await node.commit(b"c")
        assert node.machine.values == [b"a", b"b", b"c"]
        await node.stop()
        node = await sole(tmp_path, kraft)
        assert node.client.epoch == 2
        assert node.machine.values == [b"a", b"b", b"c"]
        await node.commit(b"d")
        await node.kill()
        node = await sole(tmp_path, kraft)
        assert node.client.epoch == 3
        assert node.machine.values == [b"a", b"b", b"c", b"d"]
        assert node.client.kraft_version == node.client.kraft_version_finalised == kraft
        await node.stop()
        assert not node.fatal

    asyncio.run(main())


def test_the_first_record_of_an_epoch_does_not_wait_for_the_epoch_checkpoint(
    tmp_path: Path,
) -> None:
    async def life(*, clean: bool) -> OffsetEpoch:
        node = await sole(tmp_path)
        await node.commit(b"a")
        await (node.stop() if clean else node.kill())
        return OffsetEpoch(node.client.log.end_offset, node.client.log.last_epoch)

    async def epochs_of(known: OffsetEpoch) -> None:
        node = await sole(tmp_path)
        assert [node.client.log.end_offset_for_epoch(e) for e in (1, 2)] == [first, known]
        await node.stop()

    checkpoint = metadata(tmp_path) / "leader-epoch-checkpoint"
    first = asyncio.run(life(clean=True))
    written = checkpoint.read_text()
    second = asyncio.run(life(clean=False))
    assert (checkpoint.read_text(), second.epoch) == (written, 2)
    asyncio.run(epochs_of(second))
    assert checkpoint.read_text() == f"0\n3\n1 0\n2 {first.offset}\n3 {second.offset}\n"


@pytest.mark.parametrize("kraft", [0, 1])
def test_files_have_kafkas_names_and_content(tmp_path: Path, kraft: int) -> None:
    async def main() -> None:
        node = await sole(tmp_path, kraft)
        await node.commit(b"a")
        await node.stop()

    asyncio.run(main())
    place = metadata(tmp_path)
    names = {p.name for p in place.iterdir()}
    assert {f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex", "leader-epoch-checkpoint"} <= names
    assert {"partition.metadata", "quorum-state"} <= names
    assert (place / "partition.metadata").read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert (place / "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"
    state = (place / "quorum-state").read_bytes()
    assert (b'"data_version":1' in state) is bool(kraft)
    assert decode_quorum_state(state).leader_id == 1
    header, batch = next(iter_batches((place / f"{0:020d}.log").read_bytes()))
    assert (header.base_offset, header.leader_epoch, header.is_control) == (0, 1, True)
    assert [kind for kind, _ in control_records(batch)] == ([2, 5, 6] if kraft else [2])


def test_records_proposed_in_one_turn_are_one_batch_that_commits_in_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        node = await sole(tmp_path)
        start = node.client.log_end_offset
        offsets = [node.client.append(node.client.epoch, [b"%d" % i]) for i in range(100)]
        assert offsets == list(range(start, start + 100))
        assert node.machine.values == []
        await asyncio.sleep(0)
        assert len(node.machine.values) == 100
        batches = list(iter_batches((metadata(tmp_path) / f"{0:020d}.log").read_bytes()))
        assert batches[-1][0].count == 100
        await node.stop()

    asyncio.run(main())


def test_an_append_in_another_epoch_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        node = await sole(tmp_path)
        with pytest.raises(NotLeaderError):
            node.client.append(node.client.epoch - 1, [b"x"])
        await node.stop()
        with pytest.raises(NotLeaderError):
            node.client.append(node.client.epoch, [b"x"])

    asyncio.run(main())


def test_a_last_batch_that_is_torn_at_any_byte_is_truncated(tmp_path: Path) -> None:
    async def prepare() -> None:
        node = await sole(tmp_path)
        await node.commit(b"kept")
        await node.commit(b"torn")
        await node.kill()

    async def check(cut: int) -> None:
        node = await sole(tmp_path)
        assert node.machine.values == [b"kept"], cut
        await node.kill()

    asyncio.run(prepare())
    path = metadata(tmp_path) / f"{0:020d}.log"
    whole = path.read_bytes()
    torn_at = len(whole) - list(iter_batches(whole))[-1][0].size_bytes
    for cut in range(torn_at, len(whole), 7):
        path.write_bytes(whole[:cut])
        (metadata(tmp_path) / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
        asyncio.run(check(cut))


def test_a_failed_fsync_is_fatal_and_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        node = await sole(tmp_path)
        await node.commit(b"a")

        def fail(fd: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr("os.fdatasync", fail)
        monkeypatch.setattr("os.fsync", fail)
        hwm = node.client.high_watermark
        node.client.append(node.client.epoch, [b"b"])
        await asyncio.sleep(0.01)
        assert len(node.fatal) == 1
        assert node.client.high_watermark == hwm
        assert node.machine.values == [b"a"]
        with pytest.raises(NotLeaderError):
            node.client.append(node.client.epoch, [b"c"])
        monkeypatch.undo()
        await node.client.shutdown(0)

    asyncio.run(main())


def test_a_batch_larger_than_a_segment_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
        large = b"x" * 5000
        node = await sole(tmp_path, segment_bytes=2000)
        await node.commit(b"a")
        await node.commit(large)
        await node.commit(b"b")
        await node.kill()
        again = await sole(tmp_path, segment_bytes=2000)
        assert again.machine.values == [b"a", large, b"b"]
        assert not again.fatal
        await again.stop()

    asyncio.run(main())


def test_an_append_that_fails_for_any_reason_is_fatal_and_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        node = await sole(tmp_path)
        await node.commit(b"a")

        def refuse(*_: object) -> None:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, "refused")

        monkeypatch.setattr(node.client.log, "append", refuse)
        node.client.append(node.client.epoch, [b"b"])
        await asyncio.sleep(0.01)
        monkeypatch.undo()
        assert len(node.fatal) == 1
        with pytest.raises(NotLeaderError):
            node.client.append(node.client.epoch, [b"c"])
        await node.client.shutdown(0)
        again = await sole(tmp_path)
        assert again.machine.values == [b"a"]
        await again.stop()

    asyncio.run(main())


def test_records_of_another_process_are_not_overwritten(tmp_path: Path) -> None:
    async def main() -> None:
        node = await sole(tmp_path)
        await node.commit(b"a")
        (segment,) = tmp_path.rglob("*.log")
        with segment.open("ab") as file:
            file.write(b"from elsewhere")
        before = segment.read_bytes()
        node.client.append(node.client.epoch, [b"b"])
        await asyncio.sleep(0.01)
        assert len(node.fatal) == 1
        assert "another process writes to it" in str(node.fatal[0])
        await node.client.shutdown(0)
        assert segment.read_bytes() == before

    asyncio.run(main())


def test_a_batch_that_leaves_a_gap_is_not_written(tmp_path: Path) -> None:
    async def main() -> None:
        node = await sole(tmp_path)
        end = node.client.log.end_offset
        behind = build_metadata_batch(
            [b"z"], base_offset=end + 3, leader_epoch=node.client.epoch, timestamp=0
        )
        with pytest.raises(UnexpectedAppendOffset):
            node.client.log.append(behind, 0)
        assert node.client.log.end_offset == end
        await node.stop()

    asyncio.run(main())


def test_a_slow_disk_is_synced_in_a_thread_and_records_that_waited_are_the_next_batch(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        node = await sole(tmp_path, inline_fsync_s=-1.0)
        for i in range(25):
            await node.commit(b"%d" % i)
        assert not node.client.driver._syncer.inline
        node.client.append(node.client.epoch, [b"first"])
        await asyncio.sleep(0)
        for i in range(50):
            node.client.append(node.client.epoch, [b"waits %d" % i])
        await node.commit(b"last")
        counts = [h.count for h, _ in iter_batches((metadata(tmp_path) / f"{0:020d}.log").read_bytes())]
        assert counts[-2:] == [1, 51]
        await node.stop()

    asyncio.run(main())


def test_a_listener_that_registers_late_gets_everything(tmp_path: Path) -> None:
    async def main() -> None:
        from tests.raft.nodes import Machine

        node = await sole(tmp_path)
        for i in range(50):
            await node.commit(b"%d" % i)
        late = Machine()
        node.client.register(late)
        await late.until(lambda: late.next_offset == node.client.high_watermark)
        assert late.values == node.machine.values
        await late.until(lambda: bool(late.leaders))
        assert late.leaders[-1].leader_id == 1
        await node.stop()

    asyncio.run(main())


# --- snapshots ------------------------------------------------------------------------------------


def state(node: Node) -> list[bytes]:
    values = node.machine.values
    return [build_metadata_batch(values, base_offset=0, leader_epoch=0, timestamp=1)]


@pytest.mark.parametrize("kraft", [0, 1])
def test_a_restart_reads_the_snapshot_and_the_log_after_it(tmp_path: Path, kraft: int) -> None:
    async def main() -> None:
        node = await sole(tmp_path, kraft)
        await node.commit(b"a")
        await node.commit(b"b")
        end = node.client.high_watermark
        assert await node.client.create_snapshot(end, 1, 123, state(node)) == OffsetEpoch(end, 1)
        assert await node.client.create_snapshot(end, 1, 123, state(node)) is None
        await node.commit(b"c")
        await node.stop()
        node = await sole(tmp_path, kraft)
        assert node.machine.snapshots == [OffsetEpoch(end, 1)]
        assert node.machine.values == [b"a", b"b", b"c"]
        assert node.client.kraft_version == kraft
        assert node.client.voters.ids == [1]
        await node.stop()

    asyncio.run(main())


def test_a_snapshot_must_end_at_a_committed_batch_boundary(tmp_path: Path) -> None:
    async def main() -> None:
        node = await sole(tmp_path)
        last = await node.commit(b"a", b"b", b"c")
        client = node.client
        for end, epoch in ((last + 5, 1), (last, 1), (last + 1, 7), (last + 1, 0)):
            with pytest.raises(ValueError, match="snapshot"):
                await client.create_snapshot(end, epoch, 1, [])
        assert not [p for p in metadata(tmp_path).iterdir() if p.name.endswith(".part")]
        await node.stop()

    asyncio.run(main())


def test_cleaning_waits_until_the_high_watermark_is_known_after_a_restart(tmp_path: Path) -> None:
    """Without a leader a replica does not know it: its two snapshots are above it."""

    async def main() -> None:
        node = await sole(tmp_path, segment_bytes=8192, retention_bytes=1, file_delete_delay_s=0.0)
        for _ in range(2):
            await node.commit(*[b"x" * 900] * 10)
            await node.client.create_snapshot(node.client.high_watermark, node.client.epoch, 1, state(node))
        hwm = node.client.high_watermark
        await node.stop()
        again = MetadataLog.open(metadata(tmp_path), node.client.config, files=None, now_ms=2)
        assert not again.clean(2, 0)
        assert again.start_offset == 0
        assert again.clean(2, hwm)
        assert again.start_offset > 0
        again.close()

    asyncio.run(main())


def test_cleaning_deletes_records_that_snapshots_contain_and_a_restart_still_works(tmp_path: Path) -> None:
    async def main() -> None:
        node = await sole(tmp_path, segment_bytes=8192, retention_bytes=1, file_delete_delay_s=0.0)
        for i in range(40):
            await node.commit(b"%d" % i + b"x" * 900)
            if i % 10 == 9:
                await node.client.create_snapshot(
                    node.client.high_watermark, node.client.epoch, 1, state(node)
                )
        assert node.client.log.clean(2, node.client.high_watermark)
        assert node.client.log.start_offset > 0
        assert [s.offset for s in [node.client.log.latest_snapshot()] if s] == [node.client.high_watermark]
        names = [p.name for p in metadata(tmp_path).iterdir()]
        assert len([n for n in names if n.endswith(".checkpoint")]) == 1
        values = list(node.machine.values)
        await node.commit(b"after")
        await node.stop()
        node = await sole(tmp_path, segment_bytes=8192)
        assert node.machine.values == [*values, b"after"]
        await node.stop()

    asyncio.run(main())


def test_a_damaged_snapshot_that_is_not_the_newest_does_not_end_the_cleaning(tmp_path: Path) -> None:
    async def main() -> None:
        node = await sole(
            tmp_path, segment_bytes=8192, retention_ms=1, file_delete_delay_s=0.0, clean_interval_s=0.02
        )
        complaints: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        ends = []
        for i in range(20):
            await node.commit(b"%d" % i + b"x" * 900)
            if i in (9, 19):
                ends.append(OffsetEpoch(node.client.high_watermark, node.client.epoch))
            if i == 9:
                await node.client.create_snapshot(*ends[0], 1, state(node))
                path = metadata(tmp_path) / snapshot_name(ends[0])
                path.chmod(0o644)
                path.write_bytes(b"\0" * path.stat().st_size)
        await node.client.create_snapshot(*ends[1], 1, state(node))
        async with asyncio.timeout(10):
            while node.client.log.start_offset < ends[1].offset:
                await asyncio.sleep(0.01)  # cleaning has no event
        assert node.client.log.earliest_snapshot() == node.client.log.latest_snapshot() == ends[1]
        assert not complaints
        assert not node.fatal
        await node.stop()

    asyncio.run(main())


def test_a_snapshot_that_is_ready_when_a_newer_one_has_replaced_the_log_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would stay the oldest snapshot, and cleaning would never delete anything again."""

    async def main() -> None:
        leader = await sole(tmp_path / "1", segment_bytes=8192, retention_bytes=1, file_delete_delay_s=0.0)
        options = {
            "is_controller": False,
            "segment_bytes": 8192,
            "retention_bytes": 1,
            "file_delete_delay_s": 0.0,
        }
        observer = await Node(leader.network, tmp_path / "2", 2, **options).start()
        last = await leader.commit(b"first")
        await observer.machine.until(lambda: observer.machine.hwm > last)

        written, go_on, freeze = threading.Event(), threading.Event(), SnapshotWriter.freeze

        def slow(writer: SnapshotWriter) -> None:
            if writer.final.parent == metadata(tmp_path / "2"):
                written.set()
                assert go_on.wait(20)
            freeze(writer)

        with monkeypatch.context() as patched:
            patched.setattr(SnapshotWriter, "freeze", slow)
            old = OffsetEpoch(last + 1, leader.client.epoch)
            under_way = asyncio.create_task(observer.client.create_snapshot(*old, 1, state(observer)))
            assert await asyncio.to_thread(written.wait, 20)
            leader.network.kill(address(1))  # cut off, until the log that it has is gone at the leader
            for i in range(40):
                await leader.commit(b"%d" % i + b"x" * 900)
            end = OffsetEpoch(leader.client.high_watermark, leader.client.epoch)
            middle = OffsetEpoch(end.offset - 1, end.epoch)
            await leader.client.create_snapshot(*middle, 1, state(leader))
            await leader.client.create_snapshot(*end, 1, state(leader))
            assert leader.client.log.clean(2, leader.client.high_watermark)
            patched.setattr(SnapshotWriter, "freeze", freeze)
            leader.network.clients[address(1)] = leader.client
            await observer.machine.until(lambda: observer.machine.snapshots == [end])
            go_on.set()
            await under_way
        log = observer.client.log
        assert log.start_offset == end.offset
        assert log.earliest_snapshot() == end
        assert not (metadata(tmp_path / "2") / snapshot_name(old)).exists()

        last = await leader.commit(b"after")
        await observer.machine.until(lambda: observer.machine.hwm > last)
        newest = OffsetEpoch(last + 1, leader.client.epoch)
        assert await observer.client.create_snapshot(*newest, 1, state(observer)) == newest
        assert log.clean(2, observer.client.high_watermark)
        assert log.start_offset == newest.offset
        await observer.stop()
        await leader.stop()

    asyncio.run(main())


def test_a_periodic_timer_continues_after_an_error() -> None:
    async def main() -> None:
        loop, third, errors = asyncio.get_running_loop(), asyncio.Event(), list[object]()
        loop.set_exception_handler(lambda _, complaint: errors.append(complaint["exception"]))
        calls = 0

        def action() -> None:
            nonlocal calls
            calls += 1
            if calls == 3:
                third.set()
            raise ValueError(calls)

        repeated = PeriodicTimer(0.001, action)
        repeated.start()
        async with asyncio.timeout(10):
            await third.wait()
        repeated.cancel()
        assert [str(error) for error in errors][:2] == ["1", "2"]

    asyncio.run(main())


def test_unfinished_and_deleted_snapshots_are_removed_at_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        node = await sole(tmp_path)
        await node.commit(b"a")
        await node.stop()
        place = metadata(tmp_path)
        (place / f"{2:020d}-{1:010d}-123456.checkpoint.part").write_bytes(b"half")
        (place / f"{1:020d}-{1:010d}.checkpoint.deleted").write_bytes(b"old")
        node = await sole(tmp_path)
        names = [p.name for p in place.iterdir()]
        assert not [n for n in names if n.endswith((".part", ".deleted"))]
        await node.stop()

    asyncio.run(main())


def test_a_snapshot_ahead_of_the_log_restarts_the_log_after_it(tmp_path: Path) -> None:
    async def main() -> None:
        node = await sole(tmp_path)
        for i in range(10):
            await node.commit(b"%d" % i)
        end = node.client.high_watermark
        await node.client.create_snapshot(end, 1, 1, state(node))
        values = list(node.machine.values)
        await node.stop()
        for path in metadata(tmp_path).iterdir():  # the crash came between the download and the truncation
            if path.suffix in (".log", ".index", ".timeindex") or path.name == "leader-epoch-checkpoint":
                path.unlink()
        node = await sole(tmp_path)
        assert node.machine.values == values
        assert node.client.log.start_offset == end
        await node.commit(b"more")
        await node.stop()

    asyncio.run(main())
