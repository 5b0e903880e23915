"""Finds out up to where a metadata log in files is known to be committed.

A record is committed if a snapshot contains it. It also is if a majority of the voters have it, in
the epoch in which the leader wrote it (Raft, section 5.4.2): each of these copies has a record of
the epoch that its own `quorum-state` has, because a replica that has entered a later epoch may have
got the record from a later leader, which does not commit it. The voters are those of the newest
VotersRecord, or at kraft.version 0 those of `quorum-state`. A voter without others commits whatever
it writes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from quorate.dataclass import dataclass
from quorate.metadata.stored_voters import latest_voters
from quorate.pipeline.directories.copies import Copy
from quorate.pipeline.directories.files import LOCAL, Files, is_remote
from quorate.protocol.uuids import uuid_text

_STATE_FILE: Final = "quorum-state"
_MAX_STATE_BYTES: Final = 1 << 20

Voter = tuple[int, str | None]
"""A node's id, and the id of its metadata directory if the voters are known by it."""


@dataclass(frozen=True, slots=True)
class Witness:
    """What one copy says about the others."""

    copy: Copy
    epoch: int
    """The epoch of its `quorum-state`."""
    voters: frozenset[Voter]


def committed_end(copies: Sequence[Copy], files: Files = LOCAL) -> int:
    """The offset up to which the records in the copies are known to be committed."""
    in_snapshots = [snapshot.end_offset for copy in copies for snapshot in copy.layout.snapshots]
    found = max(in_snapshots, default=0)
    witnesses = [witness for copy in copies if (witness := _witness(copy, files)) is not None]
    for epoch in {witness.epoch for witness in witnesses}:
        same = [witness for witness in witnesses if witness.epoch == epoch]
        ends = {voter: _end_in_epoch(witness) for witness in same for voter in _names(witness.copy)}
        found = max(
            found, min(_majority_end(ends, voters) for voters in {witness.voters for witness in same})
        )
    return found


def _majority_end(ends: dict[Voter, int], voters: frozenset[Voter]) -> int:
    """The offset up to which a majority of the voters have the log."""
    known = sorted([ends.get(voter, 0) for voter in voters], reverse=True)
    return known[len(voters) // 2] if known else 0


def _end_in_epoch(witness: Witness) -> int:
    """The end of a copy if its last record is of its own epoch, so that the leader of this epoch wrote it."""
    copy = witness.copy
    if copy.last_epoch == witness.epoch or len(witness.voters) == 1:
        return copy.end_offset
    return 0


def _names(copy: Copy) -> list[Voter]:
    """The voters that a copy may be: by its node id only, and with its directory id."""
    return [] if copy.node_id is None else [(copy.node_id, None), (copy.node_id, copy.directory_id)]


def _witness(copy: Copy, files: Files) -> Witness | None:
    """What a copy says, or None if its files do not say it."""
    try:
        folder = copy.layout.directory
        state = json.loads(files.read(f"{folder}/{_STATE_FILE}")[:_MAX_STATE_BYTES])
        epoch = int(state["leaderEpoch"])
        fixed = [(int(voter["voterId"]), None) for voter in state.get("currentVoters") or []]
        voters = frozenset(fixed) or _recorded_voters(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Witness(copy, epoch, voters) if voters else None


def _recorded_voters(folder: str) -> frozenset[Voter]:
    """The voters of the newest VotersRecord in the log or the snapshots, for which local files are
    searched."""
    record = None if is_remote(folder) else latest_voters([Path(folder)])
    if record is None:
        return frozenset()
    return frozenset([(voter.voter_id, uuid_text(voter.voter_directory_id)) for voter in record.voters])
