"""Elections: Vote (with pre-vote), BeginQuorumEpoch and EndQuorumEpoch (KIP-595, KIP-996)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import transitions
from quorate.raft.core.events import Replied
from quorate.raft.core.leader_conflict import accept_claim, names_other_leader
from quorate.raft.core.messages import (
    BeginEpoch,
    EndEpoch,
    EpochReply,
    Failure,
    Peer,
    Reply,
    Token,
    Vote,
    VoteReply,
)
from quorate.raft.core.replies import log_unexpected_error, on_common_reply, on_top_level_error
from quorate.raft.core.state import RaftState
from quorate.raft.core.voters import Voter
from quorate.raft.types import NO_DIRECTORY, Address, RaftError, ReplicaKey, Role

logger = logging.getLogger(__name__)


# --- Vote -----------------------------------------------------------------------------------------


def on_vote(r: RaftState, q: Vote, token: Token, now: float) -> None:
    if r.is_other_cluster(q.cluster_id):
        return r.answer(token, VoteReply(ErrorCode.INCONSISTENT_CLUSTER_ID, top_level=True))
    illegal_epoch = q.last.epoch > q.epoch if q.pre_vote else q.last.epoch >= q.epoch
    if q.last.offset < 0 or q.last.epoch < 0 or illegal_epoch:
        return r.answer(token, VoteReply(ErrorCode.INVALID_REQUEST))
    if q.epoch < r.epoch:
        return r.answer(token, VoteReply(ErrorCode.FENCED_LEADER_EPOCH))
    if q.candidate.id < 0 or r.is_epoch_too_far_ahead(q.epoch):
        return r.answer(token, VoteReply(ErrorCode.INVALID_REQUEST))
    if q.epoch > r.epoch:
        transitions.become_unattached(r, q.epoch, None, now)
    if r.is_other_replica(q.voter):
        return r.answer(token, VoteReply(ErrorCode.INVALID_VOTER_KEY))
    granted = may_grant(r, q)
    if granted and not q.pre_vote and r.voted is None:
        r.voted = q.candidate
        # The candidate's log is at least as up to date as this one, so it gets a full election timeout
        # to win.
        r.election_deadline = transitions.draw_election_deadline(r, now)
        transitions.persist(r)
    elif granted and q.pre_vote:
        transitions.defer_to(r, q.candidate, q.last, now)
    elif q.pre_vote and q.last.log_order < r.end.log_order:
        transitions.request_pre_votes_now(r, now)
    elif (
        not q.pre_vote
        and r.role is Role.UNATTACHED
        and r.voted is None
        and q.last.log_order < r.end.log_order
    ):
        transitions.request_votes_soon(r, now)
    logger.info(
        "[Raft id=%d] %s for %s epoch=%d last=%s: %s",
        r.me.id, "pre-vote" if q.pre_vote else "vote", q.candidate, q.epoch, tuple(q.last), granted,
    )  # fmt: skip
    return r.answer(token, VoteReply(granted=granted))


def may_grant(r: RaftState, q: Vote) -> bool:
    """Whether this replica grants a vote or a pre-vote (`canGrantVote` of Kafka's `EpochState` classes).

    The candidate's log must be at least as up to date as this one (Raft, section 5.4.1).

    - A pre-vote of KIP-996 is refused by a leader, and by a follower that has fetched from its leader in
      this epoch. So a replica that is cut off from a live leader cannot start an election
      against it.
    - A vote is granted to one candidate in an epoch, and only by an unattached or prospective replica
      that knows no leader of the epoch.
    """
    up_to_date = q.last.log_order >= r.end.log_order
    match r.role:
        case Role.LEADER:
            return False
        case Role.FOLLOWER:
            f = r.following
            return q.pre_vote and up_to_date and f is not None and not f.has_fetched
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


def on_vote_reply(r: RaftState, event: Replied, now: float) -> bool:
    reply, request = event.reply, event.request
    assert isinstance(request, Vote)
    unsupported = reply is Failure.UNSUPPORTED_VERSION or (
        isinstance(reply, Reply) and reply.top_level and reply.error == ErrorCode.UNSUPPORTED_VERSION
    )
    # At a bootstrap server there may be anything, such as the listener of a broker.
    at_voter = event.to.address == r.voters.address(event.to.id, r.params.listener_name)
    if unsupported and at_voter and r.role is Role.PROSPECTIVE and request.epoch == r.epoch:
        logger.info(
            "[Raft id=%d] voter %d does not support pre-vote; becoming a candidate at once",
            r.me.id,
            event.to.id,
        )
        transitions.become_candidate(r, now)
        return True
    if isinstance(reply, Failure):
        on_voter_not_found(r, event, now)
        return False
    if reply.top_level:
        on_voter_not_found(r, event, now)
        return on_top_level_error(r, event, reply, now)
    handled = on_common_reply(r, event, reply, now)
    if handled is not None:
        if reply.error == ErrorCode.INVALID_VOTER_KEY:
            on_voter_not_found(r, event, now)
        return handled
    if not isinstance(reply, VoteReply):
        raise RaftError("Vote was answered by a response of another type")
    nominee = Role.PROSPECTIVE if request.pre_vote else Role.CANDIDATE
    if reply.error != ErrorCode.NONE:
        log_unexpected_error(r, event, reply, now)
        return False
    if at_voter:
        r.not_found_at.pop(event.to.id, None)
    if r.election is None or r.role is not nominee or request.epoch != r.epoch:
        return True  # from an election that has ended
    if event.to.id in r.election.votes and r.election.votes[event.to.id] is None:
        r.election.votes[event.to.id] = reply.granted
        transitions.promote_if_elected(r, now)
        give_up_if_unwinnable(r, now)
    return True


def vote_addresses(r: RaftState, voter: Voter) -> list[Address]:
    """Where a voter may be asked for its vote: at its address in the voter set, and at the bootstrap servers
    that no voter is known to have.

    A voter may have returned with another address, which only the leader can put into the voter set. If a
    majority of the voters has, no candidate can win at the old addresses. A Vote names the voter that it
    is for, and another replica refuses it. Apache Kafka's controllers ask at the first address only.

    Under kraft.version 0, a controller of an older release may answer, whose version 0 of Vote names no voter:
    its vote would count twice. The addresses of such voters are in the configuration.
    """
    listener = r.params.listener_name
    known = r.voters.address(voter.id, listener) or voter.endpoints.get(listener)
    addresses = [] if known is None else [known]
    if r.members.kraft_version >= 1:
        taken = {other.endpoints.get(listener) for other in r.voters} | {r.params.endpoints.get(listener)}
        addresses += [address for address in r.params.bootstrap if address not in taken]
    return addresses


def on_voter_not_found(r: RaftState, event: Replied, now: float) -> None:
    """Notes that a voter has not answered at an address. The next Vote also goes to another of its addresses.

    When it has not answered at any of them, it counts as unreachable in this election, and its addresses are
    tried again. A voter with one address is unreachable only if there is no connection to it.
    """
    to, voters = event.to, r.voters if r.election is None else r.election.voters
    voter = voters.by_id.get(to.id)
    if voter is None:
        return
    addresses = vote_addresses(r, voter)
    if len(addresses) == 1 and event.reply is not Failure.DISCONNECTED:
        return
    missed = r.not_found_at.setdefault(to.id, set())
    missed.add(to.address)
    if missed.issuperset(addresses):
        del r.not_found_at[to.id]
        if r.election is not None and isinstance(event.request, Vote) and event.request.epoch == r.epoch:
            r.election.unreachable.add(to.id)
            give_up_if_unwinnable(r, now)


def give_up_if_unwinnable(r: RaftState, now: float) -> None:
    """Ends an election early when it can no longer be won.

    An election is lost when the granted votes and the votes that may still come are fewer than a majority.
    It is ended early only if at least one voter has refused its vote.
    """
    election = r.election
    if election is None or not election.cannot_win() or not any(v is False for v in election.votes.values()):
        return
    if r.role is Role.PROSPECTIVE:
        transitions.lose_pre_vote(r, now)
    else:
        transitions.back_off_lost_election(r, now)


def send_vote_requests(r: RaftState, now: float) -> None:
    """Sends the Vote requests of a prospective or a candidate."""
    election = r.election
    if election is None or election.rejected():
        return
    if r.role is Role.CANDIDATE and r.unsynced:
        # A granted vote counts until the epoch ends, even if the candidate restarts with only the durable
        # part of its log. So a candidate sends no Vote until all of its log is durable.
        return
    for voter in election.voters:
        if election.votes.get(voter.id) is None and voter.id != r.me.id:
            addresses, missed = vote_addresses(r, voter), r.not_found_at.get(voter.id, ())
            asked = addresses[:1]  # always: the voter may only have been restarted
            if not addresses or addresses[0] in missed:
                asked += [address for address in addresses[1:] if address not in missed][:1]
            for address in asked:
                r.send(Peer(voter.id, address), vote_request(r, voter.key), now)


def vote_request(r: RaftState, voter: ReplicaKey) -> Vote:
    return Vote(r.epoch, r.me, r.end, voter, r.role is Role.PROSPECTIVE, r.params.cluster_id)


# --- BeginQuorumEpoch, EndQuorumEpoch -------------------------------------------------------------


def begin_end_epoch_error(r: RaftState, q: BeginEpoch | EndEpoch, now: float) -> EpochReply | None:
    """The error response to a BeginQuorumEpoch or EndQuorumEpoch that must be rejected, or None."""
    if r.is_other_cluster(q.cluster_id):
        return EpochReply(ErrorCode.INCONSISTENT_CLUSTER_ID, top_level=True)
    if q.epoch < r.epoch:
        return EpochReply(ErrorCode.FENCED_LEADER_EPOCH)
    if q.leader_id < 0 or r.is_epoch_too_far_ahead(q.epoch):
        return EpochReply(ErrorCode.INVALID_REQUEST)
    endpoints = q.endpoints or r.voters.endpoints(q.leader_id)
    if names_other_leader(r, q.epoch, q.leader_id) and not accept_claim(
        r, type(q).__name__, None, q.leader_id, endpoints, now
    ):
        return EpochReply(ErrorCode.INVALID_REQUEST)
    return None


def on_begin_epoch(r: RaftState, q: BeginEpoch, token: Token, now: float) -> None:
    refusal = begin_end_epoch_error(r, q, now)
    if refusal is not None:
        return r.answer(token, refusal)
    transitions.adopt_leader_and_epoch(r, q.epoch, q.leader_id, q.endpoints, now)
    if r.is_other_replica(q.voter):
        return r.answer(token, EpochReply(ErrorCode.INVALID_VOTER_KEY))
    return r.answer(token, EpochReply())


def on_end_epoch(r: RaftState, q: EndEpoch, token: Token, now: float) -> None:
    refusal = begin_end_epoch_error(r, q, now)
    if refusal is not None:
        return r.answer(token, refusal)
    transitions.adopt_leader_and_epoch(r, q.epoch, q.leader_id, q.endpoints, now)
    if r.following is not None and r.leader_id == q.leader_id and r.epoch == q.epoch:
        wait_s = end_epoch_backoff_s(r, q.preferred)
        r.following.has_fetched = False
        r.following.fetch_deadline = now + wait_s
        if (
            wait_s == 0
            and r.can_start_election
            and r.params.quick_failover
            and not r.shutting_down
            and r.installing is None
        ):
            # The leader has named this replica as its first successor, so it becomes a candidate without
            # a pre-vote.
            transitions.become_prospective(r, now)
            if r.role is Role.PROSPECTIVE:
                transitions.become_candidate(r, now)
    return r.answer(token, EpochReply())


def end_epoch_backoff_s(r: RaftState, preferred: Sequence[ReplicaKey]) -> float:
    """How long to wait before an election after EndQuorumEpoch (Kafka's `endEpochElectionBackoff`).

    The first of the preferred successors becomes a candidate at once. For each further place in the list
    the delay doubles.
    """
    place = next(
        (
            p
            for p, k in enumerate(preferred)
            if k.id == r.me.id and k.directory_id in (NO_DIRECTORY, r.me.directory_id)
        ),
        None,
    )
    if place is None:
        return r.params.backoff_max_s
    if place == 0:
        return 0.0
    return r.params.backoff_max_s * 2.0 ** (place - len(preferred))


def on_epoch_reply(r: RaftState, event: Replied, now: float) -> bool:
    reply = event.reply
    if isinstance(reply, Failure):
        return False
    if reply.top_level:
        return on_top_level_error(r, event, reply, now)
    handled = on_common_reply(r, event, reply, now)
    if handled is not None:
        return handled
    if reply.error != ErrorCode.NONE:
        log_unexpected_error(r, event, reply, now)
        return False
    if isinstance(event.request, EndEpoch) and r.role is Role.RESIGNED and event.request.epoch == r.epoch:
        r.unacknowledged.discard(event.to.id)
    return True


def send_end_quorum_epoch(r: RaftState, now: float) -> None:
    """Sends EndQuorumEpoch to the voters that have not acknowledged it."""
    for node_id in sorted(r.unacknowledged):
        address = r.voters.address(node_id, r.params.listener_name)
        if address is not None:
            q = EndEpoch(r.me.id, r.epoch, r.successors, r.params.endpoints, r.params.cluster_id)
            r.send(Peer(node_id, address), q, now)
