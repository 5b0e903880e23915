"""Voter sets and kraft.version: control records applied, AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853).

One change at a time, of at most one voter. A change acts when appended and is answered when committed (an update at once).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode
from quorate.raft.messages import (
    AddVoter,
    ControlRecord,
    Failure,
    Peer,
    ProbeReply,
    ProbeVersions,
    RemoveVoter,
    Replied,
    Token,
    UpdateVoter,
    UpgradeKraftVersion,
    VoterReply,
)
from quorate.raft.types import NO_DIRECTORY, Endpoints, RaftError, ReplicaKey
from quorate.raft.voters import Voter, VoterSet

if TYPE_CHECKING:
    from quorate.protocol.schema import Data
    from quorate.raft.core import Raft
    from quorate.raft.replication import Leading
    from quorate.records.control import KRaftVersionRecord, VotersRecord

log = logging.getLogger(__name__)

LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = 2, 3, 4, 5, 6  # ControlRecordType
CAUGHT_UP_WITHIN_S = 3600.0  # a replica that was caught up within the hour may be added, as in Kafka
REMOVE_TIMEOUT_S = 2.0  # Kafka bounds the commit of a removal by its request timeout; an addition by the request's own


@dataclass(slots=True)
class Change:
    """A voter change under way: an addition first asks the new voter's ApiVersions, then both wait for the commit."""

    token: Token
    deadline: float
    adding: Voter | None = None
    probe: ProbeVersions | None = None
    offset: int | None = None  # of the VotersRecord, once appended
    ack_when_committed: bool = True


# --- control records ------------------------------------------------------------------------------------------------


def voters_record(voters: VoterSet) -> VotersRecord:
    from quorate.records.control import VotersRecord

    return VotersRecord(
        version=0,
        voters=[
            VotersRecord.Voter(
                voter_id=v.id,
                voter_directory_id=v.key.directory_id,
                endpoints=[VotersRecord.Endpoint(name=n, host=h, port=p) for n, (h, p) in v.endpoints.items()],
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
    """A new leader's first batch: LeaderChange, and the voter set where the log lacks it or our entry has changed."""
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
            raise RaftError(f"kraft.version is {r.members.kraft_version}, but neither log nor snapshot has a voter set")
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


def apply_control(r: Raft, control: ControlRecord) -> None:
    """Voter sets and kraft.version act when appended. Raises RaftError when the record breaks their rules."""
    if control.type == KRAFT_VOTERS:
        r.members.add_voters(control.offset, voter_set(control.value))  # type: ignore[arg-type]
        log.info("[Raft id=%d] voters at offset %d: %s", r.me.id, control.offset, [str(v.key) for v in r.voters])
        leading = r.leading
        if leading is not None and leading.change is not None and leading.change.offset is None:
            change = leading.change
            change.offset = control.offset
            if not change.ack_when_committed:
                r.answer(change.token, VoterReply())
    elif control.type == KRAFT_VERSION:
        before = r.members.kraft_version
        r.members.add_kraft_version(control.offset, control.value.kraft_version)  # type: ignore[attr-defined]
        if before != r.members.kraft_version:
            r.persist(again=True)  # quorum-state changes its version with kraft.version


# --- preconditions that changes share -------------------------------------------------------------------------------


def refuse(r: Raft, token: Token, error: ErrorCode, message: str | None = None) -> None:
    r.answer(token, VoterReply(error, message=message))


def not_ready(r: Raft, request: AddVoter | RemoveVoter, token: Token) -> bool:
    """Refuses when this replica does not lead or cannot change the voter set now; whether it refused."""
    from quorate.raft.election import wrong_cluster

    leading = r.leading
    if wrong_cluster(r, request.cluster_id):
        text = f'the given id "{request.cluster_id}" is not the cluster id "{r.params.cluster_id}"'
        refuse(r, token, ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    elif leading is None:
        refuse(r, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif r.shutting_down:
        refuse(r, token, ErrorCode.BROKER_NOT_AVAILABLE)
    else:
        return False
    return True


def cannot_change(r: Raft, token: Token) -> bool:
    leading = r.leading
    assert leading is not None
    at = r.members.current_offset
    if leading.change is not None:
        refuse(r, token, ErrorCode.REQUEST_TIMED_OUT, "an earlier voter change is not finished")
    elif leading.upgrade_tokens:
        refuse(r, token, ErrorCode.REQUEST_TIMED_OUT, "a change of kraft.version is not finished")
    elif r.hwm is None:
        refuse(r, token, ErrorCode.REQUEST_TIMED_OUT, "the leader has not yet committed a record of its epoch")
    elif r.members.kraft_version < 1:
        refuse(r, token, ErrorCode.UNSUPPORTED_VERSION, "voters can be changed from kraft.version 1 on, it is 0")
    elif at is None or at >= r.hwm:
        refuse(r, token, ErrorCode.REQUEST_TIMED_OUT, f"the voter set at offset {at} is not committed (HWM {r.hwm})")
    else:
        return False
    return True


# --- AddRaftVoter ---------------------------------------------------------------------------------------------------


def on_add_voter(r: Raft, q: AddVoter, token: Token, now: float) -> None:
    if not_ready(r, q, token):
        return None
    key, listener = q.voter.key, r.params.listener_name
    if key.id < 0 or key.directory_id == NO_DIRECTORY:
        return refuse(r, token, ErrorCode.INVALID_REQUEST, "no voter id or no directory id")
    if listener not in q.voter.endpoints:
        return refuse(r, token, ErrorCode.INVALID_REQUEST, f"the voter has no endpoint for listener {listener}")
    if cannot_change(r, token):
        return None
    if key.id in r.voters.by_id:
        old = r.voters.by_id[key.id].key
        text = f"a voter with id {key.id} is there already: {old}"
        if old != key:
            from quorate.protocol.uuids import uuid_text

            text += (
                f"; remove it first: kafka-metadata-quorum remove-controller --controller-id {old.id}"
                f" --controller-directory-id {uuid_text(old.directory_id)}"
            )
        return refuse(r, token, ErrorCode.DUPLICATE_VOTER, text)
    probe = ProbeVersions()
    if not r.send(Peer(key.id, q.voter.endpoints[listener]), probe, now):
        return refuse(r, token, ErrorCode.REQUEST_TIMED_OUT, f"voter {key} cannot be reached now")
    assert r.leading is not None
    deadline = now + max(0.0, q.timeout_ms / 1000)
    r.leading.change = Change(token, deadline, q.voter, probe, ack_when_committed=q.ack_when_committed)
    return None


def on_probe_reply(r: Raft, event: Replied, now: float) -> bool:
    leading = r.leading
    change = leading.change if leading is not None else None
    if leading is None or change is None or change.probe is not event.request or change.adding is None:
        return True
    change.probe = None
    reply, key, level = event.reply, change.adding.key, r.members.kraft_version
    from quorate.raft.replication import progress_of

    progress = progress_of(r, key)
    error, text = ErrorCode.NONE, ""
    if isinstance(reply, Failure) or reply.error != ErrorCode.NONE:
        why = reply.value if isinstance(reply, Failure) else reply.error.name
        error, text = ErrorCode.REQUEST_TIMED_OUT, f"ApiVersions of voter {key} failed: {why}"
    elif not isinstance(reply, ProbeReply) or not reply.kraft_versions[0] <= level <= reply.kraft_versions[1]:
        span = reply.kraft_versions if isinstance(reply, ProbeReply) else (0, 0)
        error, text = ErrorCode.INVALID_REQUEST, f"voter {key} supports kraft.version {span}, the cluster is at {level}"
    elif progress is None or progress.last_caught_up is None or now - (progress.last_fetch or 0) > CAUGHT_UP_WITHIN_S:
        error, text = ErrorCode.REQUEST_TIMED_OUT, f"voter {key} has not caught up with the leader's log"
    if error != ErrorCode.NONE:
        leading.change = None
        log.info("[Raft id=%d] not adding a voter: %s", r.me.id, text)
        refuse(r, change.token, error, text)
        return not isinstance(reply, Failure)
    assert isinstance(reply, ProbeReply)
    voter = Voter(key, change.adding.endpoints, reply.kraft_versions)
    r.fx.append_control = [(KRAFT_VOTERS, voters_record(r.voters.with_voter(voter)))]
    return True


# --- RemoveRaftVoter ------------------------------------------------------------------------------------------------


def on_remove_voter(r: Raft, q: RemoveVoter, token: Token, now: float) -> None:
    if not_ready(r, q, token):
        return None
    if q.key.id < 0 or q.key.directory_id == NO_DIRECTORY:
        return refuse(r, token, ErrorCode.INVALID_REQUEST, "no voter id or no directory id")
    if cannot_change(r, token):
        return None
    if not r.voters.has_key(q.key) or len(r.voters) == 1:
        text = f"cannot remove voter {q.key} from {[str(v.key) for v in r.voters]}"
        return refuse(r, token, ErrorCode.VOTER_NOT_FOUND, text)
    assert r.leading is not None
    r.leading.change = Change(token, now + REMOVE_TIMEOUT_S)
    r.fx.append_control = [(KRAFT_VOTERS, voters_record(r.voters.without(q.key.id)))]
    return None


def on_high_watermark(r: Raft, now: float) -> None:
    """A change that has committed is answered; a leader that is out of the set then resigns."""
    leading = r.leading
    if leading is None or r.hwm is None:
        return
    change = leading.change
    if change is not None and change.offset is not None and r.hwm > change.offset:
        leading.change = None
        if change.ack_when_committed:
            r.answer(change.token, VoterReply())
    if leading.upgrade_tokens and r.members.kraft_version_at(r.hwm - 1) >= 1:
        tokens, leading.upgrade_tokens = leading.upgrade_tokens, []
        for token in tokens:
            r.answer(token, VoterReply())
    at = r.members.current_offset
    if not r.is_voter and at is not None and r.hwm > at:
        log.info("[Raft id=%d] resigning: no longer a voter", r.me.id)
        r.become_resigned(now)


def drive_change(r: Raft, now: float) -> None:
    leading = r.leading
    if leading is None or leading.change is None:
        return None
    change = leading.change
    if now < change.deadline:
        return r.wake(change.deadline)
    leading.change = None
    step = "ApiVersions of the new voter" if change.probe is not None else "the commit of the voter set"
    if change.ack_when_committed or change.offset is None:
        refuse(r, change.token, ErrorCode.REQUEST_TIMED_OUT, f"timed out waiting for {step}")
    return None


def fail_pending(r: Raft, leading: Leading) -> None:
    """Leadership is lost: whoever waits must ask the next leader."""
    change = leading.change
    if change is not None and (change.ack_when_committed or change.offset is None):
        refuse(r, change.token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for token in leading.upgrade_tokens:
        refuse(r, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)


# --- UpdateRaftVoter ------------------------------------------------------------------------------------------------


def on_update_voter(r: Raft, q: UpdateVoter, token: Token, now: float) -> None:
    from quorate.raft.election import wrong_cluster
    from quorate.raft.replication import leader_error, mark_heard

    if wrong_cluster(r, q.cluster_id):
        return refuse(r, token, ErrorCode.INCONSISTENT_CLUSTER_ID)
    error = leader_error(r, q.epoch)
    if error != ErrorCode.NONE:
        return refuse(r, token, error)
    key, (low, high), listener = q.voter.key, q.voter.kraft_versions, r.params.listener_name
    if key.id < 0 or key.directory_id == NO_DIRECTORY or listener not in q.voter.endpoints or not 0 <= low <= high:
        return refuse(r, token, ErrorCode.INVALID_REQUEST)
    leading, at, level = r.leading, r.members.current_offset, r.members.kraft_version
    assert leading is not None
    if leading.change is not None or leading.upgrade_tokens or r.hwm is None:
        return refuse(r, token, ErrorCode.REQUEST_TIMED_OUT)
    if level >= 1 and (at is None or at >= r.hwm):
        return refuse(r, token, ErrorCode.REQUEST_TIMED_OUT)
    if not low <= level <= high:
        return refuse(r, token, ErrorCode.INVALID_REQUEST)
    if not r.voters.is_voter(key):
        return refuse(r, token, ErrorCode.VOTER_NOT_FOUND)
    if level == 0:
        leading.reported[key.id] = q.voter
    else:
        new = r.voters.updated(key.id, q.voter.endpoints, q.voter.kraft_versions, key.directory_id)
        if new != r.voters:
            r.fx.append_control = [(KRAFT_VOTERS, voters_record(new))]
    mark_heard(r, key, now)
    return r.answer(token, VoterReply())


def drive_update(r: Raft, now: float) -> None:
    """A following voter tells the leader its endpoints and range when they are not what the voter set says."""
    f = r.following
    if f is None or r.leader_id is None:
        return
    if now >= f.update_voter_at:
        wanted = needs_update(r) if r.members.kraft_version >= 1 else not f.updated_leader
        address = r.address_of(r.leader_id)
        if not wanted or address is None:
            f.update_voter_at = now + r.params.update_voter_period_s
        else:
            entry = Voter(r.me, r.params.endpoints, r.params.kraft_versions)
            if r.send(Peer(r.leader_id, address), UpdateVoter(entry, r.epoch, r.params.cluster_id), now):
                f.update_voter_at = now + r.params.update_voter_period_s
    if f.update_voter_at > now:  # else the link's own alarm or the answer under way comes first
        r.wake(f.update_voter_at)


def on_update_reply(r: Raft, event: Replied, now: float) -> bool:
    from quorate.raft.election import common_reply

    reply = event.reply
    if isinstance(reply, Failure):
        return reply is Failure.UNSUPPORTED_VERSION  # an older leader does without
    handled = common_reply(r, reply, now)
    if handled is not None:
        return handled
    if reply.error not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        log.info("[Raft id=%d] UpdateRaftVoter: %s", r.me.id, reply.error.name)
        if r.following is not None and reply.error == ErrorCode.REQUEST_TIMED_OUT:  # a change is pending: soon again
            r.following.update_voter_at = now + r.params.begin_epoch_period_s
            return True
        return False
    f = r.following
    if f is not None and reply.leader_id == r.leader_id and reply.epoch == r.epoch:
        f.updated_leader = True
        f.fetch_deadline = now + r.params.fetch_timeout_s
    return True


# --- kraft.version 0 -> 1 -------------------------------------------------------------------------------------------


def on_upgrade(r: Raft, q: UpgradeKraftVersion, now: float) -> None:
    """Writes KRaftVersion and Voters once every voter has told its directory id and range; answered when committed."""
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
        return refuse(r, q.token, ErrorCode.INVALID_UPDATE_VERSION, f"kraft.version cannot go from {level} to {q.level}")
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
    r.fx.append_control = [(KRAFT_VERSION, kraft_version_record(q.level)), (KRAFT_VOTERS, voters_record(voters))]
    return None


def reply_endpoints(r: Raft, listener: str) -> Endpoints:
    """The leader's endpoint under one listener name, as answers carry it."""
    if r.leader_id is None:
        return {}
    endpoints = r.leader_endpoints or r.voters.endpoints(r.leader_id)
    return {listener: endpoints[listener]} if listener in endpoints else {}
