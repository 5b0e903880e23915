"""A node logs the failure of a snapshot and continues, because the log still has all records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace

import pytest
from immutables import Map

from quorate.log.errors import LogDirFailure
from quorate.metadata.features import supported_features
from quorate.metadata.image import EMPTY
from quorate.metadata.image.image import Provenance
from quorate.metadata.image.small_images import FeaturesImage
from quorate.metadata.metrics import loader_families
from quorate.metadata.snapshot_generator import SnapshotGenerator


class Store:
    """A store whose first snapshot fails."""

    kraft_version_finalised = 1

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.snapshots: list[int] = []
        self.sizes: list[int] = []

    async def create_snapshot(
        self, end_offset: int, epoch: int, last_timestamp_ms: int, batches: Iterable[bytes]
    ) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.sizes.append(sum(map(len, batches)))
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


def test_the_snapshots_that_a_node_writes_and_loads_are_measured() -> None:
    now = [1_000]
    levels = supported_features()["metadata.version"]
    image = replace(EMPTY, features=FeaturesImage(Map({"metadata.version": levels[1]})))

    async def body() -> None:
        store = Store(OSError("the first one fails"))
        emitter = SnapshotGenerator(store, 1, max_bytes=10, interval_s=0, now_ms=lambda: now[0])

        def found() -> dict[str, float]:
            families = loader_families(EMPTY, None, emitter, now[0])
            return {f.name: f.series[0][1] for f in families if f.series and f.name.startswith(NAMES)}  # type: ignore[misc]

        def expected(size: int, age_ms: int, loaded: int) -> dict[str, float]:
            return dict(zip(NAMES, (size, age_ms, loaded), strict=True))

        assert found() == expected(0, 0, 0)
        for offset in (0, 1):
            now[0] += 500
            emitter.committed(image.with_provenance(Provenance(offset, 1, 1)), offset, 100, 1.0)
            await emitter.settled()
        [size] = store.sizes
        assert size > 0
        now[0] += 70
        assert found() == expected(size, 70, 0)
        emitter.loaded(5)
        assert found() == expected(size, 70, 1)

    asyncio.run(body())


NAMES = (
    "kafka_server_snapshotemitter_latestsnapshotgeneratedbytes",
    "kafka_server_snapshotemitter_latestsnapshotgeneratedagems",
    "kafka_server_metadataloader_handleloadsnapshotcount",
)


def test_the_levels_of_features_are_those_that_this_release_supports() -> None:
    emitter = SnapshotGenerator(Store(OSError()), 1, max_bytes=10, interval_s=0, now_ms=lambda: 1)
    found = {family.name: dict(family.series) for family in loader_families(EMPTY, 3, emitter, 1)}
    low, high = supported_features()["metadata.version"]
    where = 'feature_name="metadata-version"'
    assert found["kafka_server_node_metrics_minimum_supported_level"][where] == low
    assert found["kafka_server_node_metrics_maximum_supported_level"][where] == high
    assert found["kafka_server_metadataloader_currentcontrollerid"] == {"": 3}
    assert found["kafka_server_metadataloader_finalizedlevel"] == {}, "before the first record"
