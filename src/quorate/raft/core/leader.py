"""The leader's side of Raft: Fetch answers, high watermark, check-quorum, snapshots served (KIP-595,
KIP-630).

A replica's Fetch acknowledges everything below its offset. The leader's own offset counts once it is durable.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import follower, membership
from quorate.raft.core import voter_changes as changes
from quorate.raft.core.election import wrong_cluster
from quorate.raft.core.messages import (
    BeginEpoch,
    ControlRecord,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Peer,
    QuorumReply,
    ReplicaInfo,
    SnapshotReply,
    Token,
)
from quorate.raft.core.role_state import NEVER
from quorate.raft.types import MAX_FETCH_BYTES, NO_DIRECTORY, OffsetEpoch, ReplicaKey, Role

if TYPE_CHECKING:
    from quorate.raft.core.raft import Raft
    from quorate.raft.core.voters import Voter

log = logging.getLogger(__name__)

OBSERVER_SESSION_S = 300.0  # an observer is forgotten so long after its last Fetch, as in Kafka
BOOTSTRAP_SNAPSHOT = OffsetEpoch(0, 0)  # each initial voter has its own copy; never served


@dataclass(slots=True)
class Progress:
    """What a leader knows of another replica."""

    key: ReplicaKey
    end: int = -1
    last_fetch: float | None = None
    last_caught_up: float | None = None
    leader_end_at_fetch: int = -1


@dataclass(slots=True)
class Parked:
    """A Fetch that waits for records or a greater high watermark."""

    request: Fetch
    token: Token
    deadline: float


@dataclass(slots=True)
class Leading:
    """A leader's own state, gone with its leadership."""

    epoch_start: int
    check_quorum_deadline: float
    begin_at: float
    progress: dict[ReplicaKey, Progress] = field(default_factory=dict)
    latest_by_id: dict[int, Progress] = field(default_factory=dict)  # for voters whose directory is not known
    fetched: set[int] = field(default_factory=set)  # voters heard since the check-quorum timer was reset
    parked: list[Parked] = field(default_factory=list)
    change: changes.Change | None = None  # of the voters: the one whose turn it is
    waiting: deque[changes.Change] = field(default_factory=deque)
    writing: bool = True  # control records are on their way into the log: a new leader's first at once
    reported: dict[int, Voter] = field(
        default_factory=dict
    )  # what voters have told and the set does not hold (yet)
    upgrade_tokens: list[Token] = field(default_factory=list)


# --- becoming and ceasing to be leader ------------------------------------------------------------


def start_leading(r: Raft, granting: Sequence[int], now: float) -> None:
    end = r.log.end_offset
    r.leading = Leading(end, now + r.params.check_quorum_s, now)
    r.effects.append_control = membership.epoch_start_records(r, granting)


def stop_leading(r: Raft) -> None:
    leading = r.leading
    if leading is None:
        return
    r.leading = None
    for parked in leading.parked:
        if may_wait_for_leader(r, parked.request):
            r.leaderless.append(parked)
        else:
            r.answer(parked.token, FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    membership.fail_pending(r, leading)


def successors(r: Raft) -> list[ReplicaKey]:
    """The other voters, those with the longest log first."""
    others = [v.key for v in r.voters if v.id != r.me.id]
    return sorted(others, key=lambda k: -end_of(r, k))


def progress_of(r: Raft, key: ReplicaKey) -> Progress | None:
    leading = r.leading
    if leading is None:
        return None
    if key.directory_id == NO_DIRECTORY:
        return leading.latest_by_id.get(key.id)
    return leading.progress.get(key)


def end_of(r: Raft, key: ReplicaKey) -> int:
    progress = progress_of(r, key)
    return progress.end if progress is not None else -1


# --- the log grows, the high watermark follows ----------------------------------------------------


def on_appended(r: Raft, controls: Sequence[ControlRecord], now: float) -> None:
    for control in controls:
        membership.apply_control(r, control)
    if r.leading is not None and controls:
        r.leading.writing = False
    if r.leading is not None and r.leading.parked:
        wake_parked(r, now)


def on_synced(r: Raft, offset: int, now: float) -> None:
    r.synced = max(r.synced, offset)
    if offset >= r.log.end_offset:  # an fsync that began before the last append says nothing of it
        r.awaiting_sync = False
    if r.leading is not None:
        advance_high_watermark(r, now)
    elif r.role is Role.FOLLOWER:
        follower.advance_high_watermark(r)


def advance_high_watermark(r: Raft, now: float) -> None:
    leading = r.leading
    voters = r.voters
    if leading is None or not len(voters):
        return
    if len(voters) == 1 and voters.is_voter(r.me):
        candidate = r.synced
    else:
        ends = sorted((r.synced if v.id == r.me.id else end_of(r, v.key) for v in voters), reverse=True)
        candidate = ends[len(ends) // 2]
    if candidate <= leading.epoch_start or (r.hwm is not None and candidate <= r.hwm):
        return
    r.hwm = candidate
    r.effects.high_watermark = candidate
    if leading.parked:
        wake_parked(r, now)
    membership.on_high_watermark(r, now)


def wake_parked(r: Raft, now: float) -> None:
    """Answers the waiting Fetches that now have something to be told."""
    leading = r.leading
    if leading is None:
        return
    parked, leading.parked = leading.parked, []
    for waiting in parked:
        answer_or_park(r, waiting, now)


def expire_parked(r: Raft, now: float) -> None:
    leading = r.leading
    if leading is None or not leading.parked:
        return
    due = [p for p in leading.parked if p.deadline <= now]
    if due:
        leading.parked = [p for p in leading.parked if p.deadline > now]
        for waiting in due:
            r.answer(waiting.token, evaluate(r, waiting.request))
    for waiting in leading.parked:
        r.wake(waiting.deadline)


# --- without a leader -----------------------------------------------------------------------------


def may_wait_for_leader(r: Raft, q: Fetch) -> bool:
    """Whether an observer's Fetch may be held until a leader is known, so that it need not ask again
    and again.

    Not a voter's: Kafka sends one request at a time over a connection, and its vote would have to wait
    behind it.
    """
    return (
        r.params.quick_failover
        and r.params.can_vote
        and q.replica.id >= 0
        and not r.voters.is_voter(q.replica)
    )


def is_leaderless(r: Raft) -> bool:
    """Whether the leader that this replica knows, if any, is gone as far as it can tell."""
    if r.role is Role.FOLLOWER:
        return r.following is not None and r.following.quick_at != NEVER
    if r.role is Role.UNATTACHED:
        return r.leader_id is None
    return r.role is not Role.LEADER


def answer_leaderless(r: Raft, now: float) -> None:
    """Tells those who wait who leads, or when their time is over that nobody does."""
    known = not is_leaderless(r)
    waiting, r.leaderless = r.leaderless, []
    for parked in waiting:
        if known or parked.deadline <= now:
            r.answer(parked.token, evaluate(r, parked.request))
        else:
            r.leaderless.append(parked)
            r.wake(parked.deadline)


# --- Fetch ----------------------------------------------------------------------------------------


def leader_error(r: Raft, epoch: int) -> ErrorCode:
    if epoch < r.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > r.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if r.leading is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if r.shutting_down:
        return ErrorCode.BROKER_NOT_AVAILABLE
    return ErrorCode.NONE


def on_fetch(r: Raft, q: Fetch, token: Token, now: float) -> None:
    if wrong_cluster(r, q.cluster_id):
        return r.answer(token, FetchReply(ErrorCode.INCONSISTENT_CLUSTER_ID, top_level=True))
    if q.max_wait_ms < 0 or q.offset < 0 or q.last_epoch < 0 or q.last_epoch > q.epoch:
        return r.answer(token, FetchReply(ErrorCode.INVALID_REQUEST))
    error = leader_error(r, q.epoch)
    if error != ErrorCode.NONE:
        if (
            error != ErrorCode.UNKNOWN_LEADER_EPOCH
            and q.max_wait_ms > 0
            and is_leaderless(r)
            and may_wait_for_leader(r, q)
        ):
            return r.leaderless.append(Parked(q, token, now + q.max_wait_ms / 1000))
        return r.answer(token, FetchReply(error))
    if position(r, q) is None:
        track(r, q, now)
    return answer_or_park(r, Parked(q, token, now + q.max_wait_ms / 1000), now)


def answer_or_park(r: Raft, waiting: Parked, now: float) -> None:
    reply = evaluate(r, waiting.request)
    q = waiting.request
    told = (
        reply.error != ErrorCode.NONE
        or reply.read_from is not None
        or reply.diverging is not None
        or reply.snapshot is not None
        or q.high_watermark < reply.high_watermark
    )
    if told or waiting.deadline <= now or r.leading is None:
        r.answer(waiting.token, reply)
    else:
        r.leading.parked.append(waiting)
        r.wake(waiting.deadline)


def evaluate(r: Raft, q: Fetch) -> FetchReply:
    """The answer as it stands: records, divergence, a snapshot id, or nothing new."""
    error = leader_error(r, q.epoch)
    if error != ErrorCode.NONE:
        return FetchReply(error)
    reply = FetchReply(high_watermark=-1 if r.hwm is None else r.hwm, log_start=r.log.start_offset)
    lack = position(r, q)
    if lack is not None:
        is_snapshot, at = lack
        if is_snapshot:
            reply.snapshot = at
        else:
            reply.diverging = at
    elif q.offset < r.log.end_offset:
        reply.read_from = q.offset
        reply.max_bytes = min(q.max_bytes, MAX_FETCH_BYTES)
    return reply


def position(r: Raft, q: Fetch) -> tuple[bool, OffsetEpoch] | None:
    """None when the replica's log is a prefix of ours; else (True, snapshot to load) or (False, where
    it diverges)."""
    view = r.log
    start = view.start_offset
    if q.offset == 0:
        latest = view.latest_snapshot()
        if latest is not None and latest != BOOTSTRAP_SNAPSHOT:
            return (True, latest)
        if start == 0:
            return None
    earliest = view.earliest_snapshot()
    if earliest is not None and (
        q.offset < start
        or (q.offset == start and q.last_epoch != earliest.epoch)
        or q.last_epoch < earliest.epoch
    ):
        latest = view.latest_snapshot()
        assert latest is not None
        return (True, latest)
    at = view.end_offset_for_epoch(q.last_epoch)
    if at.epoch != q.last_epoch or at.offset < q.offset:
        return (False, at)
    return None


def track(r: Raft, q: Fetch, now: float) -> None:
    """Notes how far a replica has come. Readers with a negative id are served, not tracked."""
    leading = r.leading
    key = q.replica
    if (
        leading is None
        or key.id < 0
        or (key.id == r.me.id and key.directory_id in (NO_DIRECTORY, r.me.directory_id))
    ):
        return
    progress = leading.progress.get(key)
    if progress is None:
        progress = leading.progress[key] = Progress(key)
    if q.offset < progress.end:
        log.warning(
            "[Raft id=%d] fetch offset of %s falls from %d to %d", r.me.id, key, progress.end, q.offset
        )
    end = r.log.end_offset
    if q.offset >= end:
        progress.last_caught_up = now
    elif progress.leader_end_at_fetch > 0 and q.offset >= progress.leader_end_at_fetch:
        progress.last_caught_up = progress.last_fetch
    progress.leader_end_at_fetch = end
    progress.last_fetch = now
    progress.end = q.offset
    leading.latest_by_id[key.id] = progress
    mark_heard(r, key, now)
    if r.voters.is_voter(key):
        advance_high_watermark(r, now)


def mark_heard(r: Raft, key: ReplicaKey, now: float) -> None:
    """Check-quorum: when a majority has been heard the timer starts anew."""
    leading = r.leading
    if leading is None or not r.voters.is_voter(key):
        return
    leading.fetched.add(key.id)
    needed = r.voters.majority - (1 if r.is_voter else 0)
    if len(leading.fetched) >= needed:
        leading.fetched.clear()
        leading.check_quorum_deadline = now + r.params.check_quorum_s


def on_fetch_snapshot(r: Raft, q: FetchSnapshot, token: Token, now: float) -> None:
    if wrong_cluster(r, q.cluster_id):
        return r.answer(token, SnapshotReply(ErrorCode.INCONSISTENT_CLUSTER_ID, top_level=True))
    error = leader_error(r, q.epoch)
    if error != ErrorCode.NONE:
        return r.answer(token, SnapshotReply(error))
    size = r.log.snapshot_size(q.snapshot) if q.snapshot != BOOTSTRAP_SNAPSHOT else None
    if size is None:
        return r.answer(token, SnapshotReply(ErrorCode.SNAPSHOT_NOT_FOUND))
    if not 0 <= q.position < size:
        return r.answer(token, SnapshotReply(ErrorCode.POSITION_OUT_OF_RANGE))
    mark_heard(r, q.replica, now)
    read = max(0, min(q.max_bytes, size - q.position, MAX_FETCH_BYTES))
    compare = q.prefix_digest if q.position > 0 else None
    return r.answer(
        token, SnapshotReply(snapshot=q.snapshot, size=size, position=q.position, read=read, compare=compare)
    )


# --- DescribeQuorum -------------------------------------------------------------------------------


def on_describe(r: Raft, token: Token, now: float) -> None:
    leading = r.leading
    if leading is None:
        return r.answer(token, QuorumReply(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    end = r.log.end_offset
    voters: list[ReplicaInfo] = []
    seen: set[ReplicaKey] = set()
    for voter in r.voters:
        if voter.id == r.me.id and r.is_voter:
            voters.append(ReplicaInfo(r.me, end, now, now))
            continue
        progress = progress_of(r, voter.key)
        if progress is None:
            voters.append(ReplicaInfo(voter.key, -1, None, None))
        else:
            seen.add(progress.key)
            voters.append(
                ReplicaInfo(progress.key, progress.end, progress.last_fetch, progress.last_caught_up)
            )
    observers = [
        ReplicaInfo(p.key, p.end, p.last_fetch, p.last_caught_up)
        for p in leading.progress.values()
        if p.key not in seen and p.last_fetch is not None and now - p.last_fetch < OBSERVER_SESSION_S
    ]
    if not r.is_voter:
        observers.append(ReplicaInfo(r.me, end, now, now))
    reply = QuorumReply(high_watermark=-1 if r.hwm is None else r.hwm, voters=voters, observers=observers)
    reply.voter_set = r.voters
    return r.answer(token, reply)


# --- the leader's timers --------------------------------------------------------------------------


def drive_leader(r: Raft, now: float) -> None:
    leading = r.leading
    if leading is None:
        return
    expire_parked(r, now)
    if leading.change is not None or leading.waiting:
        changes.drive(r, now)
    others = len(r.voters) - (1 if r.is_voter else 0)
    if others == 0:
        leading.check_quorum_deadline = (
            now + r.params.check_quorum_s
        )  # counts from when there is somebody to hear
        return
    if now >= leading.check_quorum_deadline:
        log.info("[Raft id=%d] no Fetch from a majority within %.1f s", r.me.id, r.params.check_quorum_s)
        r.become_resigned(now)
        from quorate.raft.core.election import drive_resigned

        r.wake(r.election_deadline)
        drive_resigned(r, now)
        return
    r.wake(leading.check_quorum_deadline)
    if now >= leading.begin_at:
        leading.begin_at = now + r.params.begin_epoch_period_s
        for voter in r.voters:
            address = r.voters.address(voter.id, r.params.listener_name)
            if voter.id != r.me.id and address is not None:
                q = BeginEpoch(r.me.id, r.epoch, r.leader_endpoints, voter.key, r.params.cluster_id)
                r.send(Peer(voter.id, address), q, now)
    r.wake(leading.begin_at)
    for key in [
        k for k, p in leading.progress.items() if p.last_fetch is not None and now - p.last_fetch > 3600
    ]:
        if not r.voters.is_voter(key):
            del leading.progress[key]
