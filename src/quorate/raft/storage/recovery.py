"""What a replica finds on its disk when it starts: log, snapshots, voters, quorum state, and whether
they fit together.

A long log is read once through, so this is work for a thread: the node answers about its health meanwhile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from quorate.log.checkpoints import LEADER_EPOCHS, read_epochs
from quorate.log.errors import CheckpointError
from quorate.log.files import OpenFiles, fsync_directory
from quorate.raft.config import RaftConfig
from quorate.raft.core.voters import Membership, VoterSet
from quorate.raft.storage.membership_record import MembershipRecord, MembershipRecordFile
from quorate.raft.storage.metadata_log import NO_SNAPSHOT, MetadataLog
from quorate.raft.storage.quorum_state import QuorumState, QuorumStateBehindError, QuorumStateError
from quorate.raft.storage.quorum_state_writer import QuorumStateWriter
from quorate.raft.storage.recovery_advice import explain, is_damage
from quorate.raft.storage.snapshots import parse_name, snapshot_name
from quorate.raft.storage.voter_marker import Marked, VoterMarker
from quorate.raft.types import RaftError, ReplicaKey

_SEGMENT = re.compile(r"\d{20}\.log")


@dataclass(slots=True)
class RecoveredReplica:
    log: MetadataLog
    members: Membership
    stored: QuorumState | None
    standing: MembershipRecord


def recover_replica(
    config: RaftConfig,
    directory: Path,
    state: QuorumStateWriter,
    marker: VoterMarker,
    files: OpenFiles | None,
    now_ms: int,
) -> RecoveredReplica:
    """Makes the directory of a new replica. Raises OSError, SnapshotError, QuorumStateError, RaftError,
    LogDirFailure: where files are damaged, with what to do about it."""
    read: Membership | None = None
    marked: Marked | None = None
    try:
        marked = marker.read() if config.is_controller else None
        missing = _missing_log(config, directory, state, marker, marked) if config.is_controller else None
        if missing is not None:
            raise RaftError(missing)
        if config.is_controller:
            _refuse_later_snapshot(config, directory, state)
        if not directory.is_dir():
            directory.mkdir(parents=True)
            fsync_directory(str(directory.parent))  # or the vote in it could be forgotten with it
        log = MetadataLog.open(directory, config, files=files, now_ms=now_ms)
        members = Membership(VoterSet.static(config.voters, config.listener_name) if config.voters else None)
        log.load_membership(members)
        read = members
        if config.is_controller:
            log.flush()
        stored = _read_state(config, state, log)
        me = ReplicaKey(config.node_id, config.directory_id)
        if config.is_controller and (
            members.current.is_voter(me) or (stored is not None and stored.voted is not None)
        ):
            fsync_directory(
                str(directory)
            )  # the marker may not outlive the first segment in a crash of the machine
            marker.write(members.kraft_version)
        return RecoveredReplica(log, members, stored, _standing(config, directory, log))
    except Exception as e:
        if is_damage(e):
            explain(
                e,
                config,
                directory,
                read if read is not None else _static_members(config, state.path, marked),
            )
        raise


def _missing_log(
    config: RaftConfig, directory: Path, state: QuorumStateWriter, marker: VoterMarker, marked: Marked | None
) -> str | None:
    """Why a controller may not start without a log; None where it has one, or has never had any.

    A replica makes its first segment before anything else: where neither that nor a snapshot is left,
    but what came later is, the records are lost that it may have acknowledged, and an empty log that
    votes would let others lose them too."""
    for path in directory.iterdir() if directory.is_dir() else ():
        named = parse_name(path.name)
        if _SEGMENT.fullmatch(path.name) or (
            named is not None and named[1] == "snapshot" and named[0] != NO_SNAPSHOT
        ):
            return None
    lost = (
        f"but there is neither a log segment (*.log) nor a snapshot in {directory}: the metadata log is lost"
    )
    try:
        epochs = read_epochs(str(directory / LEADER_EPOCHS))
    except CheckpointError as e:
        return f"{e}, {lost}"  # the file is replaced as a whole: a crash leaves none that cannot be read
    if epochs:
        return f"{directory / LEADER_EPOCHS} names records of epoch {epochs[-1][0]} from offset {epochs[-1][1]} on, {lost}"
    try:
        stored = state.read(durable=True, node_id=config.node_id)
    except QuorumStateError:
        stored = None  # without a marker `_read_state` tells what is wrong with the file
    if stored is not None and stored.epoch > 0:
        return f"{state.path} is in epoch {stored.epoch}, {lost}"
    if marked is not None:
        what = "cannot be read, but shows" if marked.kraft_version is None else "says"
        return f"{marker.path} {what} that this directory is a voter's, {lost}"
    return None


def _refuse_later_snapshot(config: RaftConfig, directory: Path, state: QuorumStateWriter) -> None:
    """A snapshot that is ahead of the log replaces it when the log is opened. One of a later epoch than
    the quorum state, which is durable before anything of its epoch, is not this replica's, or the
    quorum state is from a backup. Raises RaftError."""
    named = [parse_name(path.name) for path in directory.iterdir()] if directory.is_dir() else []
    latest = max((n[0] for n in named if n is not None and n[1] == "snapshot"), default=NO_SNAPSHOT)
    try:
        stored = state.read(durable=True, node_id=config.node_id)
    except QuorumStateError:
        return  # told by `_read_state`, with the voters that the log has
    if stored is not None and stored.epoch < latest.epoch:
        raise RaftError(
            f"{state.path} is in epoch {stored.epoch}, but {directory / snapshot_name(latest)} is of epoch "
            f"{latest.epoch}: "
            "one of them is damaged or from a backup"
        )


def _static_members(config: RaftConfig, state: Path, marked: Marked | None) -> Membership | None:
    """The voters, where nothing else has to be read to know them: those of the configuration, unless
    the log has others."""
    if marked is not None and marked.kraft_version != 0:
        return None
    try:
        dynamic = not config.voters or b'"data_version":1' in state.read_bytes().replace(b" ", b"")
    except FileNotFoundError:
        dynamic = not config.voters
    return None if dynamic else Membership(VoterSet.static(config.voters or {}, config.listener_name))


def _standing(config: RaftConfig, directory: Path, log: MetadataLog) -> MembershipRecord:
    """As it is noted. What is not, the voter sets from before the latest snapshot tell one that would
    join by itself: Apache Kafka notes nothing. Those from there on the core looks at."""
    noted = MembershipRecordFile(directory, config.directory_id).read()
    if noted is MembershipRecord.NEVER and config.is_controller and config.auto_join:
        me = ReplicaKey(config.node_id, config.directory_id)
        for _, voters in sorted(log.passed_voter_sets(), key=lambda found: found[0]):
            noted = noted.after(voters, me)
    return noted


def _read_state(config: RaftConfig, state: QuorumStateWriter, log: MetadataLog) -> QuorumState | None:
    stored = state.read(durable=config.is_controller, node_id=config.node_id)
    if stored is not None and stored.epoch < log.last_epoch and config.is_controller:
        raise QuorumStateBehindError(
            f"{state.path} is in epoch {stored.epoch}, but the log beside it has records of epoch "
            f"{log.last_epoch}: one of them is damaged or from a backup"
        )
    return stored
