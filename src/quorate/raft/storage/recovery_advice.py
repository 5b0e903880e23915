"""Adds advice to the error of a replica whose files are damaged.

Lost data is not replaced by a guess. A voter that has lost its vote or a part of its log must not vote
again under the same replica key. It is removed and added with a new directory id, and fetches everything
from the other voters (KIP-853).
"""

from __future__ import annotations

import re
from pathlib import Path

from quorate.log.errors import LogDirFailure
from quorate.protocol.errors import DecodeError, KafkaError
from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.raft.config import RaftConfig
from quorate.raft.core.voters import Membership, VoterSet
from quorate.raft.storage.quorum_state import QuorumStateBehindError, QuorumStateError
from quorate.raft.storage.snapshots.verification import SnapshotError
from quorate.raft.types import RaftError
from quorate.records.errors import CorruptRecordError, InvalidRecordError

_PARTITION = re.compile(r"[A-Za-z0-9._-]+-\d+")
DOCS = 'docs/runbooks/damaged-disks.md, "A damaged controller"'


def is_damage(error: BaseException) -> bool:
    """Whether an error means that files are damaged. A disk that fails is not meant."""
    if isinstance(error, LogDirFailure):
        return isinstance(error.__cause__, (CorruptRecordError, InvalidRecordError, DecodeError))
    return isinstance(error, (SnapshotError, QuorumStateError, RaftError))


def explain(error: BaseException, config: RaftConfig, directory: Path, members: Membership | None) -> None:
    """Adds advice to the message of an error. `members` is None if the voters cannot be read."""
    only_state = isinstance(error, (QuorumStateError, QuorumStateBehindError))
    text = remedy(config, directory, members, only_state)
    what = error.message or "" if isinstance(error, KafkaError) else str(error)
    if isinstance(error, KafkaError):
        error.message = f"{what}. {text}"
    else:
        error.args = (f"{what}. {text}",)


def explain_snapshot(error: BaseException, config: RaftConfig, directory: Path, members: Membership) -> None:
    """Adds advice to the error of a running node if it means a damaged snapshot, and to no other error."""
    if isinstance(error, SnapshotError):
        explain(error, config, directory, members)


def remedy(config: RaftConfig, directory: Path, members: Membership | None, only_state: bool) -> str:
    """The advice, as a sentence. With `only_state` only the file quorum-state is damaged."""
    if not config.is_controller:
        return (
            f"This node only observes the quorum: move {directory} away and start it again, it fetches "
            "everything anew"
        )
    voters = members.current if members is not None else VoterSet()
    dynamic = members is None or members.kraft_version >= 1
    ids = [i for i in voters.ids if i != config.node_id]
    known = ", ".join(map(str, ids))
    if members is not None and not ids and voters.ids:
        return "This is the only voter: " + (
            f"remove {directory / 'quorum-state'} and start it again, nobody else can have been voted for"
            if only_state
            else f"restore {directory} from a backup"
        )
    if dynamic and len(ids) == 1 and config.node_id in voters.by_id:
        return (
            f"Voter {known} alone is no majority and cannot remove this one: restore {directory} from a "
            f"backup that was taken while this node was stopped ({DOCS})"
        )
    anew = (
        f"move {config.metadata_dir} away, kafka-storage format --no-initial-controllers, start this "
        "controller"
    )
    if dynamic and ids and config.node_id not in voters.by_id:
        text = f"This controller is not among the voters ({known}), which have everything: {anew}"
    elif dynamic:
        others = f"The other voters ({known}) have" if ids else "If there are other voters, they have"
        text = (
            f"{others} everything that this one had: kafka-metadata-quorum remove-controller --controller-id "
            f"{config.node_id}, {anew}, kafka-metadata-quorum add-controller"
        )
    else:
        text = (
            f"The other voters ({known}) have everything that this one had: move {config.metadata_dir} "
            "away, format it again, start this controller, but only while every other voter runs and is "
            "caught up (kafka-metadata-quorum describe --replication), since a static quorum cannot tell "
            "the empty disk from the old one"
        )
    alone = "" if ids else "; an only voter is restored from a backup"
    return f"{text}{alone}{_topics(config.metadata_dir)} ({DOCS})"


def _topics(metadata_dir: Path) -> str:
    """A warning if the same directory holds topics, which would be moved away with the log."""
    try:
        count = sum(_PARTITION.fullmatch(p.name) is not None and p.is_dir() for p in metadata_dir.iterdir())
    except OSError:
        return ""
    # One of the directories that match is the metadata log itself.
    count -= (metadata_dir / f"{METADATA_TOPIC}-0").is_dir()
    if not count:
        return ""
    return (
        f". {metadata_dir} also holds {count} topic partitions: see first that each has another replica in "
        "sync"
    )
