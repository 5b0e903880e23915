"""The metadata log as it lies on a controller's disk, whoever wrote it: its batches, and the image at
an offset."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.loader import apply_committed
from quorate.metadata.snapshot import SnapshotId, image_from_snapshot, parse_name
from quorate.records.batch import BatchHeader, iter_batches, metadata_values, verify_crc

FOLDER = "__cluster_metadata-0"
TOPIC = 2


@dataclass(slots=True)
class DiskBatch:
    """One batch of the log, as the loader of images takes it."""

    header: BatchHeader
    data: bytes

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return self.header.last_offset

    @property
    def epoch(self) -> int:
        return self.header.leader_epoch

    @property
    def timestamp_ms(self) -> int:
        return self.header.base_timestamp

    @property
    def values(self) -> Sequence[memoryview]:
        return [] if self.header.is_control else metadata_values(self.data)


@dataclass(slots=True)
class Disk:
    """What was on a disk at one moment: the log's batches in order, and its snapshots by id."""

    batches: list[DiskBatch]
    snapshots: dict[SnapshotId, bytes]

    @property
    def start(self) -> int:
        """The first offset of the log, -1 where it is empty."""
        return self.batches[0].base_offset if self.batches else -1

    @property
    def end(self) -> int:
        """The last offset that is there, inclusive; -1 where there is none."""
        ends = [snapshot.offset - 1 for snapshot in self.snapshots]
        return max([*ends, self.batches[-1].last_offset if self.batches else -1])

    def image_at(self, last_offset: int) -> MetadataImage:
        """The image after `last_offset`. AssertionError where the log has a hole between its snapshot
        and there."""
        usable = [i for i in self.snapshots if i.offset - 1 <= last_offset]
        newest = max(usable) if usable else SnapshotId(0, 0)
        image = image_from_snapshot(self.snapshots[newest], newest) if usable else EMPTY
        rest = [b for b in self.batches if newest.offset <= b.last_offset <= last_offset]
        assert newest.offset > last_offset or (rest and rest[0].base_offset <= newest.offset), (
            f"the log starts at {self.start}, behind snapshot {newest}"
        )
        return apply_committed(image, rest)


def read_disk(data: Path) -> Disk:
    """Reads a metadata directory that may be in use: files that are cleaned away meanwhile make it
    start again.

    AssertionError for a batch whose checksum does not fit or a hole in the log.
    """
    for _ in range(50):
        try:
            return read_folder(data / FOLDER)
        except FileNotFoundError:
            time.sleep(0.1)  # a segment was deleted between the listing and the reading
    raise AssertionError(f"{data / FOLDER} changes faster than it can be read")


def read_folder(folder: Path) -> Disk:
    """Reads the folder of any partition.

    AssertionError as `read_disk`; FileNotFoundError if a file is deleted meanwhile.
    """
    batches: list[DiskBatch] = []
    paths = sorted(folder.glob("*.log"))
    for path in paths:
        for header, data in iter_batches(path.read_bytes()):
            assert verify_crc(data), f"{path.name}: the checksum at offset {header.base_offset} does not fit"
            expected = batches[-1].last_offset + 1 if batches else header.base_offset
            assert header.base_offset == expected, (
                f"{path.name}: offset {header.base_offset} where {expected} is due"
            )
            batches.append(DiskBatch(header, bytes(data)))
    snapshots = {}
    for path in folder.glob("*.checkpoint"):
        found = parse_name(path.name)
        if found is not None:
            snapshots[found] = path.read_bytes()
    return Disk(batches, snapshots)


def differences(disks: dict[int, Disk], end: int, known: dict[int, int] | None = None) -> list[str]:
    """Where two disks have other bytes at the same offset, up to `end`.

    known: a checksum of all bytes of each batch, by base offset; of earlier looks, and grows by this one.
    """
    seen = {} if known is None else known
    found = []
    for node_id, disk in disks.items():
        for batch in disk.batches:
            if batch.last_offset > end:
                break
            sum_ = zlib.crc32(batch.data)
            if seen.setdefault(batch.base_offset, sum_) != sum_:
                found.append(
                    f"offset {batch.base_offset} of controller {node_id} differs from what another disk had "
                    "there"
                )
    return found


def same_metadata(images: Iterable[MetadataImage]) -> list[str]:
    """What differs between images of the same offset, by part. Two things that Apache Kafka's snapshots
    do otherwise are left aside: they drop our tagged start time of a registration, and they keep the
    configurations of a topic that came and went between two images of their writer (its
    ConfigurationsDelta looks for the topic in the older image only)."""
    first, *others = [
        {
            "features": i.features,
            "topics": i.topics,
            "configs": {key: dict(value) for key, value in i.configs.resources.items() if key not in left},
            "client quotas": i.client_quotas,
            "producer ids": i.producer_ids,
            "brokers": {
                k: (b.epoch, b.incarnation_id, b.listeners, b.fenced, b.log_dirs)
                for k, b in i.cluster.brokers.items()
            },
            "controllers": {k: (c.incarnation_id, c.listeners) for k, c in i.cluster.controllers.items()},
        }
        for i, left in ((i, configs_of_no_topic(i)) for i in images)
    ]
    return [f"{part} differ" for other in others for part in first if other[part] != first[part]]


def configs_of_no_topic(image: MetadataImage) -> set[tuple[int, str]]:
    """Configured topics that are not there."""
    return {
        (kind, name)
        for kind, name in image.configs.resources
        if kind == TOPIC and name not in image.topics.by_name
    }
