"""Complete Raft clients with real files: a replica downloads a snapshot across changes of the leader and
restarts."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quorate.protocol.api import ApiKey
from quorate.raft.core import follower
from quorate.raft.storage.snapshots.files import snapshot_name
from quorate.raft.storage.snapshots.partial import fetched_parts
from quorate.raft.storage.snapshots.verification import SnapshotVerifier
from quorate.raft.types import OffsetEpoch
from quorate.records.batch import build_metadata_batch
from tests.raft.nodes import Network, Node, dynamic, format_dynamic, leader_of, metadata, sole
from tests.raft.world import address

CHUNK = 8 << 10


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "REFUSED_SNAPSHOT_S", 0.05)


def state(node: Node) -> list[bytes]:
    """The values that were delivered to its state machine before the last record, in batches of ten."""
    values = [v for v in node.machine.values if v != b"after"]
    return [
        build_metadata_batch(values[at : at + 10], base_offset=0, leader_epoch=0, timestamp=1)
        for at in range(0, len(values), 10)
    ]


async def quorum(path: Path, *ids: int) -> list[Node]:
    network = Network()
    nodes = []
    for i in ids:
        format_dynamic(path / str(i), dynamic(*ids))
        nodes.append(
            Node(
                network,
                path / str(i),
                i,
                bootstrap_servers=tuple(address(j) for j in ids),
                fetch_snapshot_max_bytes=CHUNK,
            )
        )
    for node in nodes:
        await node.start()
    return nodes


async def filled(leader: Node) -> OffsetEpoch:
    """A replica with a snapshot of 200 KB and one record after it."""
    for i in range(20):
        await leader.commit(*[b"%d.%d" % (i, k) + b"x" * 1000 for k in range(10)])
    end = OffsetEpoch(leader.client.high_watermark, leader.client.epoch)
    assert await leader.client.create_snapshot(*end, 1, state(leader)) == end
    await leader.commit(b"after")
    return end


def observer(network: Network, path: Path, *ids: int) -> Node:
    return Node(
        network,
        path,
        9,
        is_controller=False,
        bootstrap_servers=tuple(address(j) for j in ids),
        fetch_snapshot_max_bytes=CHUNK,
    )


def count(node: Node, key: ApiKey) -> int:
    return sum(called == key for _, called in node.network.calls)


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)


def test_a_restarted_replica_continues_its_download(tmp_path: Path) -> None:
    async def main() -> None:
        [leader] = await quorum(tmp_path, 1)
        await leader.lead()
        end = await filled(leader)
        late = await observer(leader.network, tmp_path / "9", 1).start()
        await until(lambda: count(late, ApiKey.FETCH_SNAPSHOT) > 10)
        await late.kill()
        [(snapshot, _, path)] = fetched_parts(metadata(tmp_path / "9"))
        assert snapshot == end
        kept, before = path.stat().st_size, count(late, ApiKey.FETCH_SNAPSHOT)
        assert kept > 5 * CHUNK
        await late.start()
        await late.machine.until(lambda: late.machine.values[-1:] == [b"after"])
        size = (metadata(tmp_path / "9") / snapshot_name(end)).stat().st_size
        assert count(late, ApiKey.FETCH_SNAPSHOT) - before <= (size - kept) // CHUNK + 4
        assert late.machine.values == leader.machine.values
        assert fetched_parts(metadata(tmp_path / "9")) == []
        await late.stop()
        await leader.stop()
        assert not late.fatal

    asyncio.run(main())


@pytest.mark.parametrize("uncommitted", [1, 199, 250], ids=["shorter", "as long", "longer"])
def test_a_replica_killed_before_a_snapshot_replaced_its_later_epoch_drops_that_epoch(
    tmp_path: Path, uncommitted: int
) -> None:
    """Its log ends with records of epoch 2, whose leader no one followed; the snapshot ends in epoch 1."""

    async def main() -> None:
        leader = await sole(tmp_path / "1", segment_bytes=8192, retention_bytes=1, file_delete_delay_s=0.0)
        await leader.commit(b"a")
        shutil.copytree(tmp_path / "1", tmp_path / "9")
        other = await sole(tmp_path / "9")
        await other.commit(*[b"uncommitted"] * uncommitted)
        assert other.client.epoch == 2
        ended = other.client.log.end_offset
        await other.stop()
        end = await filled(leader)
        assert (ended > end.offset, ended == end.offset) == (uncommitted == 250, uncommitted == 199)
        assert leader.client.log.clean(2, leader.client.high_watermark)
        for _ in range(2):  # it leads epoch 3
            await leader.stop()
            await leader.start()
            await leader.lead()
        await leader.commit(b"after")
        downloaded = metadata(tmp_path / "1") / snapshot_name(end)
        shutil.copy(downloaded, metadata(tmp_path / "9"))
        late = await observer(leader.network, tmp_path / "9", 1).start()
        await late.machine.until(lambda: late.machine.values == leader.machine.values)
        assert late.client.log.last_epoch == 3
        await late.stop()
        await leader.stop()
        assert not late.fatal

    asyncio.run(main())


@pytest.mark.parametrize("alike", [True, False])
def test_a_download_continues_from_a_new_leader_only_if_its_file_has_the_same_prefix(
    tmp_path: Path, alike: bool
) -> None:
    """Both files have the same state. If `alike` is false, the second replica has written its records in
    another order."""

    async def main() -> None:
        nodes = await quorum(tmp_path, 1, 2, 3)
        leader = await leader_of(nodes)
        others = [n for n in nodes if n is not leader]
        end = await filled(leader)
        first = metadata(leader.path) / snapshot_name(end)
        for other in others:
            await other.machine.until(lambda other=other: other.machine.next_offset > end.offset)  # type: ignore[misc]
            batches = state(other)
            await other.client.create_snapshot(*end, 1, batches if alike else batches[::-1])
            own = metadata(other.path) / snapshot_name(end)
            if alike:
                own.chmod(0o644)
                own.write_bytes(first.read_bytes())
        late = await observer(leader.network, tmp_path / "9", 1, 2, 3).start()
        await until(lambda: count(late, ApiKey.FETCH_SNAPSHOT) > 10)
        before = count(late, ApiKey.FETCH_SNAPSHOT)
        await leader.kill()
        successor = await leader_of(others)
        await late.machine.until(lambda: late.machine.values[-1:] == [b"after"])
        got = (metadata(late.path) / snapshot_name(end)).read_bytes()
        assert got == (metadata(successor.path) / snapshot_name(end)).read_bytes()
        assert sorted(late.machine.values) == sorted(successor.machine.values)
        again = count(late, ApiKey.FETCH_SNAPSHOT) - before
        assert (again * CHUNK < len(got)) is alike
        for node in (late, *others):
            await node.stop()
            assert not node.fatal

    asyncio.run(main())


def test_a_damaged_snapshot_is_refused_and_the_repaired_one_is_loaded(tmp_path: Path) -> None:
    async def main() -> None:
        [leader] = await quorum(tmp_path, 1)
        await leader.lead()
        end = await filled(leader)
        path = metadata(leader.path) / snapshot_name(end)
        good = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(good[:50_000] + b"\xff" + good[50_001:])
        late = await observer(leader.network, tmp_path / "9", 1).start()
        await until(
            lambda: count(late, ApiKey.FETCH_SNAPSHOT) > 2 * (50_000 // CHUNK)
        )  # it came to the bad byte, and again
        assert late.machine.values == []
        path.write_bytes(good)
        await late.machine.until(lambda: late.machine.values[-1:] == [b"after"])
        assert late.machine.values == leader.machine.values
        await late.stop()
        await leader.stop()
        assert not late.fatal

    asyncio.run(main())


def test_the_loop_never_waits_for_the_disk_of_a_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verification, writes and fsyncs run in threads, never in the thread of the event loop."""
    import threading

    own = threading.get_ident()
    threads: set[int] = set()
    feed = SnapshotVerifier.feed

    def feeding(self: SnapshotVerifier, data: Any) -> None:
        threads.add(threading.get_ident())
        feed(self, data)

    monkeypatch.setattr(SnapshotVerifier, "feed", feeding)

    async def main() -> None:
        [leader] = await quorum(tmp_path, 1)
        await leader.lead()
        await filled(leader)
        late = await observer(leader.network, tmp_path / "9", 1).start()
        await late.machine.until(lambda: late.machine.values[-1:] == [b"after"])
        assert threads
        assert own not in threads
        await late.stop()
        await leader.stop()

    asyncio.run(main())
