"""Recovers a replica from its disk: log, snapshots, voters and quorum state, and checks their consistency.

The log is verified from its start to its end. This takes long for a long log, so it runs in a thread, while
the node already answers health checks.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module
from quorate.log.checkpoints import LEADER_EPOCHS, read_epochs
from quorate.log.errors import CheckpointError
from quorate.log.files import OpenFiles, fsync_directory
from quorate.raft.config import RaftConfig
from quorate.raft.core.voters import Membership, MembershipRecord, VoterSet
from quorate.raft.storage.membership_record import MembershipRecordFile
from quorate.raft.storage.metadata_log import NO_SNAPSHOT, MetadataLog
from quorate.raft.storage.quorum_state import QuorumStateBehindError, QuorumStateError, QuorumStateFile
from quorate.raft.storage.snapshots.files import parse_name, snapshot_name
from quorate.raft.storage.voter_marker import Marked, VoterMarker
from quorate.raft.types import QuorumState, RaftError, ReplicaKey

if TYPE_CHECKING:
    from quorate.raft.storage import recovery_advice
else:
    recovery_advice = lazy_module("quorate.raft.storage.recovery_advice")

logger = logging.getLogger(__name__)

_SEGMENT = re.compile(r"\d{20}\.log")


@dataclass(slots=True)
class RecoveredReplica:
    """What a replica has on its disk at its start. `stored` is None in a new directory."""

    log: MetadataLog
    members: Membership
    stored: QuorumState | None
    membership_record: MembershipRecord


def recover_replica(
    config: RaftConfig,
    directory: Path,
    state_file: QuorumStateFile,
    marker: VoterMarker,
    files: OpenFiles | None,
    now_ms: int,
) -> RecoveredReplica:
    """Opens the metadata log directory, or creates it.

    Raises OSError, SnapshotError, QuorumStateError, RaftError, LogDirFailure. If files are damaged, the
    message says what to do about it.
    """
    read: Membership | None = None
    marked: Marked | None = None
    try:
        marked = marker.read() if config.is_controller else None
        missing = missing_log_reason(directory, state_file, marker, marked) if config.is_controller else None
        if missing is not None:
            raise RaftError(missing)
        if config.is_controller:
            check_snapshot_epoch(directory, state_file)
        if not directory.is_dir():
            directory.mkdir(parents=True)
            fsync_directory(
                str(directory.parent)
            )  # otherwise a crash could lose the directory and the vote in it
        log = MetadataLog.open(directory, config, files=files, now_ms=now_ms)
        members = Membership(VoterSet.static(config.voters, config.listener_name) if config.voters else None)
        log.load_membership(members)
        read = members
        if config.is_controller:
            log.flush()
        stored = _read_quorum_state(config, state_file, log)
        me = ReplicaKey(config.node_id, config.directory_id)
        if config.is_controller and (
            members.current.is_voter(me) or (stored is not None and stored.voted is not None)
        ):
            # Otherwise a power failure could lose the first segment but keep the marker, and the replica
            # could not start again.
            fsync_directory(str(directory))
            marker.write(members.kraft_version)
        return RecoveredReplica(log, members, stored, _read_membership_record(config, directory, log))
    except Exception as e:
        if recovery_advice.is_damage(e):
            recovery_advice.explain(
                e,
                config,
                directory,
                read if read is not None else _static_members(config, state_file.path, marked),
            )
        raise


def missing_log_reason(
    directory: Path,
    state_file: QuorumStateFile,
    marker: VoterMarker,
    marked: Marked | None,
) -> str | None:
    """The reason why a controller must not start because its log is missing, or None if it may start.

    A replica creates its first segment before any other file. If there is a file that is written later
    (epoch checkpoint, quorum-state, voter marker) but neither a segment nor a snapshot, records may be
    lost that this replica acknowledged. If it voted with an empty log, the whole quorum could lose them.

    The same holds for empty segments if the epoch checkpoint names records. Beside an empty segment, a
    quorum-state file or a voter marker proves no loss: a replica writes both before its first record.
    """
    empty_segment = False
    for path in directory.iterdir() if directory.is_dir() else ():
        named = parse_name(path.name)
        if named is not None and named[1] == "snapshot" and named[0] != NO_SNAPSHOT:
            return None
        if _SEGMENT.fullmatch(path.name):
            if path.stat().st_size:
                return None
            empty_segment = True
    what = "all log segments (*.log) are empty and there is no snapshot"
    if not empty_segment:
        what = "there is neither a log segment (*.log) nor a snapshot"
    lost = f"but {what} in {directory}: the metadata log is lost"
    try:
        epochs = read_epochs(str(directory / LEADER_EPOCHS))
    except CheckpointError as e:
        return f"{e}, {lost}"  # the file is replaced atomically, so a crash cannot have damaged it
    if epochs:
        return (
            f"{directory / LEADER_EPOCHS} names records of epoch {epochs[-1][0]} from offset "
            f"{epochs[-1][1]} on, {lost}"
        )
    if empty_segment:
        return None
    try:
        stored = state_file.read()
    except QuorumStateError:
        stored = None  # `_read_quorum_state` reports the error
    if stored is not None and stored.epoch > 0:
        return f"{state_file.path} is in epoch {stored.epoch}, {lost}"
    if marked is not None:
        shows = "(damaged) shows" if marked.kraft_version is None else "says"
        return f"{marker.path} {shows} that this directory is a voter's, {lost}"
    return None


def check_snapshot_epoch(directory: Path, state_file: QuorumStateFile) -> None:
    """Raises RaftError if the latest snapshot has a later epoch than the quorum state.

    The quorum state of an epoch is durable before any record or snapshot of that epoch is written. So the
    snapshot is not this replica's, or the quorum state is from a backup. The check comes before the log is
    opened, because opening replaces a log that ends before the snapshot.
    """
    named = [parse_name(path.name) for path in directory.iterdir()] if directory.is_dir() else []
    latest = max((n[0] for n in named if n is not None and n[1] == "snapshot"), default=NO_SNAPSHOT)
    try:
        stored = state_file.read()
    except QuorumStateError:
        # `_read_quorum_state` reports the error later, when the voters have been read from the log and the
        # message can name them.
        return
    if stored is not None and stored.epoch < latest.epoch:
        raise RaftError(
            f"{state_file.path} is in epoch {stored.epoch}, but {directory / snapshot_name(latest)} is of "
            f"epoch {latest.epoch}: one of them is damaged or from a backup"
        )


def _static_members(config: RaftConfig, state_path: Path, marked: Marked | None) -> Membership | None:
    """The voters of the configuration, or None if the log holds the voters."""
    if marked is not None and marked.kraft_version != 0:
        return None
    try:
        dynamic = not config.voters or b'"data_version":1' in state_path.read_bytes().replace(b" ", b"")
    except FileNotFoundError:
        dynamic = not config.voters
    return None if dynamic else Membership(VoterSet.static(config.voters or {}, config.listener_name))


def _read_membership_record(config: RaftConfig, directory: Path, log: MetadataLog) -> MembershipRecord:
    """Whether this replica is or was a voter, as far as the disk shows.

    Apache Kafka does not write the file of the membership record. If the file says nothing, a controller with
    auto-join also reads the voter sets older than the latest snapshot. The core
    adds the voter sets after that snapshot.
    """
    record = MembershipRecordFile(directory, config.directory_id).read()
    if record is MembershipRecord.NEVER and config.is_controller and config.auto_join:
        me = ReplicaKey(config.node_id, config.directory_id)
        for _, voters in sorted(log.earlier_voter_sets(), key=lambda found: found[0]):
            record = record.after(voters, me)
    return record


def _read_quorum_state(
    config: RaftConfig, state_file: QuorumStateFile, log: MetadataLog
) -> QuorumState | None:
    """Reads the quorum state.

    A broker only needs it to find the leader sooner, and writes it without fsync. So it ignores a file
    that a crash has damaged.
    """
    try:
        stored = state_file.read()
    except QuorumStateError as e:
        if config.is_controller:
            raise
        logger.warning("[RaftClient id=%d] %s; continuing without it", config.node_id, e)
        return None
    if stored is not None and stored.epoch < log.last_epoch and config.is_controller:
        raise QuorumStateBehindError(
            f"{state_file.path} is in epoch {stored.epoch}, but the log beside it has records of epoch "
            f"{log.last_epoch}: one of them is damaged or from a backup"
        )
    return stored
