"""Moves between roles, and what each role begins with: epoch, vote, timers, what has to be written
(KIP-595, KIP-996).

Which role may follow which is the table `MOVES`. A move that it lacks raises RaftError: a bug, for
which the node stops.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from quorate.raft.core import leader as replication
from quorate.raft.core.leader_conflict import contradicts
from quorate.raft.core.messages import RoleChange
from quorate.raft.core.role_state import NEVER, Election, Following
from quorate.raft.storage.quorum_state import QuorumState
from quorate.raft.types import MOVES, NO_ENDPOINTS, Endpoints, OffsetEpoch, RaftError, ReplicaKey, Role

if TYPE_CHECKING:
    from quorate.raft.core.raft import Raft

log = logging.getLogger(__name__)
QUICK_AGAIN_S = (0.020, 0.050)  # a quick pre-vote is repeated so soon while it is refused
SPLIT_VOTE_S = (
    0.010,
    0.050,
)  # a candidate that has lost stands again after so long, doubled with each loss in a row
GIVE_WAY_S = (0.030, 0.060)  # who has granted a pre-vote leaves its asker so long, once an epoch


def _move(r: Raft, role: Role) -> None:
    if role not in MOVES[r.role]:
        raise RaftError(f"illegal move from {r.role.value} to {role.value} in epoch {r.epoch}")
    if r.leading is not None and role is not Role.LEADER:
        replication.stop_leading(r)
    log.info(
        "[Raft id=%d] %s -> %s epoch=%d leader=%s voted=%s",
        r.me.id, r.role.value, role.value, r.epoch, r.leader_id, r.voted,
    )  # fmt: skip
    r.role = role
    if role not in (Role.CANDIDATE, Role.PROSPECTIVE):
        r.election = None
    if role is not Role.FOLLOWER:
        r.following = None
    r.effects.role = RoleChange(role, r.epoch, r.leader_id)


def persist(r: Raft, again: bool = False) -> None:
    """Has the state written unless it is (again: in any case). Only the name of another leader may
    wait: whoever forgets it knows the epoch and its vote still."""
    voted = None if r.leader_id == r.me.id and r.params.can_vote else r.voted  # as Kafka writes a leader
    state, saved, effects = QuorumState(r.epoch, r.leader_id, voted), r.saved, r.effects
    if state == saved and not again:
        return
    only_leader = saved is not None and (saved.epoch, saved.voted) == (state.epoch, state.voted)
    may_wait = only_leader and state.leader_id not in (None, r.me.id) and not again
    effects.save_may_wait = may_wait and (effects.save_quorum_state is None or effects.save_may_wait)
    effects.save_quorum_state = r.saved = state


def draw_election_deadline(r: Raft, now: float) -> float:
    return now + r.params.election_timeout_s * (1 + r.rng.random())


def _new_epoch(r: Raft, epoch: int) -> None:
    if epoch < r.epoch:
        raise RaftError(f"epoch falls from {r.epoch} to {epoch}")
    if epoch > r.epoch:
        r.epoch, r.voted, r.leader_id, r.leader_endpoints = epoch, None, None, NO_ENDPOINTS


def become_unattached(r: Raft, epoch: int, leader_id: int | None, now: float) -> None:
    """A greater epoch without a reachable leader, or the end of a pre-vote or resignation."""
    keeps_timer = r.role in (Role.CANDIDATE, Role.UNATTACHED, Role.RESIGNED) or (
        r.role is Role.PROSPECTIVE and r.election is not None and not r.election.cannot_win()
    )
    _new_epoch(r, epoch)
    r.leader_id = leader_id
    if not r.may_stand:
        r.election_deadline = NEVER
    elif not keeps_timer or r.election_deadline == NEVER:
        r.election_deadline = draw_election_deadline(r, now)
    _move(r, Role.UNATTACHED)
    persist(r)
    r.reset_links()


def become_follower(r: Raft, epoch: int, leader_id: int, endpoints: Endpoints, now: float) -> None:
    if leader_id == r.me.id and r.is_voter:
        raise RaftError(f"told to follow itself in epoch {epoch}")
    f = (
        r.following
    )  # without a leader's name: it was forgotten for this one, which gets no more time (`claims`)
    latest = f.fetch_deadline if f is not None and epoch == r.epoch and r.leader_id is None else NEVER
    _new_epoch(r, epoch)
    r.leader_id, r.leader_endpoints = leader_id, dict(endpoints)
    _move(r, Role.FOLLOWER)
    start_following(r, now, latest)
    r.losses = 0
    persist(r)
    r.reset_links()


def start_following(r: Raft, now: float, latest: float = NEVER) -> None:
    r.role = Role.FOLLOWER
    r.election_deadline = NEVER
    r.leader_hwm = -1
    r.following = Following(min(latest, now + r.params.fetch_timeout_s), now)


def become_prospective(r: Raft, now: float) -> None:
    if not r.may_stand:
        raise RaftError("an observer cannot be elected")
    _move(r, Role.PROSPECTIVE)
    hold_election(r, now)
    forward_if_won(r, now)


def become_candidate(r: Raft, now: float) -> None:
    if not r.may_stand:
        raise RaftError("an observer cannot be elected")
    _new_epoch(r, r.epoch + 1)
    r.voted = r.me
    _move(r, Role.CANDIDATE)
    r.quick_until = -1.0
    hold_election(r, now)
    persist(r)
    forward_if_won(r, now)


def hold_election(r: Raft, now: float) -> None:
    r.election_deadline = draw_election_deadline(r, now)
    r.election = Election(r.voters, {i: True if i == r.me.id else None for i in r.voters.ids})
    if r.elections_started is None:
        r.elections_started = now
    r.reset_links()


def forward_if_won(r: Raft, now: float) -> None:
    """Prospective with a majority becomes candidate, candidate with one becomes leader."""
    if r.election is None or not r.election.granted():
        return
    if r.role is Role.PROSPECTIVE and now < r.election.not_before:
        r.wake(r.election.not_before)
    elif r.role is Role.PROSPECTIVE:
        become_candidate(r, now)
    elif r.role is Role.CANDIDATE:
        granting = sorted(i for i, v in r.election.votes.items() if v)
        r.leader_id, r.leader_endpoints = r.me.id, dict(r.params.endpoints)
        _move(r, Role.LEADER)
        r.election_deadline = NEVER
        r.elections_started = None
        r.losses = 0
        r.hwm = None
        persist(r)
        r.reset_links()
        replication.start_leading(r, granting, now)


def lose_election(r: Raft, now: float) -> None:
    """A pre-vote that failed: back to the leader still known, else unattached; epoch and vote stay."""
    if r.leader_id is not None and r.leader_endpoints:
        deadline = r.quick_until
        become_follower(r, r.epoch, r.leader_id, r.leader_endpoints, now)
        if now < deadline and r.following is not None:  # a quick pre-vote was refused: the leader may live
            r.following.fetch_deadline = deadline
            r.following.quick_at = now + r.rng.uniform(*QUICK_AGAIN_S)
    else:
        become_unattached(r, r.epoch, r.leader_id, now)


def defer_to(r: Raft, other: ReplicaKey, last: OffsetEpoch, now: float) -> None:
    """A pre-vote was granted: its asker goes first, or both would stand and split the votes. Of two
    that ask at the same time the one with the longer log goes first, then the one with the lower id."""
    if not r.params.quick_failover or r.deferred_epoch == r.epoch:
        return
    until = now + r.rng.uniform(*GIVE_WAY_S)
    f, election = r.following, r.election
    if f is not None and f.quick_at < until:
        f.quick_at = until
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
    r.deferred_epoch = r.epoch


def request_votes_soon(r: Raft, now: float) -> None:
    """A candidate was refused for want of records that we have: our own chance is better."""
    if r.is_voter and r.params.quick_failover and not r.shutting_down:
        r.election_deadline = min(r.election_deadline, now + r.rng.uniform(*QUICK_AGAIN_S))


def back_off(r: Raft, now: float) -> None:
    """A candidate that cannot win any more: random and doubling, so that two of them part company."""
    if r.election is None or r.election.backed_off:
        return
    r.election.backed_off = True
    wait = r.rng.uniform(*SPLIT_VOTE_S) * (1 << min(r.losses, 10))
    r.losses += 1
    r.election_deadline = min(r.election_deadline, now + min(wait, r.params.backoff_max_s))


def become_resigned(r: Raft, now: float) -> None:
    leading = r.leading
    if leading is None:
        raise RaftError("only a leader resigns")
    r.successors = replication.successors(r)
    r.unacknowledged = {i for i in r.voters.ids if i != r.me.id}
    _move(r, Role.RESIGNED)
    r.election_deadline = draw_election_deadline(r, now)
    r.reset_links()


def adopt(r: Raft, epoch: int, leader_id: int | None, endpoints: Endpoints, now: float) -> None:
    """What another replica says of leader and epoch, for an epoch not below our own. Whether it
    contradicts what we know has been looked at (`claims`)."""
    if leader_id is not None and not endpoints:
        endpoints = r.voters.endpoints(leader_id)
    if contradicts(r, epoch, leader_id):
        raise RaftError(f"two leaders in epoch {epoch}: {r.leader_id} and {leader_id}")
    if leader_id == r.me.id:
        if epoch > r.epoch:  # our own past life under another directory id, or a lost quorum-state
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
                return  # a pre-vote for want of that very leader goes on
            become_follower(r, epoch, leader_id, endpoints, now)
        elif r.leader_id is None:
            r.leader_id = leader_id
            persist(r)
