"""Damaged files of a replica: the advice in the error depends on which other replicas have all data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.log.errors import LogDirFailure
from quorate.raft.storage.quorum_state import QuorumStateError
from quorate.raft.storage.snapshots.files import snapshot_name
from quorate.raft.storage.snapshots.verification import SnapshotError
from quorate.raft.types import OffsetEpoch, RaftError
from quorate.records.batch import build_metadata_batch
from tests.raft.nodes import Network, Node, dynamic, format_dynamic, metadata, sole
from tests.raft.world import address

SNAPSHOT = f"{0:020d}-{0:010d}.checkpoint"
STATE = "quorum-state"
ANEW = "remove-controller --controller-id 1, move {0} away, kafka-storage format --no-initial-controllers"


def state(epoch: object) -> bytes:
    return (
        b'{"leaderId":1,"leaderEpoch":%s,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
        % (str(epoch).encode())
    )


def refusal(path: Path, voters: int = 3, static: bool = False, controller: bool = True) -> str:
    """The error with which node 1 of the given number of voters does not start."""
    given = {i: address(i) for i in range(1, voters + 1)} if static else None

    async def main() -> str:
        node = Node(Network(), path, 1, voters=given, is_controller=controller)
        with pytest.raises((QuorumStateError, RaftError, SnapshotError, LogDirFailure)) as caught:
            await node.start()
        return str(caught.value)

    return asyncio.run(main())


def formatted(path: Path, voters: int = 3) -> Path:
    format_dynamic(path, dynamic(*range(1, voters + 1)))
    return metadata(path)


@pytest.mark.parametrize(
    "content",
    [b"{", b"", state(1 << 40), state(-1), state('"x"')],
    ids=["cut", "empty", "large", "negative", "text"],
)
def test_one_of_several_voters_is_added_again(tmp_path: Path, content: bytes) -> None:
    (formatted(tmp_path) / STATE).write_bytes(content)
    said = refusal(tmp_path)
    assert said.startswith(str(metadata(tmp_path) / STATE))
    assert "The other voters (2, 3) have everything that this one had" in said
    assert ANEW.format(tmp_path) in said
    assert "INVALID_REQUEST" not in said


def test_advice_without_the_voters_that_a_damaged_snapshot_holds(tmp_path: Path) -> None:
    path = formatted(tmp_path) / SNAPSHOT
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    said = refusal(tmp_path)
    assert said.startswith(f"{path}: ")
    assert "If there are other voters" in said
    assert ANEW.format(tmp_path) in said
    assert "an only voter is restored from a backup" in said


def test_a_static_voter_needs_no_removal(tmp_path: Path) -> None:
    metadata(tmp_path).mkdir()
    (metadata(tmp_path) / STATE).write_bytes(b"{")
    said = refusal(tmp_path, static=True)
    assert (
        f"The other voters (2, 3) have everything that this one had: move {tmp_path} away, format it again"
        in said
    )
    assert "remove-controller" not in said


def test_an_observer_fetches_everything_again(tmp_path: Path) -> None:
    path = formatted(tmp_path) / SNAPSHOT
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert f"move {metadata(tmp_path)} away and start it again" in refusal(tmp_path, controller=False)


def lived(path: Path) -> None:
    async def main() -> None:
        node = await sole(path)
        await node.commit(b"a")
        await node.commit(b"b")
        await node.stop()

    asyncio.run(main())


@pytest.mark.parametrize("content", [b"{", b"", state(0)], ids=["cut", "empty", "behind"])
def test_the_only_voter_starts_without_its_quorum_state_as_advised(tmp_path: Path, content: bytes) -> None:
    lived(tmp_path)
    path = metadata(tmp_path) / STATE
    path.write_bytes(content)
    assert f"This is the only voter: remove {path} and start it again" in refusal(tmp_path, 1)
    path.unlink()

    async def main() -> None:
        node = await sole(tmp_path)
        assert node.machine.values == [b"a", b"b"]
        assert node.client.epoch == 2
        await node.stop()

    asyncio.run(main())


def flip(path: Path, at: Callable[[bytes], int]) -> None:
    data = bytearray(path.read_bytes())
    data[at(data)] ^= 0xFF
    path.write_bytes(data)


def test_the_log_of_an_only_voter_comes_from_a_backup(tmp_path: Path) -> None:
    lived(tmp_path)
    flip(metadata(tmp_path) / f"{0:020d}.log", lambda data: len(data) // 2)
    said = refusal(tmp_path, 1)
    assert f"{0:020d}.log" in said
    assert "an only voter is restored from a backup" in said


def test_damage_that_is_found_when_a_snapshot_is_loaded_is_explained_too(tmp_path: Path) -> None:
    async def written() -> Path:
        node = await sole(tmp_path)
        await node.commit(b"a")
        end = OffsetEpoch(node.client.high_watermark, node.client.epoch)
        batches = [
            build_metadata_batch([v * 1000], base_offset=0, leader_epoch=0, timestamp=1) for v in (b"x", b"y")
        ]
        assert await node.client.create_snapshot(*end, 1, batches) == end
        await node.stop()
        return metadata(tmp_path) / snapshot_name(end)

    path = asyncio.run(written())
    flip(path, lambda data: data.index(b"yyyy") + 500)

    async def main() -> str:
        node = await Node(Network(), tmp_path, 1).start()
        while not node.fatal:
            await asyncio.sleep(0)
        return str(node.fatal[0])

    said = asyncio.run(main())
    assert said.startswith(str(path))
    assert f"This is the only voter: restore {metadata(tmp_path)} from a backup" in said


def segment(path: Path) -> Path:
    return metadata(path) / f"{0:020d}.log"


def damaged_in_the_middle(path: Path) -> None:
    """Damages the second of several batches; the batches after it are valid."""
    lived(path)
    flip(segment(path), lambda data: len(data) // 2)


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_a_damaged_log_is_never_advised_to_be_moved_away_under_the_same_directory_id(
    tmp_path: Path, static: bool
) -> None:
    damaged_in_the_middle(tmp_path)
    said = refusal(tmp_path, static=static)
    assert f"{segment(tmp_path)} is damaged at byte " in said
    assert "copied" not in said
    assert f"move {metadata(tmp_path)} away" not in said
    assert f"move {tmp_path} away" in said  # with meta.properties, and so under another directory id


def test_a_damaged_log_of_a_static_voter_has_the_remedy_of_one(tmp_path: Path) -> None:
    async def main() -> None:
        node = await sole(tmp_path, kraft=0)
        await node.commit(b"a")
        await node.commit(b"b")
        await node.stop()

    asyncio.run(main())
    flip(segment(tmp_path), lambda data: len(data) // 2)
    said = refusal(tmp_path, static=True)
    assert "remove-controller" not in said
    assert (
        f"The other voters (2, 3) have everything that this one had: move {tmp_path} away, format it again"
        in said
    )


def test_a_damaged_log_of_a_broker_may_be_moved_away(tmp_path: Path) -> None:
    damaged_in_the_middle(tmp_path)
    said = refusal(tmp_path, controller=False)
    assert f"move {metadata(tmp_path)} away and start it again, it fetches everything anew" in said


def test_the_advice_to_a_static_voter_says_when_formatting_it_again_is_safe(tmp_path: Path) -> None:
    metadata(tmp_path).mkdir()
    (metadata(tmp_path) / STATE).write_bytes(b"{")
    said = refusal(tmp_path, static=True)
    assert (
        "only while every other voter runs and is caught up (kafka-metadata-quorum describe --replication)"
        in said
    )


def test_one_of_two_voters_cannot_be_removed_by_the_other(tmp_path: Path) -> None:
    (formatted(tmp_path, 2) / STATE).write_bytes(b"{")
    said = refusal(tmp_path)
    assert "remove-controller" not in said
    assert (
        f"Voter 2 alone is no majority and cannot remove this one: restore {metadata(tmp_path)} from a backup"
        in said
    )


def test_a_controller_that_is_no_voter_needs_no_removal(tmp_path: Path) -> None:
    format_dynamic(tmp_path, dynamic(2, 3, 4))
    (metadata(tmp_path) / STATE).write_bytes(b"{")
    said = refusal(tmp_path)
    assert "This controller is not among the voters (2, 3, 4), which have everything: " in said
    assert (
        f"move {tmp_path} away, kafka-storage format --no-initial-controllers, start this controller" in said
    )
    assert "remove-controller" not in said


def test_the_advice_mentions_topics_in_the_same_directory(tmp_path: Path) -> None:
    (formatted(tmp_path) / STATE).write_bytes(b"{")
    assert "partition" not in refusal(tmp_path)
    (tmp_path / "events-0").mkdir()
    (tmp_path / "__consumer_offsets-7").mkdir()
    (tmp_path / "no partition").mkdir()
    assert (
        f"{tmp_path} also holds 2 topic partitions: see first that each has another replica in sync"
        in refusal(tmp_path)
    )
