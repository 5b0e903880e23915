"""A voter whose log is missing does not start as the same voter. Replicas that may start without a log do
start."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.log.checkpoints import LEADER_EPOCHS
from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest
from quorate.raft.core import transitions
from quorate.raft.core.control_records import LEADER_CHANGE
from quorate.raft.storage.metadata_log import MetadataLog
from quorate.raft.storage.quorum_state import encode_quorum_state
from quorate.raft.storage.snapshots.files import snapshot_name
from quorate.raft.storage.voter_marker import FILE_NAME, Marked, VoterMarker
from quorate.raft.types import QuorumState, RaftError
from quorate.records.control import LeaderChangeMessage
from tests.raft.nodes import (
    CLUSTER,
    Network,
    Node,
    context,
    dynamic,
    format_dynamic,
    leader_of,
    metadata,
    sole,
    stopped_with_a_snapshot,
)
from tests.raft.test_remedies import ANEW, STATE, lived, refusal
from tests.raft.world import LISTENER, address, directory

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
    assert said.startswith(
        f"{metadata(tmp_path) / LEADER_EPOCHS} names records of epoch 1 from offset 0 on, "
    )
    assert LOST.format(metadata(tmp_path)) in said
    assert ANEW.format(tmp_path) in said
    assert "an only voter is restored from a backup" in said
    assert sorted(p.name for p in metadata(tmp_path).iterdir()) == before
    assert refusal(tmp_path) == said  # the next start as well


def test_the_quorum_state_alone_shows_that_the_log_is_missing(tmp_path: Path) -> None:
    lived(tmp_path)
    lose(tmp_path, LEADER_EPOCHS)
    assert refusal(tmp_path).startswith(f"{metadata(tmp_path) / STATE} is in epoch 1, ")


@pytest.mark.parametrize("kraft", [0, 1])
def test_an_only_voter_whose_log_has_lost_its_content_is_refused(tmp_path: Path, kraft: int) -> None:
    """It would be elected with an empty log and begin anew: its brokers would delete every topic."""

    async def life() -> None:
        node = await sole(tmp_path, kraft)
        await node.commit(b"a")
        await node.stop()

    asyncio.run(life())
    for segment in metadata(tmp_path).glob("*.log"):
        segment.write_bytes(b"")
    before = (metadata(tmp_path) / LEADER_EPOCHS).read_bytes()
    with pytest.raises(
        RaftError, match=f"{LEADER_EPOCHS} names records of epoch 1 from offset 0 on, but all"
    ):
        asyncio.run(sole(tmp_path, kraft))
    assert (metadata(tmp_path) / LEADER_EPOCHS).read_bytes() == before  # the next start is refused as well


def test_a_voter_starts_that_ended_after_the_truncation_of_its_only_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It led epoch 1 without a follower. The leader of a later epoch makes it begin again at offset 0."""
    ended = tmp_path / "ended"
    truncate_to = MetadataLog.truncate_to

    def truncate_and_copy(log: MetadataLog, offset: int) -> None:
        truncate_to(log, offset)
        shutil.copytree(tmp_path / "1", ended)

    monkeypatch.setattr(MetadataLog, "truncate_to", truncate_and_copy)

    async def main() -> None:
        network, voters = Network(), {i: address(i) for i in (1, 2, 3)}
        nodes = [Node(network, tmp_path / str(i), i, voters=voters) for i in (1, 2, 3)]
        for node in nodes[:2]:
            await node.start()
            if node is nodes[0]:
                log = node.client.driver.log
                log.append(log.control_batch([(LEADER_CHANGE, LeaderChangeMessage())], 1, 1)[2], 1)
            await node.stop()
            (metadata(node.path) / STATE).write_bytes(encode_quorum_state(QuorumState(1, 1), 0, [1, 2, 3]))
        for node in nodes[1:]:
            await node.start()
        leader = await leader_of(nodes[1:])
        await leader.commit(b"a")
        await nodes[0].start()
        await nodes[0].machine.until(lambda: nodes[0].machine.values == [b"a"])
        for node in nodes:
            await node.stop()

    asyncio.run(main())
    assert {path.stat().st_size for path in metadata(ended).glob("*.log")} == {0}
    assert starts(ended, voters={i: address(i) for i in (1, 2, 3)}) == []


def test_an_empty_segment_beside_a_snapshot_is_no_missing_log(tmp_path: Path) -> None:
    async def main() -> None:
        await stopped_with_a_snapshot(tmp_path)

    asyncio.run(main())
    for segment in metadata(tmp_path).glob("*.log"):
        segment.write_bytes(b"")
    starts(tmp_path)


def test_a_damaged_epoch_checkpoint_does_not_hide_a_missing_log(tmp_path: Path) -> None:
    lived(tmp_path)
    lose(tmp_path, STATE)
    (tmp_path / FILE_NAME).unlink()
    (metadata(tmp_path) / LEADER_EPOCHS).write_bytes(b"0\nx\n")
    said = refusal(tmp_path)
    assert str(metadata(tmp_path) / LEADER_EPOCHS) in said
    assert LOST.format(metadata(tmp_path)) in said


def test_a_damaged_quorum_state_does_not_hide_a_missing_log(tmp_path: Path) -> None:
    """Otherwise the error would advise an only voter to remove the file, and it would then start with an
    empty log."""
    lived(tmp_path)
    lose(tmp_path, LEADER_EPOCHS)
    (metadata(tmp_path) / STATE).write_bytes(b"{")
    assert LOST.format(metadata(tmp_path)) in refusal(tmp_path)
    (metadata(tmp_path) / STATE).unlink()
    assert LOST.format(metadata(tmp_path)) in refusal(tmp_path)


@pytest.mark.parametrize(
    "more", [(), ("leader-epoch-checkpoint",), ("leader-epoch-checkpoint", "*.index", "*.timeindex")]
)
def test_a_static_voter_without_its_log_is_refused(tmp_path: Path, more: tuple[str, ...]) -> None:
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


def test_a_broker_fetches_everything_again(tmp_path: Path) -> None:
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


def no_epochs(path: Path) -> None:
    metadata(path).mkdir(exist_ok=True)
    (metadata(path) / LEADER_EPOCHS).write_bytes(b"0\n0\n")


@pytest.mark.parametrize("left", [nothing, state_of_epoch_0, no_epochs])
@pytest.mark.parametrize("kraft", [0, 1])
def test_a_replica_that_never_had_a_log_starts(
    tmp_path: Path, kraft: int, left: Callable[[Path], None]
) -> None:
    if kraft:
        format_dynamic(tmp_path, dynamic(1, 2, 3))
    left(tmp_path)
    for _ in range(3):  # also again, while no leader has been elected and nothing was written
        starts(tmp_path, voters=None if kraft else {i: address(i) for i in (1, 2, 3)})


def test_a_replica_that_has_voted_before_its_first_record_starts(tmp_path: Path) -> None:
    async def main() -> None:
        node = await Node(Network(), tmp_path, 1, voters={1: address(1), 2: address(2)}).start()
        node.client.core.state.voted = node.client.core.state.me
        node.client.core.state.epoch = 3
        transitions.persist(node.client.core.state)
        node.client.driver._state_writer.save(node.client.core.state.effects.save_quorum_state, False)  # type: ignore[arg-type]
        await node.kill()

    asyncio.run(main())
    assert b'"leaderEpoch":3' in (metadata(tmp_path) / STATE).read_bytes()
    assert starts(tmp_path, voters={1: address(1), 2: address(2)}) == []


def test_a_missing_quorum_state_beside_records_is_only_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lived(tmp_path)
    (metadata(tmp_path) / STATE).unlink()
    starts(tmp_path)
    assert "quorum-state has epoch 0, the log has 1" in caplog.text


# --- the whole directory of the log is gone -------------------------------------------------------


def marker(path: Path, node_id: int = 1, cluster: str = CLUSTER) -> VoterMarker:
    return VoterMarker(path, cluster, directory(node_id))


def test_a_voter_whose_log_directory_is_gone_is_refused(tmp_path: Path) -> None:
    lived(tmp_path)
    shutil.rmtree(metadata(tmp_path))
    said = refusal(tmp_path)
    assert said.startswith(
        f"{tmp_path / FILE_NAME} says that this directory is a voter's, {LOST.format(metadata(tmp_path))}"
    )
    assert ANEW.format(tmp_path) in said
    assert "an only voter is restored from a backup" in said
    assert not metadata(tmp_path).exists()
    assert refusal(tmp_path) == said


def test_a_log_directory_that_is_empty_or_only_formatted_is_not_a_log(tmp_path: Path) -> None:
    lived(tmp_path)
    for path in metadata(tmp_path).iterdir():
        if path.name != f"{0:020d}-{0:010d}.checkpoint":
            path.unlink()
    assert LOST.format(metadata(tmp_path)) in refusal(tmp_path)
    shutil.rmtree(metadata(tmp_path))
    metadata(tmp_path).mkdir()
    assert LOST.format(metadata(tmp_path)) in refusal(tmp_path)


def test_a_static_voter_whose_log_directory_is_gone_is_refused(tmp_path: Path) -> None:
    asyncio.run(_static(tmp_path))
    shutil.rmtree(metadata(tmp_path))
    said = refusal(tmp_path, voters=3, static=True)
    assert LOST.format(metadata(tmp_path)) in said
    assert "The other voters (2, 3) have everything that this one had" in said
    assert "remove-controller" not in said


def test_the_marker_is_updated_when_static_voters_become_dynamic(tmp_path: Path) -> None:
    async def upgraded() -> None:
        node = await sole(tmp_path, kraft=0)
        assert marker(tmp_path).read() == Marked(0)
        await node.client.upgrade_kraft_version(node.client.epoch, 1)
        await node.stop()

    asyncio.run(upgraded())
    assert marker(tmp_path).read() == Marked(1)
    shutil.rmtree(metadata(tmp_path))
    assert ANEW.format(tmp_path) in refusal(tmp_path, voters=3, static=True)


def test_a_voter_of_another_implementation_is_marked_by_its_first_start(tmp_path: Path) -> None:
    lived(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    starts(tmp_path)
    assert marker(tmp_path).read() == Marked(1)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"version":0}', b"\xff", b"[" * 4000])
def test_a_marker_that_cannot_be_read_counts(tmp_path: Path, text: bytes) -> None:
    lived(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(text)
    starts(tmp_path)
    assert marker(tmp_path).read() == Marked(1)
    (tmp_path / FILE_NAME).write_bytes(text)
    shutil.rmtree(metadata(tmp_path))
    assert refusal(tmp_path).startswith(str(tmp_path / FILE_NAME))


def test_a_marker_of_another_directory_or_cluster_does_not_count(tmp_path: Path) -> None:
    for number, other in enumerate((marker(tmp_path, 2), marker(tmp_path, 1, "another"))):
        other.write(1)
        assert starts(tmp_path, voters={i: address(i) for i in (1, 2, 3)}) == []
        assert marker(tmp_path).read() == Marked(0), number
        shutil.rmtree(metadata(tmp_path))
        (tmp_path / FILE_NAME).unlink()


def test_an_observing_controller_is_marked_only_when_it_becomes_a_voter(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        format_dynamic(tmp_path / "1", dynamic(1))
        (tmp_path / "2").mkdir()
        first = await (await Node(network, tmp_path / "1", 1).start()).lead()
        for _ in range(2):  # the second time from nothing: what only observes may fetch everything anew
            second = await Node(network, tmp_path / "2", 2).start()
            end = await first.commit(b"a")
            await second.machine.until(lambda: second.machine.hwm > end)  # noqa: B023
            assert not (tmp_path / "2" / FILE_NAME).exists()
            await second.kill()
            shutil.rmtree(metadata(tmp_path / "2"))
        second = await Node(network, tmp_path / "2", 2).start()
        request = AddRaftVoterRequest(
            cluster_id=None, timeout_ms=10_000, voter_id=2, voter_directory_id=directory(2)
        )
        request.listeners = [
            AddRaftVoterRequest.Listener(name=LISTENER, host=address(2)[0], port=address(2)[1])
        ]
        answer = await first.client.handle(context(80, 0), request)  # type: ignore[misc]
        assert answer.error_code == 0
        assert marker(tmp_path / "2", 2).read() == Marked(
            1
        )  # its acknowledgement has committed that it is one
        await second.kill()
        shutil.rmtree(metadata(tmp_path / "2"))
        again = Node(network, tmp_path / "2", 2)
        with pytest.raises(RaftError, match="the metadata log is lost"):
            await again.start()
        await first.kill()

    asyncio.run(main())


def test_a_broker_is_never_marked_and_fetches_everything_again(tmp_path: Path) -> None:
    starts(tmp_path, is_controller=False)
    assert not (tmp_path / FILE_NAME).exists()
    shutil.rmtree(metadata(tmp_path))
    lived(tmp_path)  # as a controller, before its roles were changed
    assert (tmp_path / FILE_NAME).exists()
    shutil.rmtree(metadata(tmp_path))
    assert starts(tmp_path, is_controller=False) == []
