"""The metadata log on disk: `__cluster_metadata-0` with its segments and snapshots, in Kafka's format.

When the log is opened, the rules of Kafka's `KafkaRaftLog` and `Snapshots` apply:

- Unfinished and deleted snapshots are removed, and those below the log start. The newest incomplete
  download stays, since it may continue.
- A log that does not begin at offset 0 needs a snapshot at or above its start.
- If the log does not contain what the newest snapshot contains, the log restarts after it.

Cleaning moves the log start to the next snapshot, and removes the segments and snapshots before it
(KIP-630).
"""

from __future__ import annotations

import logging
import os
import time
from bisect import insort
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.log.config import LogConfig
from quorate.log.files import OpenFile, OpenFiles
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.partition.partition_metadata import FILE_NAME, write_topic_id
from quorate.protocol.file_region import FileRegion
from quorate.protocol.metadata_partition import METADATA_TOPIC_ID
from quorate.raft.core.control_records import KRAFT_VOTERS, apply_control_record, voter_set
from quorate.raft.core.events import ControlRecord
from quorate.raft.core.voters import Membership, VoterSet
from quorate.raft.storage.lazy_batch_values import values_of
from quorate.raft.storage.log_batches import committed_batch, control_values
from quorate.raft.storage.snapshots.files import (
    DELETED,
    SnapshotHead,
    SnapshotWriter,
    footer_batch,
    header_batch,
    parse_name,
    place,
    read_batches,
    read_head,
    snapshot_name,
    verify_file,
)
from quorate.raft.storage.snapshots.partial import remove_useless_parts
from quorate.raft.storage.snapshots.verification import SnapshotError, prefix_digest
from quorate.raft.types import MAX_BATCH_BYTES, CommittedBatch, OffsetEpoch, RaftError
from quorate.records.batch import (
    build_control_batch,
    iter_batches,
    metadata_values,
    verify_crc,
)
from quorate.records.errors import CorruptRecordError, InvalidRecordError

if TYPE_CHECKING:
    from quorate.raft.config import RaftConfig

logger = logging.getLogger(__name__)

SCAN_BYTES = 4 << 20
NO_SNAPSHOT = OffsetEpoch(0, 0)


class MetadataLog:
    """Log and snapshots of the metadata partition. Only `flush` is thread-safe. Raises OSError."""

    def __init__(self, directory: Path, config: RaftConfig, partition: PartitionLog) -> None:
        self._directory = directory
        self._config = config
        self._log = partition
        self._snapshots: list[OffsetEpoch] = []
        self._deleted: list[tuple[float, Path]] = []  # renamed to .deleted, and removed after a delay

    @classmethod
    def open(
        cls, directory: Path, config: RaftConfig, *, files: OpenFiles | None, now_ms: int
    ) -> MetadataLog:
        """Opens the log, and truncates an incomplete last batch after a crash. Raises OSError, RaftError."""
        log_config = LogConfig(
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            retention_bytes=-1,
            retention_ms=-1,
            max_message_bytes=MAX_BATCH_BYTES,
            file_delete_delay_ms=int(config.file_delete_delay_s * 1000),
            is_metadata_log=True,
        )
        partition = PartitionLog.open(
            directory,
            log_config,
            files=files if files is not None else OpenFiles(),
            topic_id=METADATA_TOPIC_ID,
            recovery_point=0,
            log_start_offset=0,
            clean_shutdown=False,
            now_ms=now_ms,
        )
        if not (directory / FILE_NAME).exists():
            write_topic_id(str(directory / FILE_NAME), METADATA_TOPIC_ID)
        self = cls(directory, config, partition)
        self._recover_snapshots()
        return self

    def _recover_snapshots(self) -> None:
        unwanted: list[Path] = []
        for entry in os.scandir(self._directory):
            named = parse_name(entry.name)
            if named is None:
                continue
            snapshot, kind = named
            if kind == "download":
                continue
            if kind != "snapshot" or snapshot.offset < self.start_offset:
                unwanted.append(Path(entry.path))
            else:
                self._snapshots.append(snapshot)
        self._snapshots.sort()
        if self.start_offset > 0 and (not self._snapshots or self._snapshots[-1].offset < self.start_offset):
            raise RaftError(
                f"{self._directory}: the log begins at offset {self.start_offset}, but there is no snapshot "
                "at or after it"
            )
        for path in unwanted:
            path.unlink(missing_ok=True)
        remove_useless_parts(self._directory, self.end_offset)
        latest = self.latest_snapshot()
        if latest is not None and not self._may_contain(latest):
            verify_file(self._path(latest))  # before its records are removed from the log
            logger.info(
                "[MetadataLog] %s: restarting the log behind snapshot %s", self._directory, tuple(latest)
            )
            self._restart(latest)
        earliest = self.earliest_snapshot()
        if earliest is not None and 0 < self.start_offset < earliest.offset <= self.end_offset:
            self._log.high_watermark = earliest.offset  # its first segment may begin earlier
            self._log.increment_log_start_offset(earliest.offset, "snapshot")

    def _may_contain(self, snapshot: OffsetEpoch) -> bool:
        """Whether the log reaches the end of a snapshot, with no record before it of a later epoch.

        A snapshot is committed, so any other log is uncommitted or old. Kafka keeps the log if its last epoch
        is the later one. The leader then names the snapshot that is already here, until it has a newer one.
        """
        if snapshot.epoch > (self._log.latest_epoch or 0) or snapshot.offset > self.end_offset:
            return False
        before = self._log.epochs.epoch_for(snapshot.offset - 1)
        return before is None or before <= snapshot.epoch

    def _restart(self, snapshot: OffsetEpoch) -> None:
        self._log.truncate_fully_and_start_at(snapshot.offset)
        older = [s for s in self._snapshots if s < snapshot]
        self._snapshots = [s for s in self._snapshots if s >= snapshot]
        self._delete_later(older)

    # --- the core's view (`LogView`) --------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot if the log after it is empty."""
        epoch = self._log.latest_epoch
        if epoch is not None:
            return epoch
        latest = self.latest_snapshot()
        if latest is None:
            return 0
        if latest.offset != self.end_offset or latest.offset != self.start_offset:
            raise RaftError(
                f"the log has no epoch, and snapshot {tuple(latest)} does not end where it begins"
            )
        return latest.epoch

    def end_offset_for_epoch(self, epoch: int) -> OffsetEpoch:
        """The greatest epoch not above `epoch`, and its end offset."""
        found, end = self._log.end_offset_for_epoch(epoch)
        if end < 0:
            return OffsetEpoch(self.end_offset, self.last_epoch)
        earliest = self.earliest_snapshot()
        if earliest is not None and end == earliest.offset and found == epoch:
            return earliest
        return OffsetEpoch(end, found)

    def latest_snapshot(self) -> OffsetEpoch | None:
        return self._snapshots[-1] if self._snapshots else None

    def earliest_snapshot(self) -> OffsetEpoch | None:
        return self._snapshots[0] if self._snapshots else None

    def snapshot_size(self, snapshot: OffsetEpoch) -> int | None:
        if snapshot not in self._snapshots:
            return None
        try:
            return self._path(snapshot).stat().st_size
        except FileNotFoundError:
            logger.warning("[MetadataLog] snapshot %s has gone from %s", tuple(snapshot), self._directory)
            self._snapshots.remove(snapshot)
            return None

    # --- writing ----------------------------------------------------------------------------------

    def append(self, batches: bytes | memoryview, now_ms: int) -> None:
        """Appends batches that continue the log and have their final offsets and epochs.

        Refuses to append if another process has written to the log: a combined node of Apache Kafka
        locks its directory only after its Raft has begun to write. Raises CorruptRecordError,
        LogDirFailure.
        """
        self._log.fail_on_foreign_bytes()
        self._log.append_as_follower(batches, now_ms, contiguous=True)

    def flush(self) -> None:
        """Makes all that was appended durable.

        The epoch checkpoint is written later, so that a new leader's first record does not wait for it.
        It is not needed for safety, since the whole log is read when it is opened.
        """
        self._log.flush(epochs=False)

    def truncate_to(self, offset: int) -> None:
        """Removes the batches from the one that holds `offset` on.

        If no record remains, the epoch checkpoint is emptied first: beside an empty log it would show that
        records are lost (`recovery.missing_log_reason`).
        """
        if offset <= self.start_offset:
            self._log.epochs.truncate_from_end(offset)
            self._log.flusher.checkpoint_epochs()
        self._log.truncate_to(offset)

    def control_batch(
        self, records: list[tuple[int, Any]], epoch: int, now_ms: int
    ) -> tuple[CommittedBatch, list[ControlRecord], bytes]:
        """Builds a batch for the end of the log, without appending it."""
        base = self.end_offset
        data = build_control_batch(
            [(kind, value.encode(0)) for kind, value in records],
            base_offset=base,
            leader_epoch=epoch,
            timestamp=now_ms,
        )
        controls = [ControlRecord(base + i, kind, value) for i, (kind, value) in enumerate(records)]
        return CommittedBatch(base, base + len(records) - 1, epoch, now_ms, [], len(data)), controls, data

    def parse_fetched(
        self, records: bytes | memoryview, values: bool
    ) -> tuple[list[CommittedBatch], list[ControlRecord]]:
        """The complete batches of a Fetch response that continue the log, and their control records.

        The batches have their values only with `values`. An incomplete last batch is left out. Checksums
        are verified by `append`. Raises CorruptRecordError, InvalidRecordError.
        """
        batches: list[CommittedBatch] = []
        controls: list[ControlRecord] = []
        expected, epoch = self.end_offset, self.last_epoch
        for header, data in iter_batches(records):
            if header.base_offset != expected:
                raise InvalidRecordError(
                    f"batch at offset {header.base_offset} where {expected} was expected"
                )
            if header.leader_epoch < epoch:
                raise InvalidRecordError(
                    f"epoch falls from {epoch} to {header.leader_epoch} at offset {expected}"
                )
            batch = committed_batch(header, metadata_values(data) if values and not header.is_control else [])
            if header.is_control:
                controls += control_values(header.base_offset, data)
            batches.append(batch)
            expected, epoch = header.next_offset, header.leader_epoch
        return batches, controls

    # --- reading ----------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int) -> Any:
        """Regions of the log's files from `offset` on: at least one batch, committed or not."""
        return self._log.read(offset, max_bytes, upper_offset=None, min_one=True).parts

    def read_snapshot(self, snapshot: OffsetEpoch, position: int, length: int) -> list[FileRegion]:
        file = OpenFile(os.open(self._path(snapshot), os.O_RDONLY | os.O_CLOEXEC))
        return [FileRegion(file, position, length)]

    def snapshot_prefix_digest(self, snapshot: OffsetEpoch, end: int) -> bytes:
        """See `verification.prefix_digest`. May run in a thread."""
        file = OpenFile(os.open(self._path(snapshot), os.O_RDONLY | os.O_CLOEXEC))
        return prefix_digest(file.fileno(), end)

    def read_committed(self, offset: int, end: int, max_bytes: int) -> list[CommittedBatch]:
        """The batches from `offset` on and below `end`: at least one, if there is any."""
        data = self._log.read_bytes(offset, max_bytes, upper_offset=end, min_one=True)
        out: list[CommittedBatch] = []
        for header, batch in iter_batches(data):
            if header.last_offset >= end:
                break
            if header.base_offset >= offset:
                if not verify_crc(batch):
                    raise CorruptRecordError(f"wrong checksum in the batch at offset {header.base_offset}")
                out.append(committed_batch(header, [] if header.is_control else values_of(header, batch)))
        return out

    def load_membership(self, members: Membership) -> SnapshotHead | None:
        """Loads voter sets and kraft.version from the latest snapshot and the log after it."""
        started, head, offset = time.perf_counter(), None, self.start_offset
        latest = self.latest_snapshot()
        if latest is not None:
            head = read_head(self._path(latest))
            members.reset(latest.offset - 1, head.voters, head.kraft_version)
            offset = latest.offset
        for control in self._controls(offset, self.end_offset):
            apply_control_record(members, control)
        took = (time.perf_counter() - started) * 1000
        logger.info("[MetadataLog] voters %s, kraft.version %d, read in %.1f ms",
                 [str(v.key) for v in members.current], members.kraft_version, took)  # fmt: skip
        return head

    def earlier_voter_sets(self) -> Iterator[tuple[int, VoterSet]]:
        """Yields the voter sets from before the latest snapshot that log and older snapshots still hold.

        Each has its offset, in no order. The voter set of a snapshot has the snapshot's last offset.
        """
        for snapshot in self._snapshots[:-1]:
            try:
                voters = read_head(self._path(snapshot)).voters
            except (SnapshotError, CorruptRecordError, InvalidRecordError) as e:
                # An older snapshot is not needed for anything else.
                logger.warning("[MetadataLog] snapshot %s, which is not the newest: %s", tuple(snapshot), e)
                continue
            if voters is not None:
                yield snapshot.offset - 1, voters
        latest = self.latest_snapshot()
        if latest is not None:
            for control in self._controls(self.start_offset, min(latest.offset, self.end_offset)):
                if control.type == KRAFT_VOTERS:
                    yield control.offset, voter_set(control.value)  # type: ignore[arg-type]

    def _controls(self, offset: int, end: int) -> Iterator[ControlRecord]:
        """Yields the control records from the batch at `offset` on and below `end`."""
        while offset < end:
            data = self._log.read_bytes(offset, SCAN_BYTES, upper_offset=None, min_one=True)
            before = offset
            for header, batch in iter_batches(data):
                if header.is_control and offset <= header.base_offset < end:
                    yield from control_values(header.base_offset, batch)
                offset = max(offset, header.next_offset)
            if offset == before:
                raise RaftError(
                    f"{self._directory}: no batch at offset {offset}, the log ends at {self.end_offset}"
                )

    # --- snapshots --------------------------------------------------------------------------------

    def _path(self, snapshot: OffsetEpoch) -> Path:
        return self._directory / snapshot_name(snapshot)

    def snapshot_writer(self, snapshot: OffsetEpoch) -> SnapshotWriter:
        return SnapshotWriter(self._directory, snapshot)

    def snapshot_batches(self, snapshot: OffsetEpoch) -> Iterator[CommittedBatch]:
        """The data batches of a snapshot. Reading them may raise SnapshotError."""
        return read_batches(self._path(snapshot), snapshot.epoch)

    def may_snapshot(self, snapshot: OffsetEpoch, hwm: int) -> bool:
        """Whether there is no equal or newer snapshot.

        Raises ValueError if the end of the snapshot is not at the boundary of a committed batch.
        """
        latest = self.latest_snapshot()
        if snapshot.offset < self.start_offset or (latest is not None and snapshot <= latest):
            return False
        if snapshot.offset > hwm:
            raise ValueError(f"snapshot {tuple(snapshot)} is above the high watermark {hwm}")
        at = self.end_offset_for_epoch(snapshot.epoch)
        if at.epoch != snapshot.epoch or at.offset < snapshot.offset:
            raise ValueError(f"snapshot {tuple(snapshot)}: the log has epoch {at.epoch} up to {at.offset}")
        if snapshot.offset < self.end_offset:
            data = self._log.read_bytes(snapshot.offset, 1, upper_offset=None, min_one=True)
            first = next(iter_batches(data))[0]
            if first.base_offset != snapshot.offset:
                raise ValueError(
                    f"snapshot {tuple(snapshot)} ends inside the batch at offset {first.base_offset}"
                )
        return True

    def snapshot_parts(
        self,
        snapshot: OffsetEpoch,
        last_timestamp_ms: int,
        now_ms: int,
        kraft: int,
        voters: VoterSet,
        batches: Iterable[bytes],
    ) -> Iterator[bytes | bytearray]:
        """Yields the header, the data batches with consecutive offsets, and the footer."""
        yield header_batch(snapshot, last_timestamp_ms, now_ms, kraft, voters)
        offset = 3 if kraft >= 1 else 1
        for batch in batches:
            placed, offset = place(batch, offset, snapshot.epoch)
            yield placed
        yield footer_batch(snapshot, offset, now_ms)

    def add_snapshot(self, snapshot: OffsetEpoch) -> bool:
        """Adds a snapshot that has been frozen, and returns whether it is kept. Raises OSError.

        While it was being written, a newer snapshot of the leader may have replaced the log. A snapshot
        before the log start is useless. It would remain the oldest one and stop all cleaning.
        """
        if snapshot.offset < self.start_offset:
            self._path(snapshot).unlink(missing_ok=True)
            return False
        self._note_snapshot(snapshot)
        return True

    def _note_snapshot(self, snapshot: OffsetEpoch) -> None:
        if snapshot not in self._snapshots:
            insort(self._snapshots, snapshot)

    def install(self, snapshot: OffsetEpoch) -> SnapshotHead:
        """Replaces the log by a downloaded snapshot. Raises SnapshotError if that cannot be read."""
        try:
            head = read_head(self._path(snapshot))
        except (SnapshotError, CorruptRecordError, InvalidRecordError) as e:
            self._path(snapshot).unlink(missing_ok=True)
            raise SnapshotError(f"the downloaded snapshot {tuple(snapshot)} is broken: {e}") from e
        self._note_snapshot(snapshot)
        self._restart(snapshot)
        return head

    def clean(self, now_ms: int, hwm: int) -> bool:
        """Applies retention by size and age. Returns whether anything was removed.

        The newest snapshot always stays.
        """
        self._remove_deleted()
        self._log.flusher.checkpoint_epochs()
        self._log.high_watermark = hwm
        changed = False
        sizes = {s: self._path(s).stat().st_size for s in self._snapshots if self._path(s).exists()}
        while len(self._snapshots) >= 2:
            total = self._log.size_bytes + sum(sizes.get(s, 0) for s in self._snapshots)
            oversize = 0 <= self._config.retention_bytes < total
            if not oversize and not self._expired(self._snapshots[0], now_ms):
                break
            keep = self._snapshots[1]
            if keep.offset <= self.start_offset or keep.offset > self._log.high_watermark:
                break  # after a start, the high watermark is unknown until a leader reports it
            self._log.increment_log_start_offset(keep.offset, "snapshot")
            self._log.delete_old_segments(now_ms)
            gone, self._snapshots = self._snapshots[:1], self._snapshots[1:]
            logger.info("[MetadataLog] log start %d; dropping snapshot %s (%s)", keep.offset, tuple(gone[0]),
                     "size" if oversize else "age")  # fmt: skip
            self._delete_later(gone)
            changed = True
        return changed

    def _expired(self, snapshot: OffsetEpoch, now_ms: int) -> bool:
        if self._config.retention_ms < 0:
            return False
        try:
            return now_ms - read_head(self._path(snapshot)).last_timestamp_ms > self._config.retention_ms
        except FileNotFoundError:
            return True
        except (SnapshotError, CorruptRecordError, InvalidRecordError) as e:
            # It is not the newest, so it is not needed.
            logger.warning("[MetadataLog] snapshot %s cannot be read any more: %s", tuple(snapshot), e)
            return True

    def _delete_later(self, snapshots: list[OffsetEpoch]) -> None:
        for snapshot in snapshots:
            path = self._path(snapshot)
            renamed = path.with_name(path.name.removesuffix(".checkpoint") + DELETED)
            try:
                path.rename(renamed)
            except FileNotFoundError:
                continue
            self._deleted.append((time.monotonic() + self._config.file_delete_delay_s, renamed))

    def _remove_deleted(self) -> None:
        now = time.monotonic()
        for _, path in [d for d in self._deleted if d[0] <= now]:
            path.unlink(missing_ok=True)
        self._deleted = [d for d in self._deleted if d[0] > now]

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    def close(self) -> None:
        self._log.flush()
        self._log.close(clean=True)
