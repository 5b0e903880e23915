"""Compares the disks of a quorum: there must be one committed history, the same on every replica, and it
must contain every change that was answered.

The files are not read by the code that wrote them. Every checksum is verified, and every snapshot is read
completely.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from quorate.metadata.framing import decode_record
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.image import Provenance
from quorate.metadata.loader import apply_committed
from quorate.metadata.records import RemoveTopicRecord, TopicRecord
from quorate.metadata.snapshot import SnapshotId, image_from_snapshot, parse_name, snapshot_name
from quorate.records.batch import iter_batches, metadata_values, verify_crc
from tests.e2e.campaign_load import CONFIGURED, FIRST_CONFIG, Ledger

KEPT_IMAGES = 20_000  # of the newest batches: a snapshot is compared with the image at its end


class Entry(NamedTuple):
    """A batch as it must be on every replica."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int


@dataclass(slots=True)
class Batch:
    """A batch in the form that `apply_committed` needs."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    values: list[bytes]


def segments(directory: Path) -> list[tuple[int, Path]]:
    return sorted((int(p.stem), p) for p in directory.glob("*.log"))


def read_log(directory: Path, begin: int, end: int) -> dict[int, tuple[Entry, Batch]]:
    """Returns the batches in [begin, end) by base offset. The node may run meanwhile: it may delete segments
    at the start, and append or truncate at the end. No offset may be missing in between."""
    while True:
        found: dict[int, tuple[Entry, Batch]] = {}
        expected = -1
        try:
            files = segments(directory)
            ends = [base for base, _ in files[1:]] + [end]
            for (base, path), next_base in zip(files, ends, strict=False):
                if next_base <= begin or base >= end:
                    continue
                expected = base if expected < 0 else expected
                for header, data in iter_batches(path.read_bytes()):
                    if header.base_offset >= end:
                        break
                    where = f"{path} at offset {header.base_offset}"
                    assert header.base_offset == expected, f"{where}: {expected} was expected"
                    assert verify_crc(data), f"{where}: wrong checksum"
                    expected = header.next_offset
                    if header.base_offset >= begin:
                        values = [] if header.is_control else [bytes(v) for v in metadata_values(data)]
                        found[header.base_offset] = (
                            Entry(header.base_offset, header.last_offset, header.leader_epoch, header.crc),
                            Batch(
                                header.base_offset,
                                header.last_offset,
                                header.leader_epoch,
                                header.max_timestamp,
                                values,
                            ),
                        )
        except FileNotFoundError:  # cleaned meanwhile
            continue
        return found


@dataclass
class Audit:
    """Follows the committed history of one quorum over any number of rounds."""

    directories: dict[int, Path]  # replica -> its __cluster_metadata-0
    end: int = 0  # audited up to here, exclusive
    image: MetadataImage = EMPTY
    made: dict[str, int] = field(default_factory=dict)  # topic name -> how often it was created
    removed: set[str] = field(default_factory=set)
    snapshots: int = 0  # compared
    batches: int = 0
    _names: dict[bytes, str] = field(default_factory=dict)
    _images: deque[tuple[int, MetadataImage]] = field(default_factory=lambda: deque(maxlen=KEPT_IMAGES))
    _compared: set[tuple[int, SnapshotId]] = field(default_factory=set)

    def advance(self, end: int) -> None:
        """Compares the disks up to `end`, below which everything is committed and on every replica's disk."""
        logs = {i: read_log(d, self.end, end) for i, d in self.directories.items()}
        at = self.end
        while at < end:
            held = {i: log[at] for i, log in logs.items() if at in log}
            assert held, (
                f"no replica has a batch at offset {at}: "
                f"{ ({i: sorted(log)[:3] for i, log in logs.items()}) }"
            )
            assert len({entry for entry, _ in held.values()}) == 1, f"replicas differ at offset {at}: {held}"
            entry, batch = next(iter(held.values()))
            for i in self.directories.keys() - held.keys():
                assert self._covered(i, at), f"replica {i} lacks offset {at}"
            self._replay(batch)
            at = entry.last_offset + 1
        self.end = at
        self._compare_snapshots()

    def _covered(self, replica: int, offset: int) -> bool:
        """Whether a snapshot of this replica contains the offset, and its log continues at or before the end
        of this snapshot."""
        ids = [
            s for p in self.directories[replica].glob("*.checkpoint") if (s := parse_name(p.name)) is not None
        ]
        files = segments(self.directories[replica])
        return (
            any(s.offset > offset for s in ids)
            and bool(files)
            and offset < files[0][0] <= max(s.offset for s in ids)
        )

    def _replay(self, batch: Batch) -> None:
        for value in batch.values:
            record, _ = decode_record(value)
            if isinstance(record, TopicRecord):
                self._names[record.topic_id] = record.name
                self.made[record.name] = self.made.get(record.name, 0) + 1
                assert self.made[record.name] == 1, (
                    f"topic {record.name} is created twice, again at {batch.base_offset}"
                )
            elif isinstance(record, RemoveTopicRecord):
                self.removed.add(self._names[record.topic_id])
        self.image = apply_committed(self.image, [batch])
        self._images.append((batch.last_offset + 1, self.image))
        self.batches += 1

    def _compare_snapshots(self) -> None:
        images: dict[int, MetadataImage] | None = None
        for replica, directory in self.directories.items():
            for path in directory.glob("*.checkpoint"):
                snapshot = parse_name(path.name)
                if snapshot is None or snapshot.offset == 0 or snapshot.offset > self.end:
                    continue
                if (replica, snapshot) in self._compared:
                    continue
                images = dict(self._images) if images is None else images
                try:
                    image = image_from_snapshot(path.read_bytes(), snapshot, name=str(path))
                except FileNotFoundError:
                    continue
                same = image.with_provenance(Provenance()) == images[snapshot.offset].with_provenance(
                    Provenance()
                )
                assert same, f"{path} is not the state at its offset"
                self._compared.add((replica, snapshot))
                self.snapshots += 1

    def check(self, ledger: Ledger) -> None:
        """Checks that every change that was answered was made, and that no other change was made."""
        topics = self.image.topics.by_name
        answered = ledger.created.keys() | ledger.exists
        lost = [n for n in answered - ledger.delete_attempted if n not in topics]
        assert not lost, f"{len(lost)} answered creations are lost: {sorted(lost)[:5]}"
        never = [n for n in answered if n not in self.made]
        assert not never, f"{len(never)} answered creations are not in the log: {sorted(never)[:5]}"
        back = [n for n in ledger.deleted if n in topics]
        assert not back, f"{len(back)} answered deletions are undone: {sorted(back)[:5]}"
        gone = self.removed - ledger.delete_attempted
        assert not gone, f"removed though nobody asked: {sorted(gone)[:5]}"
        unasked = [n for n in topics if n not in ledger.attempted and n != CONFIGURED]
        assert not unasked, f"topics that nobody asked for: {sorted(unasked)[:5]}"
        if ledger.config:
            value = int(self.image.configs.topic(CONFIGURED)["retention.ms"]) - FIRST_CONFIG
            assert ledger.config <= value <= ledger.config_attempted, (
                f"config {value}, answered {ledger.config}"
            )

    def check_replicas(self) -> None:
        """Checks that each replica's newest snapshot and the log after it give the same image."""
        for replica, directory in self.directories.items():
            same = own_image(directory, self.end).with_provenance(Provenance()) == self.image.with_provenance(
                Provenance()
            )
            assert same, f"replica {replica} has another image"


def own_image(directory: Path, end: int) -> MetadataImage:
    """The image below `end` from the files of one replica."""
    while True:
        ids = [
            s
            for p in directory.glob("*.checkpoint")
            if (s := parse_name(p.name)) is not None and 0 < s.offset <= end
        ]
        image, begin = EMPTY, 0
        if ids:
            newest = max(ids)
            try:
                image = image_from_snapshot((directory / snapshot_name(*newest)).read_bytes(), newest)
            except FileNotFoundError:  # cleaned meanwhile
                continue
            begin = newest.offset
        log = read_log(directory, begin, end)
        assert begin == end or begin in log, (
            f"{directory}: nothing at offset {begin}, where its snapshot ends"
        )
        return apply_committed(image, [batch for _, (_, batch) in sorted(log.items())])
