"""A voter whose log is gone does not begin anew as the voter that it was; whatever may start without one, starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.log.checkpoints import LEADER_EPOCHS
from quorate.raft.quorum_state import QuorumState, encode_quorum_state
from quorate.raft.snapshots import snapshot_name
from tests.raft.nodes import Network, Node, dynamic, format_dynamic, metadata, sole, stopped_with_a_snapshot
from tests.raft.test_remedies import ANEW, STATE, lived, refusal
from tests.raft.world import address

LOST = "but there is neither a log segment (*.log) nor a snapshot in {0}: the metadata log is lost"


def lose(path: Path, *more: str) -> None:
    for pattern in ("*.log", *more):
        found = list(metadata(path).glob(pattern))
        assert found, pattern
        for file in found:
            file.unlink()


def starts(path: Path, **options: object) -> list[bytes]:
    async def main() -> list[bytes]:
        node = await Node(Network(), path, 1, **options).start()
        await node.stop()
        return node.machine.values

    return asyncio.run(main())


def test_a_voter_without_its_log_is_refused_with_file_reason_and_remedy(tmp_path: Path) -> None:
    lived(tmp_path)
    assert (metadata(tmp_path) / LEADER_EPOCHS).exists()
    lose(tmp_path)
    before = sorted(p.name for p in metadata(tmp_path).iterdir())
    said = refusal(tmp_path)
    assert said.startswith(f"{metadata(tmp_path) / LEADER_EPOCHS} names records of epoch 1 from offset 0 on, ")
    assert LOST.format(metadata(tmp_path)) in said
    assert ANEW.format(tmp_path) in said
    assert "an only voter is restored from a backup" in said
    assert sorted(p.name for p in metadata(tmp_path).iterdir()) == before
    assert refusal(tmp_path) == said  # the next start as well


def test_the_quorum_state_alone_tells_it_too(tmp_path: Path) -> None:
    lived(tmp_path)
    lose(tmp_path, LEADER_EPOCHS)
    assert refusal(tmp_path).startswith(f"{metadata(tmp_path) / STATE} is in epoch 1, ")


@pytest.mark.parametrize("more", [(), ("leader-epoch-checkpoint",), ("leader-epoch-checkpoint", "*.index", "*.timeindex")])
def test_a_static_voter_as_well(tmp_path: Path, more: tuple[str, ...]) -> None:
    asyncio.run(_static(tmp_path))
    lose(tmp_path, *more)
    said = refusal(tmp_path, voters=3, static=True)
    assert LOST.format(metadata(tmp_path)) in said
    assert "The other voters (2, 3) have everything that this one had" in said
    assert "remove-controller" not in said


async def _static(path: Path) -> None:
    node = await sole(path, kraft=0)
    await node.commit(b"a")
    await node.stop()


def test_a_broker_fetches_everything_anew(tmp_path: Path) -> None:
    lived(tmp_path)
    lose(tmp_path)
    assert starts(tmp_path, is_controller=False) == []


def test_a_snapshot_is_enough(tmp_path: Path) -> None:
    async def main() -> None:
        end = await stopped_with_a_snapshot(tmp_path)
        assert (metadata(tmp_path) / snapshot_name(end)).exists()

    asyncio.run(main())
    lose(tmp_path)
    starts(tmp_path)


def nothing(path: Path) -> None:
    pass


def state_of_epoch_0(path: Path) -> None:
    metadata(path).mkdir(exist_ok=True)
    (metadata(path) / STATE).write_bytes(encode_quorum_state(QuorumState(), 0, [1, 2, 3]))


def empty_files(path: Path) -> None:
    metadata(path).mkdir(exist_ok=True)
    (metadata(path) / STATE).write_bytes(b"")
    (metadata(path) / LEADER_EPOCHS).write_bytes(b"0\n0\n")


@pytest.mark.parametrize("left", [nothing, state_of_epoch_0, empty_files])
@pytest.mark.parametrize("kraft", [0, 1])
def test_the_first_starts_are_no_loss(tmp_path: Path, kraft: int, left: Callable[[Path], None]) -> None:
    if kraft:
        format_dynamic(tmp_path, dynamic(1, 2, 3))
    left(tmp_path)
    starts(tmp_path, voters=None if kraft else {i: address(i) for i in (1, 2, 3)})


def test_one_that_has_voted_before_its_first_record_starts(tmp_path: Path) -> None:
    async def main() -> None:
        node = await Node(Network(), tmp_path, 1, voters={1: address(1), 2: address(2)}).start()
        node.client.core.voted = node.client.core.me
        node.client.core.epoch = 3
        node.client.core.persist()
        node.client._state.save(node.client.core.fx.save_quorum_state, False)  # type: ignore[arg-type]
        await node.kill()

    asyncio.run(main())
    assert b'"leaderEpoch":3' in (metadata(tmp_path) / STATE).read_bytes()
    assert starts(tmp_path, voters={1: address(1), 2: address(2)}) == []


def test_a_lost_quorum_state_beside_records_is_only_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lived(tmp_path)
    (metadata(tmp_path) / STATE).unlink()
    starts(tmp_path)
    assert "quorum-state has epoch 0, the log has 1" in caplog.text
