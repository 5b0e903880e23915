"""A node logs the failure of a snapshot and continues, because the log still has all records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import pytest

from quorate.log.errors import LogDirFailure
from quorate.metadata.image import EMPTY
from quorate.metadata.image.image import Provenance
from quorate.metadata.snapshot_generator import SnapshotGenerator


class Store:
    """A store whose first snapshot fails."""

    kraft_version_finalised = 1

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.snapshots: list[int] = []

    async def create_snapshot(
        self, end_offset: int, epoch: int, last_timestamp_ms: int, batches: Iterable[bytes]
    ) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.snapshots.append(end_offset)


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), LogDirFailure("/d", "Error while reading from log")]
)
def test_a_failed_snapshot_is_logged_and_attempted_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        unhandled: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unhandled.append(context))
        store = Store(error)
        emitter = SnapshotGenerator(store, 1, max_bytes=10, interval_s=0, now_ms=lambda: 1)
        with caplog.at_level(logging.ERROR):
            for offset in (0, 1):
                image = EMPTY.with_provenance(Provenance(offset, 1, 1))
                emitter.committed(image, offset, 100, 1.0)
                await emitter.settled()
                await asyncio.sleep(0)
        assert [r.getMessage() for r in caplog.records] == [
            f"[SnapshotGenerator id=1] Snapshot at offset 1 failed: {error}"
        ]
        assert store.snapshots == [2] and not unhandled

    asyncio.run(body())
