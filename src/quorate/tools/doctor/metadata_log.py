"""Checks the metadata log of a node: quorum-state, segments, snapshots, voters."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from quorate.dataclass import dataclass
from quorate.log.checkpoints import LEADER_EPOCHS, read_epochs
from quorate.log.directories.meta_properties import MetaProperties
from quorate.log.errors import CheckpointError
from quorate.log.segment.recovery import check_torn_tail, scan_batches
from quorate.metadata.stored_voters import latest_voters
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.protocol.uuids import uuid_text
from quorate.raft.config import RaftConfig
from quorate.raft.core.control_records import voter_set
from quorate.raft.core.voters import Membership, VoterSet
from quorate.raft.storage.quorum_state import (
    QuorumStateError,
    QuorumStateFile,
    QuorumStateSyntaxError,
    QuorumStateVersionError,
)
from quorate.raft.storage.recovery import check_snapshot_epoch, missing_log_reason
from quorate.raft.storage.recovery_advice import remedy
from quorate.raft.storage.snapshots.files import parse_name, read_head, verify_file
from quorate.raft.storage.snapshots.verification import SnapshotError
from quorate.raft.storage.voter_marker import VoterMarker
from quorate.raft.types import NO_DIRECTORY, OffsetEpoch, QuorumState, RaftError, ReplicaKey
from quorate.records.errors import CorruptRecordError
from quorate.tools.doctor.findings import Finding, RemoveFile, Severity

_SEGMENT = re.compile(r"\d{20}\.log")
_FIRST = OffsetEpoch(0, 0)


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """A metadata log that is checked. `config` has what the remedies need; its voters are those of the
    properties. `roles_known` is false if there is no properties file."""

    directory: Path
    config: RaftConfig
    meta: MetaProperties
    in_use: bool
    roles_known: bool


@dataclass(slots=True)
class _LogEnd:
    """The end of the log, as far as it was checked, and the epoch of the last record."""

    offset: int = 0
    epoch: int = -1


def metadata_log_of(
    metadata_dir: Path, meta: MetaProperties, config: RaftConfig | None, *, in_use: bool
) -> MetadataLog:
    """The metadata log in a metadata directory. Without a configuration, the node counts as a controller if
    the log names it among the voters, or if it has voted or led."""
    folder = metadata_dir / METADATA_DIRECTORY
    directory_id = meta.directory_id or NO_DIRECTORY
    if config is None:
        config = RaftConfig(meta.node_id, directory_id, meta.cluster_id, metadata_dir, "CONTROLLER")
        members = _members(folder, config)
        config.is_controller = meta.node_id in members.current.ids or _has_been_voter(folder, meta.node_id)
        return MetadataLog(folder, config, meta, in_use, False)
    return MetadataLog(folder, config, meta, in_use, True)


def _has_been_voter(folder: Path, node_id: int) -> bool:
    try:
        stored = QuorumStateFile(folder / "quorum-state").read()
    except (QuorumStateError, OSError):
        return False
    return stored is not None and (stored.voted is not None or stored.leader_id == node_id)


def _members(folder: Path, config: RaftConfig) -> Membership:
    members = Membership(VoterSet.static(config.voters, config.listener_name) if config.voters else None)
    record = latest_voters([folder]) if folder.is_dir() else None
    if record is not None:
        members.add_kraft_version(0, 1)
        members.add_voters(0, voter_set(record))
    return members


def check_metadata_log(log: MetadataLog, *, deep: bool) -> Iterator[Finding]:
    """Checks a metadata log. With `deep`, also the snapshots before the newest. Raises OSError."""
    members = _members(log.directory, log.config)
    advice = remedy(log.config, log.directory, members, only_state=False)
    missing = _missing_findings(log, advice)
    if missing:
        yield from missing
        return
    if not log.directory.is_dir():
        yield Finding(
            Severity.NOTE,
            "no-metadata-log",
            log.directory,
            f"there is no {log.directory}: the node has not been started since it was formatted",
        )
        return
    end = _LogEnd()
    yield from _snapshot_findings(log, advice, deep=deep)
    yield from _segment_findings(log, advice, end)
    yield from _state_findings(log, remedy(log.config, log.directory, members, only_state=True), end)
    yield from _voter_findings(log, members)
    if not log.in_use:
        yield from _leftovers(log)


# --- quorum-state ---------------------------------------------------------------------------------


def _missing_findings(log: MetadataLog, advice: str) -> list[Finding]:
    """The finding for a controller without its log."""
    if not log.config.is_controller:
        return []
    state_file = QuorumStateFile(log.directory / "quorum-state")
    marker = VoterMarker(log.config.metadata_dir, log.meta.cluster_id, log.meta.directory_id or NO_DIRECTORY)
    reason = missing_log_reason(log.directory, state_file, marker, marker.read())
    return [
        Finding(
            Severity.ERROR,
            "metadata-log-missing",
            log.directory,
            reason,
            advice,
            kafka="starts with an empty log",
        )
        for _ in [reason]
        if reason is not None
    ]


def _state_findings(log: MetadataLog, advice: str, end: _LogEnd) -> Iterator[Finding]:
    path = log.directory / "quorum-state"
    stored: QuorumState | None = None
    try:
        stored = QuorumStateFile(path).read()
    except QuorumStateError as error:
        yield Finding(
            Severity.ERROR if log.config.is_controller else Severity.WARNING,
            "malformed-quorum-state",
            path,
            str(error),
            advice if log.config.is_controller else "nothing has to be done: a broker ignores the file",
            kafka=_kafka_about_state(path, error),
        )
        return
    if stored is None:
        if log.config.is_controller and end.epoch > 0:
            yield Finding(
                Severity.WARNING,
                "quorum-state-missing",
                path,
                f"there is no {path}, but the log beside it has records of epoch {end.epoch}: the vote of "
                "this controller is lost, and it could vote a second time",
                advice,
                kafka=_kafka_behind(path, 0, end.epoch),
            )
        return
    if log.config.is_controller and stored.epoch < end.epoch:
        yield Finding(
            Severity.ERROR,
            "quorum-state-behind",
            path,
            f"{path} is in epoch {stored.epoch}, but the log beside it has records of epoch {end.epoch}: "
            "one of them is damaged or from a backup",
            advice,
            kafka=_kafka_behind(path, stored.epoch, end.epoch),
        )
    elif log.config.is_controller:
        try:
            check_snapshot_epoch(log.directory, QuorumStateFile(path))
        except RaftError as error:
            yield Finding(Severity.ERROR, "quorum-state-behind", path, str(error), advice)


def _kafka_behind(path: Path, epoch: int, last: int) -> str:
    return (
        f"starts with a warning: Epoch from quorum store file ({path}) is {epoch}, which is smaller than "
        f"last written epoch {last} in the log"
    )


def _kafka_about_state(path: Path, error: QuorumStateError) -> str:
    if isinstance(error, QuorumStateVersionError) and type(error.version) is int:
        return (
            f"does not start: java.lang.IllegalStateException: data_version ({error.version}) is not within "
            "the min (0) and max (1) supported version"
        )
    if isinstance(error, QuorumStateSyntaxError | QuorumStateVersionError):
        return (
            "does not start: java.io.UncheckedIOException: Error while reading the Quorum status from the "
            f"file {path}"
        )
    return ""


# --- snapshots and segments -----------------------------------------------------------------------


def _snapshots(log: MetadataLog) -> list[tuple[OffsetEpoch, Path]]:
    named = ((parse_name(path.name), path) for path in log.directory.iterdir())
    return sorted((found[0], path) for found, path in named if found is not None and found[1] == "snapshot")


def _snapshot_findings(log: MetadataLog, advice: str, *, deep: bool) -> Iterator[Finding]:
    snapshots = _snapshots(log)
    for number, (_, path) in enumerate(snapshots):
        newest = number == len(snapshots) - 1
        try:
            if newest or deep:
                verify_file(path)
                read_head(path)
        except SnapshotError as error:
            yield Finding(
                Severity.ERROR if newest else Severity.WARNING,
                "damaged-snapshot",
                path,
                str(error),
                advice if newest else "a newer snapshot takes its place; it is removed with the retention",
            )


def _segment_findings(log: MetadataLog, advice: str, end: _LogEnd) -> Iterator[Finding]:
    """Checks all batches and finds the end of the log."""
    segments = sorted(path for path in log.directory.iterdir() if _SEGMENT.fullmatch(path.name))
    snapshots = [snapshot for snapshot, _ in _snapshots(log)]
    newest = snapshots[-1] if snapshots else _FIRST
    first = int(segments[0].stem) if segments else newest.offset
    if first > 0 and not any(snapshot.offset >= first for snapshot in snapshots):
        yield Finding(
            Severity.ERROR,
            "records-missing",
            log.directory,
            f"the log begins at offset {first}, and no snapshot has the records before it",
            advice,
        )
    end.offset = first
    for number, path in enumerate(segments):
        if int(path.stem) != end.offset:
            yield Finding(
                Severity.ERROR,
                "segment-missing",
                path,
                f"{path} begins at offset {int(path.stem)}, but the segment before it ends at {end.offset}: "
                "a segment is missing or was truncated",
                advice,
            )
        end.offset = int(path.stem)
        finding = _check_segment(path, end, len(segments) - number - 1, advice, in_use=log.in_use)
        if finding is not None:
            yield finding
            if finding.severity is Severity.ERROR:
                return
    if segments and end.offset < newest.offset:
        yield Finding(
            Severity.NOTE,
            "log-behind-snapshot",
            log.directory,
            f"the log ends at offset {end.offset}, before the newest snapshot ({newest.offset}), as after a "
            "crash while the snapshot was installed. The next start verifies the snapshot and removes the "
            "log",
        )
    yield from _epoch_findings(log, end)


def _check_segment(path: Path, end: _LogEnd, behind: int, advice: str, *, in_use: bool) -> Finding | None:
    """Verifies one segment and moves `end` to its end."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        base, position = end.offset, 0
        try:
            for header in scan_batches(file.fileno(), base, size, min_epoch=max(end.epoch, 0)):
                position += header.size_bytes
                end.offset, end.epoch = header.next_offset, header.leader_epoch
        except CorruptRecordError:
            pass  # `check_torn_tail` says whether that is damage
        if position == size:
            return None
        kafka = (
            f"starts: Corruption found in segment {base}, truncating to offset {end.offset}. It deletes the "
            "records behind it"
        )
        try:
            check_torn_tail(str(path), behind)(file.fileno(), position, size, end.offset - 1)
        except CorruptRecordError as error:
            return Finding(Severity.ERROR, "damaged-metadata", path, error.message or "", advice, kafka=kafka)
    if in_use:
        return None
    return Finding(
        Severity.NOTE,
        "torn-metadata",
        path,
        f"the last {size - position} bytes of {path} are an incomplete write of an unclean stop, or a "
        f"damaged last batch; the next start removes them, so that the log ends at offset {end.offset}",
        kafka=kafka,
    )


def _epoch_findings(log: MetadataLog, end: _LogEnd) -> Iterator[Finding]:
    path = log.directory / LEADER_EPOCHS
    try:
        epochs = read_epochs(str(path))
    except CheckpointError as error:
        yield Finding(
            Severity.WARNING,
            "malformed-checkpoint",
            path,
            f"{error}. The node reads the leader epochs from the batches",
            "nothing has to be done",
        )
        return
    if epochs and epochs[-1][1] > end.offset:
        yield Finding(
            Severity.WARNING,
            "epoch-beyond-log",
            path,
            f"{path} names records of epoch {epochs[-1][0]} from offset {epochs[-1][1]} on, but the log "
            f"ends at {end.offset}",
            "a controller that has lost the end of its log must not vote: compare it with the other voters "
            "(kafka-metadata-quorum describe --replication)",
        )


# --- voters ---------------------------------------------------------------------------------------


def _voter_findings(log: MetadataLog, members: Membership) -> Iterator[Finding]:
    """Compares the voters in the log with this directory and with the properties."""
    if members.kraft_version == 0:
        return
    me = ReplicaKey(log.meta.node_id, log.meta.directory_id or NO_DIRECTORY)
    voters = members.current
    entry = voters.by_id.get(me.id)
    if entry is not None and not voters.is_voter(me):
        yield Finding(
            Severity.WARNING,
            "other-voter-directory",
            log.config.metadata_dir / "meta.properties",
            f"the voters have node {me.id} with directory id {uuid_text(entry.key.directory_id)}, but this "
            f"directory is {uuid_text(me.directory_id)}: the disk was replaced or formatted again, so this "
            "controller has no vote",
            f"kafka-metadata-quorum remove-controller --controller-id {me.id}, then add-controller on this "
            "node",
        )
    elif entry is None and log.config.is_controller and log.roles_known:
        yield Finding(
            Severity.NOTE,
            "not-a-voter",
            log.directory,
            f"this controller is not among the voters ({', '.join(map(str, voters.ids)) or 'none'}): it "
            "observes",
            "kafka-metadata-quorum add-controller makes it a voter",
        )
    if log.config.voters:
        yield Finding(
            Severity.WARNING,
            "ignored-voters",
            log.directory,
            "controller.quorum.voters is set, but the log has the voters of a dynamic quorum "
            "(kraft.version 1), which take precedence",
            "remove controller.quorum.voters, and set controller.quorum.bootstrap.servers",
            "controller.quorum.voters",
        )


# --- leftovers ------------------------------------------------------------------------------------


def _leftovers(log: MetadataLog) -> Iterator[Finding]:
    what = {
        "part": "a snapshot whose writing was interrupted; the next start removes it",
        "deleted": "a snapshot that was to be deleted; the next start removes it",
        "download": "an incomplete download of a snapshot; the node continues it",
    }
    for path in sorted(log.directory.iterdir()):
        named = parse_name(path.name)
        if named is not None and named[1] in what:
            yield Finding(
                Severity.NOTE,
                "leftover",
                path,
                f"{path} is {what[named[1]]}",
                fix=None if named[1] == "download" else RemoveFile(path, log.directory.parent),
            )
        elif path.name.endswith((".deleted", ".tmp")):
            yield Finding(
                Severity.NOTE,
                "leftover",
                path,
                f"{path} is left of an interrupted write or deletion",
                fix=RemoveFile(path, log.directory.parent),
            )
