"""The metrics of a node's metadata: the features, and the snapshots that it loads and writes
(`MetadataLoaderMetrics`, `SnapshotEmitterMetrics` and `NodeMetrics` in Kafka)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from quorate.metadata.features import supported_features
from quorate.metrics import Family, gauge, labels

if TYPE_CHECKING:
    from quorate.metadata.image import MetadataImage
    from quorate.metadata.snapshot_generator import SnapshotGenerator


def loader_families(
    image: MetadataImage, leader_id: int | None, snapshots: SnapshotGenerator, now_ms: int
) -> Iterator[Family]:
    """The metrics of the role that loads and writes the snapshots of a node: its controller, or else its
    broker."""
    loader, emitter, node = "server.MetadataLoader", "server.SnapshotEmitter", "server.node-metrics"
    yield gauge(
        f"{loader}.CurrentControllerId",
        "The id of the active controller, or -1.",
        -1 if leader_id is None else leader_id,
    )
    yield gauge(f"{loader}.CurrentMetadataVersion", "The metadata.version.", image.features.metadata_version)
    yield gauge(
        f"{loader}.FinalizedLevel",
        "The level of each finalized feature.",
        [(labels(featureName=name), level) for name, level in sorted(image.features.finalized.items())],
    )
    yield gauge(
        f"{loader}.HandleLoadSnapshotCount",
        "Metadata snapshots that were loaded since the start.",
        snapshots.loaded_count,
    )
    yield gauge(
        f"{emitter}.LatestSnapshotGeneratedBytes",
        "Bytes of the last snapshot that this node has written, 0 before the first.",
        snapshots.latest_bytes,
    )
    yield gauge(
        f"{emitter}.LatestSnapshotGeneratedAgeMs",
        "Time since that snapshot was written, in ms, or since the start.",
        max(0, now_ms - snapshots.latest_ms),
    )
    levels = [
        (labels(feature_name=name.replace(".", "-")), low, high)
        for name, (low, high) in sorted(supported_features().items())
    ]
    yield gauge(
        f"{node}.minimum-supported-level",
        "The lowest level of each feature that this node supports (KIP-1180).",
        [(where, low) for where, low, _ in levels],
    )
    yield gauge(
        f"{node}.maximum-supported-level",
        "The highest level of each feature that this node supports (KIP-1180).",
        [(where, high) for where, _, high in levels],
    )
