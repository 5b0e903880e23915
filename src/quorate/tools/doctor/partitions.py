"""Checks the directories of partitions in a log directory."""

from __future__ import annotations

import contextlib
import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.broker.log_assignment import assigned_directory, is_stray
from quorate.dataclass import dataclass
from quorate.log.checkpoints import (
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    RECOVERY_POINTS,
    TopicPartition,
    read_epochs,
    read_offsets,
)
from quorate.log.errors import CheckpointError
from quorate.log.partition.listing import DirectoryListing, list_directory
from quorate.log.partition.local_log import parse_directory_name
from quorate.log.partition.partition_metadata import FILE_NAME, is_torn, read_topic_id
from quorate.log.segment.recovery import find_whole_batch, scan_batches
from quorate.metadata.image.partitions import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.protocol.uuids import uuid_text
from quorate.records.batch import BATCH_OVERHEAD, BatchHeader, parse_header
from quorate.records.errors import CorruptRecordError
from quorate.tools.doctor.findings import Finding, RemoveFile, Severity

if TYPE_CHECKING:
    from quorate.metadata.image import MetadataImage

_DELETED = re.compile(r"(.+)-(\d+)\.[0-9a-f]{32}-delete")
_KEPT = re.compile(r"(.+)-(\d+)\.[0-9a-f]{32}-(stray|future)")
_LEFTOVERS = (".deleted", ".cleaned", ".swap", ".tmp")
_REMOVABLE = (".deleted", ".tmp")
"""The leftovers that the next start deletes whatever is beside them."""

_KAFKA_RESETS = {
    RECOVERY_POINTS: "warns that it resets the recovery checkpoint to 0, and starts",
    LOG_STARTS: "warns that it resets to the base offset of the first segment, and starts",
}


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the metadata says about the replicas of a node."""

    image: MetadataImage
    node_id: int
    directory_id: bytes | None


@dataclass(frozen=True, slots=True)
class LogDirState:
    """How a log directory was left: whether it has the marker of a clean shutdown, whether a node uses it
    now, and its offset checkpoints."""

    clean: bool
    in_use: bool
    offsets: Mapping[str, Mapping[TopicPartition, int]]


def read_offset_checkpoints(
    directory: Path,
) -> tuple[dict[str, dict[TopicPartition, int]], list[Finding]]:
    """The three offset checkpoints of a log directory. A malformed one counts as empty. Raises OSError."""
    offsets: dict[str, dict[TopicPartition, int]] = {}
    findings = []
    for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS):
        try:
            offsets[name] = read_offsets(str(directory / name))
        except CheckpointError as error:
            offsets[name] = {}
            findings.append(
                Finding(
                    Severity.WARNING,
                    "malformed-checkpoint",
                    directory / name,
                    f"{error}. The node ignores the file and writes it again",
                    "nothing has to be done; if records were deleted, the first ones of a segment may come "
                    "back"
                    if name == LOG_STARTS
                    else "nothing has to be done",
                    kafka=_KAFKA_RESETS.get(name, ""),
                )
            )
    return offsets, findings


def check_partitions(
    directory: Path, state: LogDirState, assignment: Assignment | None, *, deep: bool
) -> Iterator[Finding]:
    """Checks every directory in a log directory. With `deep`, also the checksums of all batches. Raises
    OSError."""
    for path in sorted(directory.iterdir()):
        if not path.is_dir() or path.name == METADATA_DIRECTORY:
            continue
        if _DELETED.fullmatch(path.name):
            yield Finding(
                Severity.NOTE,
                "deleted-partition",
                path,
                f"{path} is a deleted partition, which the next start removes",
                fix=None if state.in_use else RemoveFile(path, directory),
            )
        elif found := _KEPT.fullmatch(path.name):
            what = "a stray partition, which no node reads or removes"
            if found[3] == "future":
                what = "a copy of a partition that was being moved between log directories"
            yield Finding(
                Severity.NOTE,
                f"{found[3]}-partition",
                path,
                f"{path} is {what}",
                "remove it when nobody needs its records" if found[3] == "stray" else "",
            )
        else:
            try:
                key = parse_directory_name(path.name)
            except ValueError:
                yield _unknown_directory(path)
                continue
            try:
                yield from _check_partition(path, key, state, assignment, deep=deep)
            except OSError as error:
                yield Finding(
                    Severity.ERROR,
                    "unreadable-partition",
                    path,
                    f"{error.filename or path}: {error.strerror}",
                    "correct the permissions; if the disk fails, replace it",
                )


def _unknown_directory(path: Path) -> Finding:
    return Finding(
        Severity.WARNING,
        "unknown-directory",
        path,
        f"{path} is no directory of a partition, whose name would be <topic>-<partition>",
        "move it out of the log directory. If it is the lost+found of a file system, use a directory below "
        "the mount point",
        kafka=f"does not start as a broker: org.apache.kafka.common.KafkaException: Found directory {path}, "
        f"'{path.name}' is not in the form of topic-partition or topic-partition.uniqueId-delete (if marked "
        "for deletion).",
    )


def _check_partition(
    path: Path,
    key: TopicPartition,
    state: LogDirState,
    assignment: Assignment | None,
    *,
    deep: bool,
) -> Iterator[Finding]:
    listing = list_directory(str(path))
    if not listing.logs and FILE_NAME not in listing.names:
        yield Finding(
            Severity.WARNING,
            "not-a-log",
            path,
            f"{path} has neither {FILE_NAME} nor a segment. The node leaves it alone",
            "move it out of the log directory",
        )
        return
    topic_id: bytes | None = None
    try:
        topic_id = read_topic_id(str(path / FILE_NAME))
    except CheckpointError as error:
        yield _topic_id_finding(path, error, torn=not state.clean and is_torn(str(path / FILE_NAME)))
    try:
        read_epochs(str(path / LEADER_EPOCHS))
    except CheckpointError as error:
        yield Finding(
            Severity.WARNING,
            "malformed-checkpoint",
            path / LEADER_EPOCHS,
            f"{error}. The node reads the leader epochs from the batches",
            "nothing has to be done",
        )
    if not state.in_use:
        yield from leftover_findings(path, listing)
    yield from _segment_findings(path, key, listing, state, deep=deep)
    if assignment is not None:
        yield from _assignment_findings(path, key, topic_id, assignment)


def _topic_id_finding(path: Path, error: CheckpointError, *, torn: bool) -> Finding:
    if torn:
        return Finding(
            Severity.NOTE,
            "torn-topic-id",
            path / FILE_NAME,
            f"{error}. It is torn after an unclean stop, and the next start writes it again",
        )
    return Finding(
        Severity.ERROR,
        "malformed-topic-id",
        path / FILE_NAME,
        f"{error}. The log directory goes offline at the next start",
        "write the topic's id (kafka-topics --describe) into the file, or, if another replica is in sync, "
        f"move {path} away",
        kafka="takes the log directory offline: org.apache.kafka.common.errors.KafkaStorageException: "
        f"Error while reading partition metadata file {path / FILE_NAME}",
    )


def leftover_findings(path: Path, listing: DirectoryListing) -> Iterator[Finding]:
    """The files that an interrupted deletion, compaction or write has left in the directory of a log."""
    for suffix in _LEFTOVERS:
        names = sorted(name for name in listing.names if name.endswith(suffix))
        for name in names:
            yield Finding(
                Severity.NOTE,
                "leftover",
                path / name,
                f"{path / name} is left of an interrupted "
                + (
                    "compaction"
                    if suffix in (".cleaned", ".swap")
                    else "deletion"
                    if suffix == ".deleted"
                    else "write"
                )
                + ", which the next start completes",
                fix=RemoveFile(path / name, path.parent) if suffix in _REMOVABLE else None,
            )
    orphans = sorted(name for name in listing.indexes if int(name[:20]) not in listing.sizes)
    for name in orphans:
        yield Finding(
            Severity.NOTE,
            "orphaned-index",
            path / name,
            f"{path / name} has no segment; the next start removes it",
            kafka="also removes it",
            fix=RemoveFile(path / name, path.parent),
        )


# --- segments -------------------------------------------------------------------------------------


def _segment_findings(
    path: Path, key: TopicPartition, listing: DirectoryListing, state: LogDirState, *, deep: bool
) -> Iterator[Finding]:
    end = listing.logs[0] if listing.logs else 0
    for number, base in enumerate(listing.logs):
        segment = path / f"{base:020d}.log"
        last = number == len(listing.logs) - 1
        if base < end:
            yield Finding(
                Severity.ERROR,
                "overlapping-segments",
                segment,
                f"{segment} begins at offset {base}, but the segment before it ends at {end}",
                f"restore {path} from a backup, or move it away if another replica is in sync",
            )
        end = max(end, base)
        if not (deep or last):
            continue
        with segment.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            position = 0
            try:
                headers = scan_batches(file.fileno(), base, size) if deep else _headers(file.fileno(), size)
                for header in headers:
                    position += header.size_bytes
                    end = header.next_offset
                reason = "the last batch is incomplete" if position < size else ""
            except CorruptRecordError as error:
                reason = str(error)
            if reason and not (state.in_use and last):
                behind = None if not last else find_whole_batch(file.fileno(), position, size, end - 1)
                yield _damage(
                    segment, position, size, end, reason, torn=last and behind is None and not state.clean
                )
    yield from _offset_findings(path, key, listing.logs, end, state)


def _headers(fd: int, size: int) -> Iterator[BatchHeader]:
    """Yields the headers of all batches of a file. Raises CorruptRecordError, OSError."""
    position, last = 0, -1
    while size - position >= BATCH_OVERHEAD:
        header = parse_header(os.pread(fd, BATCH_OVERHEAD, position))
        if header.base_offset <= last or header.last_offset_delta < 0:
            raise CorruptRecordError(f"Offset {header.base_offset} after {last}")
        if position + header.size_bytes > size:
            return
        yield header
        position += header.size_bytes
        last = header.last_offset


def _damage(segment: Path, position: int, size: int, end: int, reason: str, *, torn: bool) -> Finding:
    cut = f"truncates the segment to offset {end}: Corruption found in segment {int(segment.stem)}, "
    cut += f"truncating to offset {end}"
    if torn:
        return Finding(
            Severity.NOTE,
            "torn-segment",
            segment,
            f"the last {size - position} bytes of {segment} are an incomplete write of an unclean stop; the "
            f"next start removes them, so that the log ends at offset {end}",
            kafka=cut,
        )
    return Finding(
        Severity.ERROR,
        "damaged-segment",
        segment,
        f"{segment} is damaged at byte {position} of {size}, after offset {end - 1}: {reason}. Recovery "
        "after an unclean stop truncates it there; until then its records are sent as they are, and "
        "clients reject them",
        f"if another replica is in sync, move {segment.parent} away while the node is stopped, and it is "
        "fetched again",
        kafka=f"after an unclean stop it {cut}",
    )


def _offset_findings(
    path: Path, key: TopicPartition, bases: list[int], end: int, state: LogDirState
) -> Iterator[Finding]:
    committed = state.offsets[HIGH_WATERMARKS].get(key, 0)
    if committed > end and not state.in_use:
        yield Finding(
            Severity.ERROR,
            "lost-records",
            path,
            f"{path} ends at offset {end}, but everything below {committed} was committed "
            f"({HIGH_WATERMARKS}): {committed - end} record(s) are lost",
            "if another replica is in sync, this one fetches them again after its start; otherwise restore "
            "a backup",
            kafka="starts without a word",
        )
    flushed = state.offsets[RECOVERY_POINTS].get(key, 0)
    if state.clean and 0 < flushed < end and not _is_gap(path, bases, flushed):
        yield Finding(
            Severity.ERROR,
            "beyond-clean-end",
            path,
            f"{path} was closed at offset {flushed} ({RECOVERY_POINTS}), but its last batch claims to end "
            f"before {end}",
            "restore the last segment from a replica or a backup",
            kafka="starts without a word",
        )


def _is_gap(path: Path, bases: list[int], offset: int) -> bool:
    """Whether a batch or a segment ends at `offset`, and the records after it begin later. The checkpoint has
    the start of a gap that is still known. Raises OSError."""
    following = bisect_right(bases, offset)
    if not following:
        return False
    segment = path / f"{bases[following - 1]:020d}.log"
    end = bases[following - 1]
    with segment.open("rb") as file, contextlib.suppress(CorruptRecordError):
        for header in _headers(file.fileno(), os.fstat(file.fileno()).st_size):
            if header.base_offset >= offset:
                return end == offset < header.base_offset
            end = header.next_offset
    return end == offset and following < len(bases)


# --- the metadata ---------------------------------------------------------------------------------


def _assignment_findings(
    path: Path, key: TopicPartition, topic_id: bytes | None, assignment: Assignment
) -> Iterator[Finding]:
    topic, partition = key
    image, node_id = assignment.image, assignment.node_id
    known = image.topics.by_name.get(topic)
    if is_stray(image, node_id, topic, partition, topic_id):
        reason = f"there is no topic {topic}"
        code = "stray-partition"
        if known is not None and topic_id is not None and known.id != topic_id:
            code = "topic-id-mismatch"
            reason = (
                f"its topic id is {uuid_text(topic_id)}, but that of {topic} is {uuid_text(known.id)}: the "
                "topic was deleted and created again"
            )
        elif known is not None:
            reason = f"node {node_id} has no replica of {topic}-{partition}"
        yield Finding(
            Severity.WARNING,
            code,
            path,
            f"{path} is not assigned to this node by the metadata on its disk: {reason}. The next start "
            "renames it to -stray",
            "move it away if its records are needed; the metadata on the disk may also be older than the "
            "cluster's",
            kafka="also renames it to -stray",
        )
        return
    if topic_id is None or assignment.directory_id is None:
        return
    assigned = assigned_directory(image, node_id, topic_id, partition)
    if assigned not in (assignment.directory_id, UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        yield Finding(
            Severity.NOTE,
            "other-directory",
            path,
            f"{path} is in directory {uuid_text(assignment.directory_id)}, but the metadata has it in "
            f"{uuid_text(assigned)}. The node corrects the metadata when it starts",
        )
