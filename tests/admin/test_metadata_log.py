"""The parts of a snapshot of the metadata log, and where an observer can read a log without one."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from quorate.admin.errors import ErrorCode, KafkaError
from quorate.admin.metadata_log import Fetched, MetadataObserver, SnapshotId, first_readable_offset
from quorate.admin.quorum_log import AnotherLogError, QuorumLog, SnapshotOfLeader

SNAPSHOT = SnapshotId(30, 2)
CONTENT = bytes(range(25))


class Observer(MetadataObserver):
    """An observer of a leader that sends ten bytes at a time, and fails once at a position."""

    def __init__(self, fails_at: int | None = None, answer: Fetched | None = None) -> None:
        super().__init__(cast(Any, None))
        self.leader_epoch = 7
        self.positions: list[int] = []
        self._fails_at = fails_at
        self._answer = answer

    async def fetch_snapshot(self, snapshot: SnapshotId, position: int) -> tuple[int, bytes]:
        assert snapshot == SNAPSHOT
        self.positions.append(position)
        if position == self._fails_at:
            self._fails_at = None
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return len(CONTENT), CONTENT[position : position + 10]

    async def fetch(self, offset: int, epoch: int | None, **_: Any) -> Fetched:
        assert self._answer is not None
        return self._answer


async def again(request: Callable[[], Awaitable[tuple[int, bytes]]]) -> tuple[int, bytes]:
    try:
        return await request()
    except KafkaError:
        return await request()


def test_a_snapshot_is_downloaded_in_parts() -> None:
    observer, file = Observer(), io.BytesIO()
    assert asyncio.run(observer.download(SNAPSHOT, file)) == len(CONTENT)
    assert (file.getvalue(), observer.positions) == (CONTENT, [0, 10, 20])


def test_a_download_goes_on_with_the_part_that_failed() -> None:
    observer, file = Observer(fails_at=10), io.BytesIO()
    assert asyncio.run(observer.download(SNAPSHOT, file, again)) == len(CONTENT)
    assert (file.getvalue(), observer.positions) == (CONTENT, [0, 10, 10, 20])
    with pytest.raises(KafkaError):
        asyncio.run(Observer(fails_at=20).download(SNAPSHOT, io.BytesIO()))


@pytest.mark.parametrize(
    ("offset", "log_start", "needless"), [(0, 0, True), (0, 5, False), (5, 5, False), (3, 0, False)]
)
def test_only_a_log_from_offset_0_on_needs_no_snapshot(offset: int, log_start: int, needless: bool) -> None:
    assert Fetched(b"", 40, log_start, SNAPSHOT).needs_no_snapshot(offset) is needless


def test_the_log_of_a_leader_is_readable_after_its_start() -> None:
    assert first_readable_offset(0) == 1
    assert SnapshotOfLeader(*SNAPSHOT, log_start_offset=12, leader_epoch=7).first_readable_offset == 13


class Sink:
    """Keeps the snapshots that it gets."""

    def __init__(self) -> None:
        self.end_offset, self.last_epoch = 0, 0
        self.loaded: list[tuple[bytes, SnapshotOfLeader]] = []

    def take(self, data: bytes, name: str, *, end: int | None = None) -> None:
        raise AssertionError("there are no batches")

    def load(self, data: memoryview, found: SnapshotOfLeader) -> None:
        self.loaded.append((bytes(data), found))


def test_a_sink_gets_the_snapshot_and_what_the_leader_has() -> None:
    sink = Sink()
    log = QuorumLog(sink)
    assert asyncio.run(log.fetch(Observer(answer=Fetched(b"", 40, 12, SNAPSHOT)), 0))
    assert sink.loaded == [(CONTENT, SnapshotOfLeader(30, 2, 12, 7))]
    assert (log.snapshot_end_offset, log.caught_up) == (30, False)


def test_a_log_without_the_records_that_were_read_is_another_one() -> None:
    answer = Fetched(b"", 40, 0, diverging_end_offset=3)
    with pytest.raises(AnotherLogError, match="another than before"):
        asyncio.run(QuorumLog(Sink()).fetch(Observer(answer=answer), 0))
