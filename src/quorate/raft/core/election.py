"""Votes, pre-votes and the announcements of a leader: BeginQuorumEpoch, EndQuorumEpoch (KIP-595, KIP-996)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode
from quorate.raft.core.leader_conflict import accepted, complain, contradicts
from quorate.raft.core.messages import (
    BeginEpoch,
    EndEpoch,
    EpochReply,
    Failure,
    Peer,
    Replied,
    Reply,
    Token,
    Vote,
    VoteReply,
)
from quorate.raft.types import NO_DIRECTORY, RaftError, ReplicaKey, Role

if TYPE_CHECKING:
    from quorate.raft.core.raft import Raft

log = logging.getLogger(__name__)
MAX_EPOCH_STEP = 1 << 24  # elections that a replica may have missed: 46 hours with a hundred a second


def wrong_cluster(r: Raft, cluster_id: str | None) -> bool:
    return cluster_id is not None and cluster_id != r.params.cluster_id


def addressed_to_other(r: Raft, voter: ReplicaKey | None) -> bool:
    """Whether the sender means another replica: another id, or another directory of this id."""
    if voter is None:
        return False
    return voter.id != r.me.id or voter.directory_id not in (NO_DIRECTORY, r.me.directory_id)


def epoch_too_far_ahead(r: Raft, epoch: int) -> bool:
    """Whether no quorum of ours can have come to this epoch. Epochs never fall and end at 2^31 - 1: a
    single request, by whomever, must not use them up (Kafka takes any epoch)."""
    return epoch - r.epoch > MAX_EPOCH_STEP


# --- Vote -----------------------------------------------------------------------------------------


def on_vote(r: Raft, q: Vote, token: Token, now: float) -> None:
    if wrong_cluster(r, q.cluster_id):
        return r.answer(token, VoteReply(ErrorCode.INCONSISTENT_CLUSTER_ID, top_level=True))
    illegal_epoch = q.last.epoch > q.epoch if q.pre_vote else q.last.epoch >= q.epoch
    if q.last.offset < 0 or q.last.epoch < 0 or illegal_epoch:
        return r.answer(token, VoteReply(ErrorCode.INVALID_REQUEST))
    if q.epoch < r.epoch:
        return r.answer(token, VoteReply(ErrorCode.FENCED_LEADER_EPOCH))
    if q.candidate.id < 0 or epoch_too_far_ahead(r, q.epoch):
        return r.answer(token, VoteReply(ErrorCode.INVALID_REQUEST))
    if q.epoch > r.epoch:
        r.become_unattached(q.epoch, None, now)
    if addressed_to_other(r, q.voter):
        return r.answer(token, VoteReply(ErrorCode.INVALID_VOTER_KEY))
    granted = may_grant(r, q)
    if granted and not q.pre_vote and r.voted is None:
        r.voted = q.candidate
        r.election_deadline = r.draw_election_deadline(
            now
        )  # the candidate's chance is at least as good as ours
        r.persist()
    elif granted and q.pre_vote:
        r.defer_to(q.candidate, q.last, now)
    elif (
        not q.pre_vote
        and r.role is Role.UNATTACHED
        and r.voted is None
        and q.last.log_order < r.end.log_order
    ):
        r.request_votes_soon(now)  # a candidate without all of our log may not win where we can
    log.info(
        "[Raft id=%d] %s for %s epoch=%d last=%s: %s",
        r.me.id, "pre-vote" if q.pre_vote else "vote", q.candidate, q.epoch, tuple(q.last), granted,
    )  # fmt: skip
    return r.answer(token, VoteReply(granted=granted))


def may_grant(r: Raft, q: Vote) -> bool:
    """Whether this replica grants the vote, by its role and the kind of vote: `canGrantVote` of Kafka's
    `EpochState` classes."""
    up_to_date = q.last.log_order >= r.end.log_order
    match r.role:
        case Role.LEADER:
            return False
        case Role.FOLLOWER:
            f = r.following
            return q.pre_vote and up_to_date and f is not None and not f.heard
        case Role.CANDIDATE | Role.RESIGNED:
            return q.pre_vote and up_to_date
    if q.pre_vote:
        return up_to_date
    if r.voted is not None:
        return r.voted.id == q.candidate.id and r.voted.directory_id in (
            NO_DIRECTORY,
            q.candidate.directory_id,
        )
    return r.leader_id is None and up_to_date


def on_vote_reply(r: Raft, event: Replied, now: float) -> bool:
    reply, request = event.reply, event.request
    assert isinstance(request, Vote)
    unsupported = reply is Failure.UNSUPPORTED_VERSION or (
        isinstance(reply, Reply) and reply.top_level and reply.error == ErrorCode.UNSUPPORTED_VERSION
    )
    if unsupported and r.role is Role.PROSPECTIVE and request.epoch == r.epoch:
        log.info(
            "[Raft id=%d] voter %d knows no pre-vote: standing for election at once", r.me.id, event.to.id
        )
        r.become_candidate(now)
        return True
    if isinstance(reply, Failure):
        if reply is Failure.DISCONNECTED and r.election is not None and request.epoch == r.epoch:
            r.election.unreachable.add(event.to.id)
            give_up_if_it_cannot_win(r, now)
        return False
    if reply.top_level:
        return top_level_error(r, event, reply, now)
    handled = common_reply(r, event, reply, now)
    if handled is not None:
        return handled
    if not isinstance(reply, VoteReply):
        raise RaftError("an answer of another kind to Vote")
    nominee = Role.PROSPECTIVE if request.pre_vote else Role.CANDIDATE
    if reply.error != ErrorCode.NONE:
        unexpected(r, event, reply, now)
        return False
    if r.election is None or r.role is not nominee or request.epoch != r.epoch:
        return True  # from an election that is over
    if event.to.id in r.election.votes and r.election.votes[event.to.id] is None:
        r.election.votes[event.to.id] = reply.granted
        r.forward_if_won(now)
        give_up_if_it_cannot_win(r, now)
    return True


def give_up_if_it_cannot_win(r: Raft, now: float) -> None:
    """Somebody has refused, and only voters that cannot be reached could still make a majority."""
    election = r.election
    if election is None or not election.cannot_win() or not any(v is False for v in election.votes.values()):
        return
    if r.role is Role.PROSPECTIVE:
        r.lose_election(now)
    else:
        r.back_off(now)


def drive_nominee(r: Raft, now: float) -> None:
    election = r.election
    if election is None or election.rejected():
        return
    if r.role is Role.CANDIDATE and r.unsynced:
        return  # a vote holds for the whole epoch: also if the candidate comes back from a crash with what was durable alone
    for voter in election.voters:
        if election.votes.get(voter.id) is None and voter.id != r.me.id:
            address = r.voters.address(voter.id, r.params.listener_name) or voter.endpoints.get(
                r.params.listener_name
            )
            if address is not None:
                r.send(Peer(voter.id, address), vote_request(r, voter.key), now)


def vote_request(r: Raft, voter: ReplicaKey) -> Vote:
    return Vote(r.epoch, r.me, r.end, voter, r.role is Role.PROSPECTIVE, r.params.cluster_id)


# --- BeginQuorumEpoch, EndQuorumEpoch -------------------------------------------------------------


def not_of_a_leader(r: Raft, q: BeginEpoch | EndEpoch, now: float) -> EpochReply | None:
    """The answer to one that does not come from the leader of this or a later epoch of this cluster;
    else None."""
    if wrong_cluster(r, q.cluster_id):
        return EpochReply(ErrorCode.INCONSISTENT_CLUSTER_ID, top_level=True)
    if q.epoch < r.epoch:
        return EpochReply(ErrorCode.FENCED_LEADER_EPOCH)
    if q.leader_id < 0 or epoch_too_far_ahead(r, q.epoch):
        return EpochReply(ErrorCode.INVALID_REQUEST)
    endpoints = q.endpoints or r.voters.endpoints(q.leader_id)
    if contradicts(r, q.epoch, q.leader_id) and not accepted(
        r, type(q).__name__, None, q.leader_id, endpoints, now
    ):
        return EpochReply(ErrorCode.INVALID_REQUEST)
    return None


def on_begin_epoch(r: Raft, q: BeginEpoch, token: Token, now: float) -> None:
    refusal = not_of_a_leader(r, q, now)
    if refusal is not None:
        return r.answer(token, refusal)
    r.adopt(q.epoch, q.leader_id, q.endpoints, now)
    if addressed_to_other(r, q.voter):
        return r.answer(token, EpochReply(ErrorCode.INVALID_VOTER_KEY))
    return r.answer(token, EpochReply())


def on_end_epoch(r: Raft, q: EndEpoch, token: Token, now: float) -> None:
    refusal = not_of_a_leader(r, q, now)
    if refusal is not None:
        return r.answer(token, refusal)
    r.adopt(q.epoch, q.leader_id, q.endpoints, now)
    if r.following is not None and r.leader_id == q.leader_id and r.epoch == q.epoch:
        wait_s = end_epoch_backoff_s(r, q.preferred)
        r.following.heard = False
        r.following.fetch_deadline = now + wait_s
        if (
            wait_s == 0
            and r.may_stand
            and r.params.quick_failover
            and not r.shutting_down
            and r.installing is None
        ):
            r.become_prospective(now)  # the leader itself has asked for it: nobody's pre-vote is needed
            if r.role is Role.PROSPECTIVE:
                r.become_candidate(now)
    return r.answer(token, EpochReply())


def end_epoch_backoff_s(r: Raft, preferred: object) -> float:
    """The preferred successor stands at once, the others wait, doubling with their place in the list."""
    keys = list(preferred)  # type: ignore[call-overload]
    place = next(
        (
            p
            for p, k in enumerate(keys)
            if k.id == r.me.id and k.directory_id in (NO_DIRECTORY, r.me.directory_id)
        ),
        None,
    )
    if place is None:
        return r.params.backoff_max_s
    if place == 0:
        return 0.0
    return r.params.backoff_max_s * 2.0 ** (place - len(keys))


def on_epoch_reply(r: Raft, event: Replied, now: float) -> bool:
    reply = event.reply
    if isinstance(reply, Failure):
        return False
    if reply.top_level:
        return top_level_error(r, event, reply, now)
    handled = common_reply(r, event, reply, now)
    if handled is not None:
        return handled
    if reply.error != ErrorCode.NONE:
        unexpected(r, event, reply, now)
        return False
    if isinstance(event.request, EndEpoch) and r.role is Role.RESIGNED and event.request.epoch == r.epoch:
        r.unacknowledged.discard(event.to.id)
    return True


def drive_resigned(r: Raft, now: float) -> None:
    for node_id in sorted(r.unacknowledged):
        address = r.voters.address(node_id, r.params.listener_name)
        if address is not None:
            q = EndEpoch(r.me.id, r.epoch, r.successors, r.params.endpoints, r.params.cluster_id)
            r.send(Peer(node_id, address), q, now)


# --- what all answers have in common --------------------------------------------------------------


def unexpected(r: Raft, event: Replied, reply: Reply, now: float) -> None:
    """An error that no peer of ours should have to give: logged, and asked again after the back-off."""
    host, port = event.to.address
    name, text = type(event.request).__name__, f": {reply.message}" if reply.message else ""
    complain(
        r, f"{name} {reply.error.name}", f"{host}:{port} answers {name} with {reply.error.name}{text}", now
    )


def top_level_error(r: Raft, event: Replied, reply: Reply, now: float) -> bool:
    """False: back off. Kafka's controllers end where the cluster does not let them in; here what is put
    right later is enough, and whoever says so need not be of the cluster."""
    if reply.error != ErrorCode.BROKER_NOT_AVAILABLE:
        unexpected(r, event, reply, now)
    return False


def common_reply(r: Raft, event: Replied, reply: Reply, now: float) -> bool | None:
    """Learns leader and epoch from an answer. True or False when nothing is left to do with it (False:
    back off)."""
    endpoints = reply.leader_endpoints
    if not endpoints and reply.leader_id is not None:
        endpoints = r.voters.endpoints(reply.leader_id)
    if reply.epoch < r.epoch or reply.error == ErrorCode.UNKNOWN_LEADER_EPOCH:
        return True
    if epoch_too_far_ahead(r, reply.epoch):
        complain(
            r, "epoch", f"an answer of {event.to.address} names epoch {reply.epoch}, ours is {r.epoch}", now
        )
        return False
    if reply.leader_id is not None and contradicts(r, reply.epoch, reply.leader_id):
        what = f"{event.to.address[0]}:{event.to.address[1]}, answering {type(event.request).__name__},"
        if not accepted(r, what, event.to.id, reply.leader_id, endpoints, now):
            return False
        r.adopt(reply.epoch, reply.leader_id, endpoints, now)
        return True
    if reply.epoch > r.epoch or reply.error in (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ):
        r.adopt(reply.epoch, reply.leader_id, endpoints, now)
        return True
    if reply.leader_id is not None and r.role in (Role.UNATTACHED, Role.CANDIDATE, Role.PROSPECTIVE):
        before = r.role
        r.adopt(reply.epoch, reply.leader_id, endpoints, now)
        if r.role is not before and reply.error != ErrorCode.NONE:
            return True
        return None
    if reply.error == ErrorCode.BROKER_NOT_AVAILABLE:
        return False
    if reply.error == ErrorCode.INVALID_VOTER_KEY:
        if (more := r.repeats.due("voter key", now)) is not None:
            log.info(
                "[Raft id=%d] the voter key sent to %s is not the receiver's%s",
                r.me.id,
                event.to.address,
                more,
            )
        return False  # asked again, but not at once
    if reply.error == ErrorCode.INVALID_REQUEST:  # Kafka's controllers end here
        unexpected(r, event, reply, now)
        return False
    return None
