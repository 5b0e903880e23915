"""Voter sets and kraft.version: control records applied, UpdateRaftVoter, the upgrade of kraft.version
(KIP-853).

AddRaftVoter and RemoveRaftVoter are in `changes`; what a replica asks for itself is in `joining`. An
update acts when appended and is answered at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import voter_changes as changes
from quorate.raft.core.leader_conflict import complain
from quorate.raft.core.messages import ControlRecord, Token, UpdateVoter, UpgradeKraftVersion, VoterReply
from quorate.raft.core.voter_changes import refuse
from quorate.raft.core.voters import Membership, Voter, VoterSet
from quorate.raft.types import NO_DIRECTORY, CommittedBatch, Endpoints, RaftError, ReplicaKey
from quorate.records.errors import InvalidRecordError

if TYPE_CHECKING:
    from quorate.protocol.schema import Data
    from quorate.raft.core.leader import Leading
    from quorate.raft.core.raft import Raft
    from quorate.records.control import KRaftVersionRecord, VotersRecord

log = logging.getLogger(__name__)

LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = (
    2,
    3,
    4,
    5,
    6,
)  # ControlRecordType


# --- control records ------------------------------------------------------------------------------


def voters_record(voters: VoterSet) -> VotersRecord:
    from quorate.records.control import VotersRecord

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
    """Raises RaftError when an id is there twice."""
    return VoterSet.of(
        Voter(
            ReplicaKey(v.voter_id, v.voter_directory_id),
            {e.name: (e.host, e.port) for e in v.endpoints},
            (v.kraft_version_feature.min_supported_version, v.kraft_version_feature.max_supported_version),
        )
        for v in record.voters
    )


def kraft_version_record(level: int) -> KRaftVersionRecord:
    from quorate.records.control import KRaftVersionRecord

    return KRaftVersionRecord(version=0, kraft_version=level)


def epoch_start_records(r: Raft, granting: Sequence[int]) -> list[tuple[int, Data]]:
    """A new leader's first batch: LeaderChange, and the voter set where the log lacks it or our entry
    has changed."""
    from quorate.records.control import LeaderChangeMessage

    records: list[tuple[int, Data]] = [
        (
            LEADER_CHANGE,
            LeaderChangeMessage(
                version=0,
                leader_id=r.me.id,
                voters=[LeaderChangeMessage.Voter(voter_id=i) for i in r.voters.ids],
                granting_voters=[LeaderChangeMessage.Voter(voter_id=i) for i in granting],
            ),
        )
    ]
    if r.members.kraft_version >= 1:
        at = r.members.current_offset
        if at is None:
            raise RaftError(
                f"kraft.version is {r.members.kraft_version}, but neither log nor snapshot has a voter set"
            )
        if at == -1 or needs_update(r):
            voters = r.voters.updated(r.me.id, r.params.endpoints, r.params.kraft_versions, r.me.directory_id)
            records.append((KRAFT_VERSION, kraft_version_record(r.members.kraft_version)))
            records.append((KRAFT_VOTERS, voters_record(voters)))
    return records


def needs_update(r: Raft) -> bool:
    """Whether the voter set's entry of this node is not what the node is now."""
    entry = r.voters.by_id.get(r.me.id)
    return entry is not None and r.is_voter and (
        dict(entry.endpoints) != dict(r.params.endpoints)
        or entry.kraft_versions != r.params.kraft_versions
        or entry.key.directory_id == NO_DIRECTORY
    )  # fmt: skip


def apply_membership(members: Membership, control: ControlRecord) -> None:
    """What a control record changes of voter set and kraft.version. Raises RaftError when it breaks
    their rules."""
    if control.type == KRAFT_VOTERS:
        members.add_voters(control.offset, voter_set(control.value))  # type: ignore[arg-type]
    elif control.type == KRAFT_VERSION:
        members.add_kraft_version(control.offset, control.value.kraft_version)  # type: ignore[attr-defined]


def apply_control(r: Raft, control: ControlRecord) -> None:
    """Voter sets and kraft.version act when appended. Raises RaftError when the record breaks their rules."""
    before = r.members.kraft_version
    apply_membership(r.members, control)
    if control.type == KRAFT_VOTERS:
        log.info(
            "[Raft id=%d] voters at offset %d: %s", r.me.id, control.offset, [str(v.key) for v in r.voters]
        )
        changes.appended(r, control.offset)
    elif before != r.members.kraft_version:
        r.persist(again=True)  # quorum-state changes its version with kraft.version


def check_fetched(r: Raft, batches: Sequence[CommittedBatch], controls: Sequence[ControlRecord]) -> None:
    """Whether the log may take what a leader sent: once in it, a later epoch than the leader's own or a
    voter set that breaks the rules would keep this node from starting. Raises InvalidRecordError."""
    if batches and batches[-1].epoch > r.epoch:
        raise InvalidRecordError(f"a batch of epoch {batches[-1].epoch} from the leader of epoch {r.epoch}")
    trial, voters, level = Membership(), r.members.voters.last(), r.members.kraft.last()
    trial.reset(-1, voters[1] if voters is not None else None, level[1] if level is not None else None)
    try:
        for control in controls:
            apply_membership(trial, control)
    except RaftError as e:
        raise InvalidRecordError(str(e)) from e


# --- commits --------------------------------------------------------------------------------------


def on_high_watermark(r: Raft, now: float) -> None:
    """A change that has committed is answered; a leader that is out of the set then resigns."""
    leading = r.leading
    if leading is None or r.hwm is None:
        return
    changes.committed(r)
    if leading.upgrade_tokens and r.members.kraft_version_at(r.hwm - 1) >= 1:
        tokens, leading.upgrade_tokens = leading.upgrade_tokens, []
        for token in tokens:
            r.answer(token, VoterReply())
    at = r.members.current_offset
    if not r.is_voter and at is not None and r.hwm > at:
        log.info("[Raft id=%d] resigning: no longer a voter", r.me.id)
        r.become_resigned(now)


def fail_pending(r: Raft, leading: Leading) -> None:
    """Leadership is lost: whoever waits must ask the next leader."""
    changes.fail_all(r, leading)
    for token in leading.upgrade_tokens:
        refuse(r, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)


# --- UpdateRaftVoter ------------------------------------------------------------------------------


def on_update_voter(r: Raft, q: UpdateVoter, token: Token, now: float) -> None:
    from quorate.raft.core.election import wrong_cluster
    from quorate.raft.core.leader import leader_error, mark_heard

    if wrong_cluster(r, q.cluster_id):
        return refuse(r, token, ErrorCode.INCONSISTENT_CLUSTER_ID)
    error = leader_error(r, q.epoch)
    if error != ErrorCode.NONE:
        return refuse(r, token, error)
    key, (low, high), listener = q.voter.key, q.voter.kraft_versions, r.params.listener_name
    if key.id < 0 or key.directory_id == NO_DIRECTORY or not 0 <= low <= high:
        return refuse(r, token, ErrorCode.INVALID_REQUEST)
    if listener not in q.voter.endpoints:
        if r.voters.is_voter(key):
            text = changes.missing_endpoint(listener, q.voter.endpoints)
            complain(r, "no endpoint", f"UpdateRaftVoter of {key} is refused: {text}", now)
        return refuse(r, token, ErrorCode.INVALID_REQUEST)
    leading, at, level = r.leading, r.members.current_offset, r.members.kraft_version
    assert leading is not None
    if level >= 1 and (leading.writing or r.hwm is None or at is None or at >= r.hwm):
        return refuse(r, token, ErrorCode.REQUEST_TIMED_OUT)
    if leading.upgrade_tokens:  # what would be noted now is no longer looked at
        return refuse(r, token, ErrorCode.REQUEST_TIMED_OUT)
    if not low <= level <= high:
        return refuse(r, token, ErrorCode.INVALID_REQUEST)
    if not r.voters.is_voter(key):
        return refuse(r, token, ErrorCode.VOTER_NOT_FOUND)
    if level == 0:
        leading.reported[key.id] = q.voter
    else:
        shared = changes.shared_address(r.voters, q.voter, leading.reported)
        if (
            shared is not None
        ):  # two that change places have both told so in the end; INVALID_REQUEST would end a Kafka voter
            complain(r, "shared address", f"UpdateRaftVoter of {key} is refused: {shared}", now)
            leading.reported[key.id] = q.voter
            return refuse(r, token, ErrorCode.REQUEST_TIMED_OUT)
        leading.reported.pop(key.id, None)
        new = r.voters.updated(key.id, q.voter.endpoints, q.voter.kraft_versions, key.directory_id)
        if new != r.voters:
            leading.writing = True
            r.effects.append_control = [(KRAFT_VOTERS, voters_record(new))]
    mark_heard(r, key, now)
    return r.answer(token, VoterReply())


# --- kraft.version 0 -> 1 -------------------------------------------------------------------------


def on_upgrade(r: Raft, q: UpgradeKraftVersion, now: float) -> None:
    """Writes KRaftVersion and Voters once every voter has told its directory id and range; answered
    when committed."""
    leading = r.leading
    if leading is None or q.epoch != r.epoch:
        return refuse(r, q.token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    level = r.members.kraft_version
    if level == q.level and not leading.upgrade_tokens:
        return r.answer(q.token, VoterReply())
    if leading.upgrade_tokens:
        leading.upgrade_tokens.append(q.token)
        return None
    if q.level < level or not r.params.kraft_versions[0] <= q.level <= r.params.kraft_versions[1]:
        return refuse(
            r, q.token, ErrorCode.INVALID_UPDATE_VERSION, f"kraft.version cannot go from {level} to {q.level}"
        )
    me = Voter(r.me, r.params.endpoints, r.params.kraft_versions)
    known = {**leading.reported, r.me.id: me}
    for voter in r.voters:
        if voter.id not in known:
            text = f"voter {voter.id} has not told its directory id and kraft.version range yet"
            return refuse(r, q.token, ErrorCode.INVALID_UPDATE_VERSION, text)
        low, high = known[voter.id].kraft_versions
        if not low <= q.level <= high:
            text = f"voter {voter.id} supports kraft.version {low} to {high}"
            return refuse(r, q.token, ErrorCode.INVALID_UPDATE_VERSION, text)
    if q.validate_only:
        return r.answer(q.token, VoterReply())
    leading.upgrade_tokens.append(q.token)
    voters = VoterSet.of(known[v.id] for v in r.voters)
    r.effects.append_control = [
        (KRAFT_VERSION, kraft_version_record(q.level)),
        (KRAFT_VOTERS, voters_record(voters)),
    ]
    return None


def reply_endpoints(r: Raft, listener: str) -> Endpoints:
    """The leader's endpoint under one listener name, as answers carry it."""
    if r.leader_id is None:
        return {}
    endpoints = r.leader_endpoints or r.voters.endpoints(r.leader_id)
    return {listener: endpoints[listener]} if listener in endpoints else {}
