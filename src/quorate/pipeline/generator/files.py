"""The files of a generated metadata log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from quorate.log.config import LogConfig
from quorate.log.directories import meta_properties
from quorate.log.files import OpenFiles
from quorate.log.partition.partition_log import PartitionLog
from quorate.metadata.image import MetadataImage
from quorate.metadata.image.writer import image_values
from quorate.metadata.snapshot import MAX_BATCH_RECORDS, data_base_offset, frame_batches, snapshot_name
from quorate.protocol.metadata_partition import METADATA_DIRECTORY, METADATA_TOPIC_ID
from quorate.records.batch import build_control_batch, build_metadata_batch
from quorate.records.control import ControlRecordType, LeaderChangeMessage
from quorate.records.varint import Buffer

NODE: Final = 1
"""The node whose directory is written. It is the only voter, so that all records are known to be
committed."""


class LogFiles:
    """The metadata log in a node's directory."""

    def __init__(
        self, folder: Path, cluster_id: str, directory_id: bytes, now_ms: int, segment_bytes: int
    ) -> None:
        """Raises FileExistsError if the directory has a metadata log."""
        self.folder = folder / METADATA_DIRECTORY
        self.folder.mkdir(parents=True)
        meta_properties.write(folder, meta_properties.MetaProperties(cluster_id, NODE, directory_id))
        config = LogConfig(
            segment_bytes=segment_bytes, retention_bytes=-1, retention_ms=-1, is_metadata_log=True
        )
        self._log = PartitionLog.open(
            self.folder,
            config,
            files=OpenFiles(),
            topic_id=METADATA_TOPIC_ID,
            recovery_point=0,
            log_start_offset=0,
            clean_shutdown=True,
            now_ms=now_ms,
        )
        self.epoch = 0

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log_end_offset

    def lead(self, now_ms: int) -> None:
        """Begins a new leader epoch."""
        self.epoch += 1
        self._write_state()
        change = LeaderChangeMessage(
            leader_id=NODE,
            voters=[LeaderChangeMessage.Voter(voter_id=NODE)],
            granting_voters=[LeaderChangeMessage.Voter(voter_id=NODE)],
        )
        batch = build_control_batch(
            [(ControlRecordType.LEADER_CHANGE, change.encode(0))],
            base_offset=self.end_offset,
            leader_epoch=self.epoch,
            timestamp=now_ms,
        )
        self._append(batch, now_ms)

    def _write_state(self) -> None:
        """Writes `quorum-state`, as a node does at an election.

        Who reads the files meanwhile sees a whole one.
        """
        state: dict[str, object] = {
            "leaderId": NODE,
            "leaderEpoch": self.epoch,
            "votedId": -1,
            "appliedOffset": 0,
        }
        state |= {"currentVoters": [{"voterId": NODE}], "data_version": 0}
        path = self.folder / "quorum-state"
        new = path.with_suffix(".tmp")
        new.write_text(json.dumps(state))
        new.replace(path)

    def append(self, values: Sequence[bytes], now_ms: int) -> None:
        """Appends the records as one committed batch."""
        batch = build_metadata_batch(
            list(values), base_offset=self.end_offset, leader_epoch=self.epoch, timestamp=now_ms
        )
        self._append(batch, now_ms)

    def append_batches(self, batches: Buffer, now_ms: int) -> None:
        """Appends whole batches that begin at the end of the log."""
        self._append(batches, now_ms)

    def continue_epoch(self, epoch: int) -> None:
        """Notes the epoch of batches that were appended as they are."""
        self.epoch = epoch
        self._write_state()

    def _append(self, batch: Buffer, now_ms: int) -> None:
        self._log.append_as_follower(batch, now_ms, contiguous=True)
        self._log.high_watermark = self.end_offset

    def snapshot(self, image: MetadataImage, now_ms: int) -> None:
        """Writes a snapshot that ends at the end of the log."""
        batches = frame_batches(
            self._data_batches(image, now_ms),
            epoch=self.epoch,
            last_contained_timestamp_ms=now_ms,
            kraft_version=0,
            voters=None,
            now_ms=now_ms,
        )
        with (self.folder / snapshot_name(self.end_offset, self.epoch)).open("xb") as out:
            out.writelines(batches)

    def _data_batches(self, image: MetadataImage, now_ms: int) -> Iterator[bytes]:
        """The records of the image in an order that is the same in each process, which that of the image is
        not."""
        values = list(image_values(image))
        place = {kind: number for number, kind in enumerate(dict.fromkeys([value[1] for value in values]))}
        values.sort(key=lambda value: (place[value[1]], value))
        for start in range(0, len(values), MAX_BATCH_RECORDS):
            yield build_metadata_batch(
                values[start : start + MAX_BATCH_RECORDS],
                base_offset=data_base_offset(0) + start,
                leader_epoch=self.epoch,
                timestamp=now_ms,
            )

    def delete_before(self, offset: int, now_ms: int) -> None:
        """Deletes the segments and snapshots that end before an offset."""
        self._log.increment_log_start_offset(offset, "snapshot")
        self._log.delete_old_segments(now_ms)
        for path in self.folder.glob("*.checkpoint"):
            if int(path.name[:20]) < offset:
                path.unlink()

    def close(self) -> None:
        """Makes everything durable, and removes the files of deleted segments."""
        self._log.close()
        for path in self.folder.glob("*.deleted"):
            path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
