"""Transitions between roles, and the epoch, vote and timers with which each role begins (KIP-595, KIP-996).

The last section has the begin and the end of leadership.

The table `TRANSITIONS` lists which role may follow which. Any other transition is a bug and raises
RaftError, which stops the node.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from quorate.protocol.errors import ErrorCode
from quorate.raft.core.control_records import epoch_start_records
from quorate.raft.core.effects import RoleChange
from quorate.raft.core.leader_checks import may_wait_for_leader
from quorate.raft.core.leader_conflict import names_other_leader
from quorate.raft.core.messages import FetchReply, Token, VoterReply
from quorate.raft.core.role_state import NEVER, Election, Following, Leading
from quorate.raft.core.state import RaftState
from quorate.raft.types import (
    NO_ENDPOINTS,
    TRANSITIONS,
    Address,
    Endpoints,
    OffsetEpoch,
    QuorumState,
    RaftError,
    ReplicaKey,
    Role,
)

logger = logging.getLogger(__name__)

QUICK_PRE_VOTE_BACKOFF_S = (0.020, 0.050)
"""The time until a quick pre-vote that was refused is repeated, and the time until this replica requests
votes after it refused a candidate with a shorter log."""
SPLIT_VOTE_S = (0.010, 0.050)  # after a lost election; doubles with each further one
GIVE_WAY_S = (0.150, 0.250)
"""How long a replica that has granted a pre-vote holds back its own election, at most once an epoch.

On a busy machine, the Vote of the other one may follow its pre-vote by 50 ms. If this one became a
candidate before, the votes would be split, which takes longer than this wait.
"""


def _transition_to(r: RaftState, role: Role) -> None:
    if role not in TRANSITIONS[r.role]:
        raise RaftError(f"illegal move from {r.role.value} to {role.value} in epoch {r.epoch}")
    if r.leading is not None and role is not Role.LEADER:
        stop_leading(r)
    logger.info(
        "[Raft id=%d] %s -> %s epoch=%d leader=%s voted=%s",
        r.me.id, r.role.value, role.value, r.epoch, r.leader_id, r.voted,
    )  # fmt: skip
    r.role = role
    if role not in (Role.CANDIDATE, Role.PROSPECTIVE):
        r.election = None
    if role is not Role.FOLLOWER:
        r.following = None
    r.effects.role = RoleChange(role, r.epoch, r.leader_id)


def persist(r: RaftState, again: bool = False) -> None:
    """Saves epoch, leader and vote if they have changed, or in any case with `again`.

    A save that adds only the name of another leader may wait: a replica that loses it in a crash still
    knows its epoch and its vote.
    """
    # As in Kafka, the saved state of a leader names no vote.
    voted = None if r.leader_id == r.me.id and r.params.can_vote else r.voted
    state, saved, effects = QuorumState(r.epoch, r.leader_id, voted), r.saved, r.effects
    if state == saved and not again:
        return
    only_leader = saved is not None and (saved.epoch, saved.voted) == (state.epoch, state.voted)
    may_wait = only_leader and state.leader_id not in (None, r.me.id) and not again
    effects.save_may_wait = may_wait and (effects.save_quorum_state is None or effects.save_may_wait)
    effects.save_quorum_state = r.saved = state


def draw_election_deadline(r: RaftState, now: float) -> float:
    """A random time, one to two election timeouts from now."""
    return now + r.params.election_timeout_s * (1 + r.rng.random())


def _new_epoch(r: RaftState, epoch: int) -> None:
    if epoch < r.epoch:
        raise RaftError(f"epoch falls from {r.epoch} to {epoch}")
    if epoch > r.epoch:
        r.epoch, r.voted, r.leader_id, r.leader_endpoints = epoch, None, None, NO_ENDPOINTS


def become_unattached(r: RaftState, epoch: int, leader_id: int | None, now: float) -> None:
    """Enters an epoch whose leader is unknown or cannot be reached, or ends a pre-vote or a resignation."""
    keeps_timer = r.role in (Role.CANDIDATE, Role.UNATTACHED, Role.RESIGNED) or (
        r.role is Role.PROSPECTIVE and r.election is not None and not r.election.cannot_win()
    )
    _new_epoch(r, epoch)
    r.leader_id = leader_id
    if not r.can_start_election:
        r.election_deadline = NEVER
    elif not keeps_timer or r.election_deadline == NEVER:
        r.election_deadline = draw_election_deadline(r, now)
    _transition_to(r, Role.UNATTACHED)
    persist(r)
    r.reset_links()


def become_follower(r: RaftState, epoch: int, leader_id: int, endpoints: Endpoints, now: float) -> None:
    if leader_id == r.me.id and r.is_voter:
        raise RaftError(f"told to follow itself in epoch {epoch}")
    # If a follower knows no leader, `accept_claim` has just dropped it in favour of this one. The
    # fetch deadline stays, so that contradicting claims cannot postpone an election again and again.
    f = r.following
    latest = f.fetch_deadline if f is not None and epoch == r.epoch and r.leader_id is None else NEVER
    _new_epoch(r, epoch)
    r.leader_id, r.leader_endpoints = leader_id, dict(endpoints)
    _transition_to(r, Role.FOLLOWER)
    start_following(r, now, latest)
    r.lost_elections = 0
    r.not_found_at.clear()
    persist(r)
    r.reset_links()


def start_following(r: RaftState, now: float, latest: float = NEVER) -> None:
    """Sets the timers of a follower. Its fetch deadline is not after `latest`."""
    r.role = Role.FOLLOWER
    r.election_deadline = NEVER
    r.leader_hwm = -1
    r.following = Following(min(latest, now + r.params.fetch_timeout_s), now)


def become_prospective(r: RaftState, now: float) -> None:
    """Asks for pre-votes: an election in the current epoch that disturbs no living leader (KIP-996)."""
    if not r.can_start_election:
        raise RaftError("an observer cannot be elected")
    _transition_to(r, Role.PROSPECTIVE)
    start_election(r, now)
    promote_if_elected(r, now)


def become_candidate(r: RaftState, now: float) -> None:
    if not r.can_start_election:
        raise RaftError("an observer cannot be elected")
    _new_epoch(r, r.epoch + 1)
    r.voted = r.me
    _transition_to(r, Role.CANDIDATE)
    r.quick_pre_vote_until = -1.0
    start_election(r, now)
    persist(r)
    promote_if_elected(r, now)


def start_election(r: RaftState, now: float) -> None:
    """Begins to count votes, with this replica's own."""
    r.election_deadline = draw_election_deadline(r, now)
    r.election = Election(r.voters, {i: True if i == r.me.id else None for i in r.voters.ids})
    r.reset_links()


def promote_if_elected(r: RaftState, now: float) -> None:
    """If a majority has granted its votes, a prospective becomes a candidate, and a candidate the leader."""
    if r.election is None or not r.election.granted():
        return
    if r.role is Role.PROSPECTIVE and now < r.election.not_before:
        r.wake(r.election.not_before)
    elif r.role is Role.PROSPECTIVE:
        become_candidate(r, now)
    elif r.role is Role.CANDIDATE:
        granting = sorted(i for i, v in r.election.votes.items() if v)
        r.leader_id, r.leader_endpoints = r.me.id, dict(r.params.endpoints)
        _transition_to(r, Role.LEADER)
        r.election_deadline = NEVER
        r.lost_elections = 0
        r.not_found_at.clear()
        r.hwm = None
        persist(r)
        r.reset_links()
        start_leading(r, granting, now)


def lose_pre_vote(r: RaftState, now: float) -> None:
    """Returns from a failed pre-vote to the known leader, or to unattached. Epoch and vote stay (KIP-996)."""
    if r.leader_id is not None and r.leader_endpoints:
        deadline = r.quick_pre_vote_until
        become_follower(r, r.epoch, r.leader_id, r.leader_endpoints, now)
        if now < deadline and r.following is not None:  # a quick pre-vote was refused: the leader may live
            r.following.fetch_deadline = deadline
            r.following.quick_pre_vote_at = now + r.rng.uniform(*QUICK_PRE_VOTE_BACKOFF_S)
    else:
        become_unattached(r, r.epoch, r.leader_id, now)


def defer_to(r: RaftState, other: ReplicaKey, last: OffsetEpoch, now: float) -> None:
    """Lets a replica that was granted a pre-vote become a candidate first, since two would split the votes.

    Of two replicas that request pre-votes at the same time the one with the longer log goes first, then
    the one with the lower id.
    """
    if not r.params.quick_failover or r.deferred_epoch == r.epoch:
        return
    until = now + r.rng.uniform(*GIVE_WAY_S)
    f, election = r.following, r.election
    if f is not None and f.quick_pre_vote_at < until:
        f.quick_pre_vote_at = until
    elif r.role is Role.UNATTACHED and r.election_deadline < until:
        r.election_deadline = until
    elif (
        r.role is Role.PROSPECTIVE
        and election is not None
        and (last.log_order, -other.id) > (r.end.log_order, -r.me.id)
    ):
        election.not_before = until
    else:
        return
    r.deferred_epoch, r.deferred_to = r.epoch, other.id


def end_deferral(r: RaftState, lost: Address, now: float) -> None:
    """Ends the wait for a replica that was let go first and whose connection is lost now."""
    if r.deferred_epoch != r.epoch or r.voters.address(r.deferred_to, r.params.listener_name) != lost:
        return
    f, election = r.following, r.election
    if f is not None:
        if f.quick_pre_vote_at != NEVER:
            f.quick_pre_vote_at = min(f.quick_pre_vote_at, now)
    elif r.role is Role.PROSPECTIVE and election is not None:
        election.not_before = min(election.not_before, now)
    elif r.role is Role.UNATTACHED and r.voted is None:
        r.election_deadline = min(r.election_deadline, now)


def request_votes_soon(r: RaftState, now: float) -> None:
    """Moves the own election forward after refusing a candidate whose log is shorter than this one."""
    if r.is_voter and r.params.quick_failover and not r.shutting_down:
        r.election_deadline = min(r.election_deadline, now + r.rng.uniform(*QUICK_PRE_VOTE_BACKOFF_S))


def request_pre_votes_now(r: RaftState, now: float) -> None:
    """Ends the random wait of a replica that has lost its leader.

    It has refused a pre-vote because its own log is longer. If there are three voters, it is the only one
    that can be elected.
    """
    f = r.following
    if f is not None and f.quick_pre_vote_at != NEVER and r.deferred_epoch != r.epoch:
        f.quick_pre_vote_at = min(f.quick_pre_vote_at, now)


def back_off_lost_election(r: RaftState, now: float) -> None:
    """Lets a candidate that cannot win wait for a random time, which doubles with each defeat."""
    if r.election is None or r.election.backed_off:
        return
    r.election.backed_off = True
    wait = r.rng.uniform(*SPLIT_VOTE_S) * (1 << min(r.lost_elections, 10))
    r.lost_elections += 1
    r.election_deadline = min(r.election_deadline, now + min(wait, r.params.backoff_max_s))


def become_resigned(r: RaftState, now: float) -> None:
    """Gives up leadership, and sends EndQuorumEpoch to the other voters until the election timeout."""
    leading = r.leading
    if leading is None:
        raise RaftError("only a leader resigns")
    r.successors = successors(r)
    r.unacknowledged = {i for i in r.voters.ids if i != r.me.id}
    _transition_to(r, Role.RESIGNED)
    r.election_deadline = draw_election_deadline(r, now)
    r.reset_links()


def adopt_leader_and_epoch(
    r: RaftState, epoch: int, leader_id: int | None, endpoints: Endpoints, now: float
) -> None:
    """Follows the leader and epoch that another replica names (Kafka's `maybeTransition`).

    The epoch is not below the current one, and the caller has resolved a contradiction about the leader
    (see `leader_conflict`).
    """
    if leader_id is not None and not endpoints:
        endpoints = r.voters.endpoints(leader_id)
    if names_other_leader(r, epoch, leader_id):
        raise RaftError(f"two leaders in epoch {epoch}: {r.leader_id} and {leader_id}")
    if leader_id == r.me.id:
        if epoch > r.epoch:  # this node led under another directory id, or its quorum-state was lost
            become_unattached(r, epoch, None, now)
        return
    if epoch > r.epoch:
        if leader_id is not None and endpoints:
            become_follower(r, epoch, leader_id, endpoints, now)
        else:
            become_unattached(r, epoch, leader_id, now)
    elif leader_id is not None and r.role is not Role.LEADER:
        more = len(endpoints) > len(r.leader_endpoints)
        if endpoints and (r.leader_id is None or more or r.role is not Role.FOLLOWER):
            if r.role is Role.PROSPECTIVE and not more and r.leader_id is not None:
                return  # the pre-vote began because this leader does not answer
            become_follower(r, epoch, leader_id, endpoints, now)
        elif r.leader_id is None:
            r.leader_id = leader_id
            persist(r)


# --- leadership -----------------------------------------------------------------------------------


def start_leading(r: RaftState, granting: Sequence[int], now: float) -> None:
    """Begins the epoch with a batch of control records. `granting` are the voters that elected this one."""
    end = r.log.end_offset
    r.leading = Leading(end, now + r.params.check_quorum_s, now)
    r.effects.append_control = epoch_start_records(r, granting)


def stop_leading(r: RaftState) -> None:
    """Discards the leader's state and answers the requests that wait in it.

    Fetches of observers may wait until the next leader is known.
    """
    leading = r.leading
    if leading is None:
        return
    r.leading = None
    for parked in leading.parked:
        if may_wait_for_leader(r, parked.request):
            r.fetches_awaiting_leader.append(parked)
        else:
            r.answer(parked.token, FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    fail_pending(r, leading)


def fail_pending(r: RaftState, leading: Leading) -> None:
    """Answers voter changes and upgrades with NOT_LEADER_OR_FOLLOWER.

    The client must send them to the next leader.
    """
    for change in (leading.voter_change, *leading.waiting_changes):
        if change is not None and (change.ack_when_committed or change.offset is None):
            refuse(r, change.token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for token in leading.upgrade_tokens:
        refuse(r, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def refuse(r: RaftState, token: Token, error: ErrorCode, message: str | None = None) -> None:
    """Answers a request of KIP-853 with an error."""
    r.answer(token, VoterReply(error, message=message))


def successors(r: RaftState) -> list[ReplicaKey]:
    """The other voters, those with the longest log first.

    Kafka's `LeaderState.nonLeaderVotersByDescendingFetchOffset`.
    """
    others = [v.key for v in r.voters if v.id != r.me.id]
    return sorted(others, key=lambda k: -r.end_of(k))
