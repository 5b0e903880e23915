"""What a replica finds on its disk when it starts: log, snapshots, voters, quorum state, and whether they fit together.

A long log is read once through, so this is work for a thread: the node answers about its health meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from quorate.log.files import OpenFiles, fsync_directory
from quorate.raft.config import RaftConfig
from quorate.raft.log import MetadataLog
from quorate.raft.quorum_state import QuorumState, QuorumStateBehindError
from quorate.raft.remedies import explain, is_damage
from quorate.raft.state_saving import StateSaver
from quorate.raft.voters import Membership, VoterSet


@dataclass(slots=True)
class Opened:
    log: MetadataLog
    members: Membership
    stored: QuorumState | None


def open_replica(config: RaftConfig, directory: Path, state: StateSaver, files: OpenFiles | None, now_ms: int) -> Opened:
    """Makes the directory of a new replica. Raises OSError, SnapshotError, QuorumStateError, RaftError, LogDirFailure:
    where files are damaged, with what to do about it."""
    if not directory.is_dir():
        directory.mkdir(parents=True)
        fsync_directory(str(directory.parent))  # or the vote in it could be forgotten with it
    read: Membership | None = None
    try:
        log = MetadataLog.open(directory, config, files=files, now_ms=now_ms)
        members = Membership(VoterSet.static(config.voters, config.listener_name) if config.voters else None)
        log.load_membership(members)
        read = members
        if config.is_controller:
            log.flush()
        return Opened(log, members, _read_state(config, state, log))
    except Exception as e:
        if is_damage(e):
            explain(e, config, directory, read)
        raise


def _read_state(config: RaftConfig, state: StateSaver, log: MetadataLog) -> QuorumState | None:
    stored = state.read(durable=config.is_controller, node_id=config.node_id)
    if stored is not None and stored.epoch < log.last_epoch and config.is_controller:
        raise QuorumStateBehindError(
            f"{state.path} is in epoch {stored.epoch}, but the log beside it has records of epoch "
            f"{log.last_epoch}: one of them is damaged or from a backup"
        )
    return stored
