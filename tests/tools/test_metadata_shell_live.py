"""kafka-metadata-shell on a running quorum, and the older part of its log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from quorate.admin.client import AdminClient
from quorate.admin.metadata_log import Fetched, MetadataObserver
from quorate.admin.quorum_log import QuorumLog
from quorate.admin.sync import AdminClient as BlockingAdminClient
from quorate.admin.types import NewTopic
from quorate.metadata.framing import encode_record
from quorate.metadata.image.image import EMPTY_WITHOUT_INDEXES
from quorate.metadata.records import NoOpRecord, RegisterBrokerRecord, RegisterControllerRecord
from quorate.records.batch import build_metadata_batch, iter_batches
from quorate.testing import KafkaCluster
from quorate.tools.operations.registrations import registrations_since
from quorate.tools.shell.follower import Follower
from quorate.tools.shell.nodes import Control, Directory, root
from quorate.tools.shell.source import Replay
from tests.support.cluster import wait_for
from tests.tools.shell import Shell, sh

__all__ = ["sh"]  # a fixture


def topics(follower: Follower) -> set[str]:
    node = root(*follower.metadata).child("image")
    for name in ("topics", "byName"):
        assert isinstance(node, Directory)
        node = node.child(name)
    assert isinstance(node, Directory)
    return set(node.names())


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as found:
        yield found


def test_one_command_shows_the_committed_metadata(sh: Shell) -> None:
    sh("topics", "--create", "--topic", "shown-live", "--partitions", 2)
    done = sh.plain(
        "metadata_shell",
        "--controllers",
        sh.controllers,
        "ls",
        "/image/topics/byName/shown-live",
        "/raft/voters",
    )
    assert done.status == 0, done
    assert done.out.split() == ["shown-live:", "0", "1", "id", "name", "voters:", "1"]


def test_changes_are_followed_also_after_the_controller_was_away(cluster: KafkaCluster) -> None:
    follower = Follower(lambda: AdminClient(bootstrap_controllers=cluster.bootstrap_controllers))
    try:
        assert follower.notice() is None
        with BlockingAdminClient(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("before")])
            wait_for("the first topic", lambda: topics(follower) == {"before"})
            cluster.kill(1)
            wait_for("the notice", lambda: follower.notice() is not None)
            assert "the quorum is away, this is the metadata up to offset" in str(follower.notice())
            assert topics(follower) == {"before"}
            cluster.start(1)
            admin.create_topics([NewTopic("after")])
        wait_for("the second topic", lambda: topics(follower) == {"before", "after"})
        assert follower.notice() is None
    finally:
        follower.close()


def test_older_batches_of_the_log_can_be_read_again(cluster: KafkaCluster) -> None:
    async def read() -> tuple[int, list[tuple[int, int]]]:
        replay = Replay(EMPTY_WITHOUT_INDEXES, Control(), 0)
        log = QuorumLog(replay)
        async with AdminClient(bootstrap_controllers=cluster.bootstrap_controllers) as admin:
            observer = MetadataObserver(admin)
            while not log.caught_up:
                await log.fetch(observer, 0)
            found = []
            for offset in range(log.log_start_offset + 1, replay.end_offset):
                batches = await observer.fetch(offset, None, max_bytes=1)
                header, _ = next(iter_batches(batches.records))
                found.append((header.base_offset, header.last_offset))
            return log.log_start_offset, found

    start, batches = asyncio.run(read())
    assert len(batches) > 5
    assert all(base <= start + n <= last for n, (base, last) in enumerate(batches, 1))


class OlderLog:
    """A log from offset 10 to 20.

    Two records at a time were appended every 100 ms, from 1000 ms on. The one at each odd offset
    registers a broker or controller, whose incarnation id has the offset in each byte.
    """

    start, end = 10, 20

    def __init__(self) -> None:
        self.batches = {}
        for base in range(10, 20, 2):
            incarnation = bytes([base + 1]) * 16
            broker = RegisterBrokerRecord(broker_id=base, incarnation_id=incarnation)
            registration = (
                broker
                if base % 4
                else RegisterControllerRecord(controller_id=base, incarnation_id=incarnation)
            )
            values = [encode_record(NoOpRecord(), 0), encode_record(registration, 0)]
            time_ms = 1000 + (base - 10) * 50
            self.batches[base] = build_metadata_batch(
                values, base_offset=base, leader_epoch=1, timestamp=time_ms
            )

    async def fetch(self, offset: int, epoch: int | None, *, max_bytes: int) -> Fetched:
        assert epoch is None
        assert self.start < offset < self.end
        found = [batch for base, batch in self.batches.items() if base + 1 >= offset]
        return Fetched(found[0] if max_bytes == 1 else b"".join(found[:2]), self.end, self.start)


@pytest.mark.parametrize(
    ("since_ms", "offsets"),
    [(0, [11, 13, 15, 17, 19]), (1000, [11, 13, 15, 17, 19]), (1201, [17, 19]), (1400, [19]), (1401, [])],
)
def test_registrations_since_a_time_are_found_in_the_older_log(since_ms: int, offsets: list[int]) -> None:
    log = OlderLog()
    found = asyncio.run(registrations_since(log, log.start, log.end, since_ms))  # type: ignore[arg-type]
    assert found == {bytes([offset]) * 16: 1000 + (offset - 11) * 50 for offset in offsets}
