"""Bugs to plant in the real core or in the simulation's driver, each by a patch. Every one must be caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from quorate.raft.core import election, follower, leader, transitions
from quorate.raft.core import messages as m
from quorate.raft.core.events import Synced
from quorate.raft.core.membership import voter_changes
from quorate.raft.core.state import RaftState
from quorate.raft.types import QuorumState, Role
from simulation.core.replica import Replica

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Planted:
    name: str
    plant: Callable[[Patch], None]
    caught_by: str  # one of these invariants
    seed: int = 0  # the first


def skip_fsync(patch: Patch) -> None:
    """Reports fetched or written records as durable although they are not."""

    def start_sync(self: Replica) -> None:
        self.queue.append(Synced(self.disk.end))

    patch.setattr(Replica, "start_sync", start_sync)


def forget_quorum_state(patch: Patch) -> None:
    """Replaces `quorum-state` without fsync, so that a power failure restores the one before."""
    save, crash = Replica._save, Replica.crash
    before: dict[Any, QuorumState | None] = {}

    def remember(self: Replica, state: QuorumState, may_wait: bool) -> None:
        before[self.key] = self.disk.stored
        save(self, state, may_wait)

    def forget(self: Replica, lose_power: bool) -> None:
        if self.alive and lose_power:
            self.disk.stored = before.get(self.key)
        crash(self, lose_power)

    patch.setattr(Replica, "_save", remember)
    patch.setattr(Replica, "crash", forget)


def count_non_voters(patch: Patch) -> None:
    """Counts an observer's offset towards the high watermark."""

    def advance(r: RaftState, now: float) -> None:
        leading = r.leading
        if leading is None:
            return
        ends = sorted([r.synced, *(p.end for p in leading.progress.values())], reverse=True)
        at = len(r.voters) // 2
        if len(ends) <= at or ends[at] <= leading.epoch_start or (r.hwm is not None and ends[at] <= r.hwm):
            return
        r.hwm = r.effects.high_watermark = ends[at]
        leader.wake_parked(r, now)
        leader.on_high_watermark(r, now)

    patch.setattr(leader, "advance_high_watermark", advance)


def count_oneself_too_early(patch: Patch) -> None:
    """Lets a leader count its own records before they are durable."""
    advance = leader.advance_high_watermark

    def early(r: RaftState, now: float) -> None:
        synced, r.synced = r.synced, r.log.end_offset
        advance(r, now)
        r.synced = synced

    patch.setattr(leader, "advance_high_watermark", early)


def commit_older_epochs_by_counting(patch: Patch) -> None:
    """Commits records of earlier epochs before one of the leader's own is on a majority (RaftState,
    figure 8)."""
    start = transitions.start_leading

    def from_the_start(r: RaftState, granting: Any, now: float) -> None:
        start(r, granting, now)
        assert r.leading is not None
        r.leading.epoch_start = -1

    patch.setattr(transitions, "start_leading", from_the_start)


def vote_twice(patch: Patch) -> None:
    on_vote = election.on_vote

    def again(r: RaftState, q: m.Vote, token: Any, now: float) -> None:
        if not q.pre_vote and q.epoch == r.epoch and r.role is Role.UNATTACHED:
            r.voted = None
        on_vote(r, q, token, now)

    patch.setattr(election, "on_vote", again)


def vote_for_a_shorter_log(patch: Patch) -> None:
    may_grant = election.may_grant

    def generous(r: RaftState, q: m.Vote) -> bool:
        return may_grant(r, replace(q, last=max(q.last, r.end, key=lambda end: end.log_order)))

    patch.setattr(election, "may_grant", generous)


def grant_a_pre_vote_while_hearing_the_leader(patch: Patch) -> None:
    may_grant = election.may_grant

    def generous(r: RaftState, q: m.Vote) -> bool:
        if q.pre_vote and r.role is Role.FOLLOWER:
            return q.last.log_order >= r.end.log_order
        return may_grant(r, q)

    patch.setattr(election, "may_grant", generous)


def apply_voters_at_commit(patch: Patch) -> None:
    """Puts a voter set in force when it commits, not when it is appended."""

    def committed_set(self: RaftState) -> Any:
        return self.members.voters_at(max(self.committed, self.log.start_offset) - 1)

    patch.setattr(RaftState, "voters", property(committed_set))
    patch.setattr(
        RaftState,
        "is_voter",
        property(lambda self: self.params.can_vote and committed_set(self).is_voter(self.me)),
    )


def change_two_voters_at_once(patch: Patch) -> None:
    """Allows a second change of voters while the first is not committed."""

    def appended(r: RaftState, offset: int) -> None:
        if r.leading is not None:
            r.leading.voter_change = None

    patch.setattr(voter_changes, "blocked_by", lambda r: None if r.hwm is not None else "a first record")
    patch.setattr(voter_changes, "on_appended", appended)


def truncate_too_much(patch: Patch) -> None:
    """Lets a follower truncate one batch more than diverges."""
    truncate = follower.truncate

    def eager(r: RaftState, diverging: Any) -> None:
        truncate(r, diverging)
        log = r.log.model.log  # type: ignore[attr-defined]
        before = log.between(log.start, r.effects.truncate_to)
        if before:
            r.effects.truncate_to = before[-1].base
            r.members.truncate_from(before[-1].base)

    patch.setattr(follower, "truncate", eager)


PLANTED = [
    Planted("skip an fsync", skip_fsync, "majority"),
    Planted(
        "forget the quorum state",
        forget_quorum_state,
        "epoch: that of|one vote an epoch|one leader an epoch|RaftError",
    ),
    Planted("count a non-voter", count_non_voters, "majority", 2),
    Planted("count oneself before the fsync", count_oneself_too_early, "majority"),
    Planted(
        "commit older epochs by counting",
        commit_older_epochs_by_counting,
        "high watermark|committed stays|leader completeness",
    ),
    Planted("vote twice", vote_twice, "one vote an epoch|one leader an epoch"),
    Planted("vote for a shorter log", vote_for_a_shorter_log, "leader completeness|committed stays"),
    Planted(
        "grant a pre-vote while hearing the leader", grant_a_pre_vote_while_hearing_the_leader, "pre-vote"
    ),
    Planted(
        "apply voters at commit",
        apply_voters_at_commit,
        "majority|one leader an epoch|one voter of difference",
        1,
    ),
    Planted("change two voters at once", change_two_voters_at_once, "one voter of difference"),
    Planted("truncate too much", truncate_too_much, "committed stays"),
]
