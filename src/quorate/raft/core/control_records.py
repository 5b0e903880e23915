"""Control records that change the quorum: LeaderChange, KRaftVersion and Voters (KIP-595, KIP-853).

Builds them, reads them, and applies them to the history of voter sets and kraft.version levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from quorate.raft.core.events import ControlRecord
from quorate.raft.core.state import RaftState
from quorate.raft.core.voters import Membership, Voter, VoterSet
from quorate.raft.types import NO_DIRECTORY, RaftError, ReplicaKey
from quorate.records.control import KRaftVersionRecord, LeaderChangeMessage, VotersRecord

if TYPE_CHECKING:
    from quorate.protocol.schema import Data

# The types of control records (Kafka's `ControlRecordType`).
LEADER_CHANGE = 2
SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
KRAFT_VERSION = 5
KRAFT_VOTERS = 6


def voters_record(voters: VoterSet) -> VotersRecord:
    return VotersRecord(
        version=0,
        voters=[
            VotersRecord.Voter(
                voter_id=v.id,
                voter_directory_id=v.key.directory_id,
                endpoints=[
                    VotersRecord.Endpoint(name=n, host=h, port=p) for n, (h, p) in v.endpoints.items()
                ],
                kraft_version_feature=VotersRecord.KRaftVersionFeature(
                    min_supported_version=v.kraft_versions[0], max_supported_version=v.kraft_versions[1]
                ),
            )
            for v in voters
        ],
    )


def voter_set(record: VotersRecord) -> VoterSet:
    """The voter set of a VotersRecord. Raises RaftError if an id occurs twice."""
    return VoterSet.of(
        Voter(
            ReplicaKey(v.voter_id, v.voter_directory_id),
            {e.name: (e.host, e.port) for e in v.endpoints},
            (v.kraft_version_feature.min_supported_version, v.kraft_version_feature.max_supported_version),
        )
        for v in record.voters
    )


def kraft_version_record(level: int) -> KRaftVersionRecord:
    return KRaftVersionRecord(version=0, kraft_version=level)


def epoch_start_records(r: RaftState, granting: Sequence[int]) -> list[tuple[int, Data]]:
    """The control records of a new leader's first batch.

    It begins with LeaderChange. The voter set follows if only snapshot 0-0 holds it, or if the entry of
    this replica has changed.
    """

    def named(ids: Iterable[int]) -> list[LeaderChangeMessage.Voter]:
        known = r.voters.by_id
        return [
            LeaderChangeMessage.Voter(
                voter_id=i, directory_id=known[i].key.directory_id if i in known else NO_DIRECTORY
            )
            for i in ids
        ]

    change = LeaderChangeMessage(
        version=0, leader_id=r.me.id, voters=named(r.voters.ids), granting_voters=named(granting)
    )
    records: list[tuple[int, Data]] = [(LEADER_CHANGE, change)]
    if r.members.kraft_version >= 1:
        at = r.members.current_offset
        if at is None:
            raise RaftError(
                f"kraft.version is {r.members.kraft_version}, but neither log nor snapshot has a voter set"
            )
        if at == -1 or needs_voter_update(r):
            voters = r.voters.updated(r.me.id, r.params.endpoints, r.params.kraft_versions, r.me.directory_id)
            records.append((KRAFT_VERSION, kraft_version_record(r.members.kraft_version)))
            records.append((KRAFT_VOTERS, voters_record(voters)))
    return records


def needs_voter_update(r: RaftState) -> bool:
    """Whether the voter set's entry of this voter differs from its endpoints, versions or directory id."""
    entry = r.voters.by_id.get(r.me.id)
    return entry is not None and r.is_voter and (
        dict(entry.endpoints) != dict(r.params.endpoints)
        or entry.kraft_versions != r.params.kraft_versions
        or entry.key.directory_id == NO_DIRECTORY
    )  # fmt: skip


def apply_control_record(members: Membership, control: ControlRecord) -> None:
    """Adds the voter set or the kraft.version of a control record to the history.

    Raises RaftError if the record breaks a rule of their succession.
    """
    if control.type == KRAFT_VOTERS:
        members.add_voters(control.offset, voter_set(control.value))  # type: ignore[arg-type]
    elif control.type == KRAFT_VERSION:
        members.add_kraft_version(control.offset, control.value.kraft_version)  # type: ignore[attr-defined]
