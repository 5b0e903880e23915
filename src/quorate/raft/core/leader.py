"""The leader's rules: Fetch, high watermark, FetchSnapshot, DescribeQuorum and timers (KIP-595, KIP-630).

A replica's Fetch acknowledges everything below its fetch offset. The leader counts its own log only up to
its durable end.
"""

from __future__ import annotations

import logging

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import transitions
from quorate.raft.core.election import send_end_quorum_epoch
from quorate.raft.core.leader_checks import (
    is_second_process,
    leader_error,
    may_wait_for_leader,
    update_check_quorum,
)
from quorate.raft.core.membership import kraft_version, voter_changes
from quorate.raft.core.messages import (
    BeginEpoch,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Peer,
    QuorumReply,
    ReplicaInfo,
    SnapshotReply,
    Token,
)
from quorate.raft.core.role_state import ParkedFetch, Progress, SentPart
from quorate.raft.core.state import RaftState
from quorate.raft.types import MAX_FETCH_BYTES, MIN_PART_BYTES, NO_DIRECTORY, OffsetEpoch, ReplicaKey

logger = logging.getLogger(__name__)

# DescribeQuorum and the metrics list an observer until this long after its last Fetch, as in Kafka.
OBSERVER_SESSION_S = 300.0
# The leader forgets the progress of a non-voter this long after the non-voter's last Fetch. A leader without
# other voters keeps it.
NON_VOTER_RETENTION_S = 3600.0
MAX_PARTS = 1024  # the replicas whose last part is remembered: any client may claim to be a replica
# The snapshot that `kafka-storage format` writes. Every initial voter has its own, so it is never sent.
BOOTSTRAP_SNAPSHOT = OffsetEpoch(0, 0)


# --- high watermark -------------------------------------------------------------------------------


def advance_high_watermark(r: RaftState, now: float) -> None:
    """Advances the high watermark to the greatest offset that a majority of the voters has reached.

    Only a record of the leader's own epoch is committed by counting replicas. Records of earlier epochs are
    committed together with it. On their own they are not safe even on a majority of the voters: a later
    leader could still overwrite them (Raft, section 5.4.2 and figure 8). So the high watermark must be
    greater than `epoch_start`, the offset of the LeaderChange record of this epoch.

    A voter set counts from its append on. While one is being appended, the high watermark waits.
    """
    leading = r.leading
    voters = r.voters
    if leading is None or leading.appending_control_records or not len(voters):
        return
    if len(voters) == 1 and voters.is_voter(r.me):
        candidate = r.synced
    else:
        ends = sorted((r.synced if v.id == r.me.id else r.end_of(v.key) for v in voters), reverse=True)
        candidate = ends[len(ends) // 2]
    if candidate <= leading.epoch_start or (r.hwm is not None and candidate <= r.hwm):
        return
    r.hwm = candidate
    r.effects.high_watermark = candidate
    if leading.parked:
        wake_parked(r, now)
    on_high_watermark(r, now)


def on_high_watermark(r: RaftState, now: float) -> None:
    """Answers the voter change and the kraft.version upgrade whose records are now committed.

    A leader that is not in the committed voter set then resigns (KIP-853).
    """
    if r.leading is None or r.hwm is None:
        return
    voter_changes.on_high_watermark(r)
    kraft_version.on_high_watermark(r)
    at = r.members.current_offset
    if not r.is_voter and at is not None and r.hwm > at:
        logger.info("[Raft id=%d] resigning: no longer a voter", r.me.id)
        transitions.become_resigned(r, now)


def wake_parked(r: RaftState, now: float) -> None:
    """Answers the waiting Fetches for which there are now records or a greater high watermark."""
    leading = r.leading
    if leading is None:
        return
    parked, leading.parked = leading.parked, []
    for waiting in parked:
        answer_or_park(r, waiting, now)


def expire_parked(r: RaftState, now: float) -> None:
    """Answers the waiting Fetches whose `max_wait_ms` has elapsed."""
    leading = r.leading
    if leading is None or not leading.parked:
        return
    due = [p for p in leading.parked if p.deadline <= now]
    if due:
        leading.parked = [p for p in leading.parked if p.deadline > now]
        for waiting in due:
            r.answer(waiting.token, fetch_reply(r, waiting.request))
    for waiting in leading.parked:
        r.wake(waiting.deadline)


# --- without a leader -----------------------------------------------------------------------------


def answer_fetches_awaiting_leader(r: RaftState, now: float) -> None:
    """Answers observers' Fetches when a leader is known, or when their `max_wait_ms` has elapsed."""
    known = not r.is_leaderless
    waiting, r.fetches_awaiting_leader = r.fetches_awaiting_leader, []
    for parked in waiting:
        if known or parked.deadline <= now:
            r.answer(parked.token, fetch_reply(r, parked.request))
        else:
            r.fetches_awaiting_leader.append(parked)
            r.wake(parked.deadline)


# --- Fetch ----------------------------------------------------------------------------------------


def on_fetch(r: RaftState, q: Fetch, token: Token, now: float) -> None:
    if r.is_other_cluster(q.cluster_id):
        return r.answer(token, FetchReply(ErrorCode.INCONSISTENT_CLUSTER_ID, top_level=True))
    if q.max_wait_ms < 0 or q.offset < 0 or q.last_epoch < 0 or q.last_epoch > q.epoch:
        return r.answer(token, FetchReply(ErrorCode.INVALID_REQUEST))
    error = leader_error(r, q.epoch)
    if error != ErrorCode.NONE:
        if (
            error != ErrorCode.UNKNOWN_LEADER_EPOCH
            and q.max_wait_ms > 0
            and r.is_leaderless
            and may_wait_for_leader(r, q)
        ):
            return r.fetches_awaiting_leader.append(ParkedFetch(q, token, now + q.max_wait_ms / 1000))
        return r.answer(token, FetchReply(error))
    if is_second_process(r, q, now):
        return r.answer(token, FetchReply(ErrorCode.INVALID_REQUEST))
    if validate_offset_and_epoch(r, q) is None:
        update_replica_state(r, q, now)
    return answer_or_park(r, ParkedFetch(q, token, now + q.max_wait_ms / 1000), now)


def answer_or_park(r: RaftState, waiting: ParkedFetch, now: float) -> None:
    """Answers a Fetch if it has something new for the replica or its wait has elapsed; otherwise parks it."""
    reply = fetch_reply(r, waiting.request)
    q = waiting.request
    has_news = (
        reply.error != ErrorCode.NONE
        or reply.read_from is not None
        or reply.diverging is not None
        or reply.snapshot is not None
        or q.high_watermark < reply.high_watermark
    )
    if has_news or waiting.deadline <= now or r.leading is None:
        r.answer(waiting.token, reply)
    else:
        r.leading.parked.append(waiting)
        r.wake(waiting.deadline)


def fetch_reply(r: RaftState, q: Fetch) -> FetchReply:
    """The response to a Fetch at this moment: records, a diverging epoch, a snapshot id, or none of them."""
    error = leader_error(r, q.epoch)
    if error != ErrorCode.NONE:
        return FetchReply(error)
    reply = FetchReply(high_watermark=-1 if r.hwm is None else r.hwm, log_start=r.log.start_offset)
    difference = validate_offset_and_epoch(r, q)
    if difference is not None:
        is_snapshot, at = difference
        if is_snapshot:
            reply.snapshot = at
        else:
            reply.diverging = at
    elif q.offset < r.log.end_offset:
        reply.read_from = q.offset
        reply.max_bytes = part_bytes(r, q.replica, q.offset, q.max_bytes)
    return reply


def part_bytes(r: RaftState, replica: ReplicaKey, begins: int, wanted: int) -> int:
    """The most bytes of the log from the offset `begins`, or of a snapshot from the position `begins`, that
    are sent to a replica which asks for `wanted` bytes.

    A replica that asks twice for the same part has not received it: its link may be too slow for the
    request timeout. A follower of Apache Kafka asks for 8 MiB each time. So each time it gets half as much,
    until it has caught up.
    """
    if r.leading is None or replica.id < 0:
        return min(wanted, MAX_FETCH_BYTES)
    parts = r.leading.parts
    part = parts.get(replica)
    if part is None:
        if len(parts) >= MAX_PARTS:
            parts.clear()
        part = parts[replica] = SentPart(begins, MAX_FETCH_BYTES)
    elif begins == part.begins:
        part.max_bytes = max(min(part.max_bytes, wanted) // 2, MIN_PART_BYTES)
    part.begins = begins
    return min(wanted, part.max_bytes)


def validate_offset_and_epoch(r: RaftState, q: Fetch) -> tuple[bool, OffsetEpoch] | None:
    """Compares the end of a replica's log with this log (Kafka's `validateOffsetAndEpoch`).

    Returns None if the replica can continue with this log, otherwise one of:

    - (True, snapshot id): the replica must load this snapshot. This includes a replica that fetches from
      offset 0 while there is a snapshot.
    - (False, diverging epoch): the logs differ. The diverging epoch is this log's largest epoch that is not
      greater than the epoch of the replica's last record, with the offset where it ends.
    """
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


def update_replica_state(r: RaftState, q: Fetch, now: float) -> None:
    """Records the progress of a replica (Kafka's `LeaderState.updateReplicaState`).

    Replicas with a negative id are served, but not recorded.
    """
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
        logger.warning(
            "[Raft id=%d] fetch offset of %s falls from %d to %d", r.me.id, key, progress.end, q.offset
        )
    end = r.log.end_offset
    if q.offset >= end:
        progress.last_caught_up = now
        leading.parts.pop(key, None)
    elif progress.leader_end_at_fetch > 0 and q.offset >= progress.leader_end_at_fetch:
        progress.last_caught_up = progress.last_fetch
    progress.leader_end_at_fetch = end
    progress.last_fetch = now
    progress.facts = q.facts
    if leading.voter_change is not None and leading.voter_change.fetched is not None:
        leading.voter_change.fetched.add(key)
    progress.end = q.offset
    leading.latest_by_id[key.id] = progress
    update_check_quorum(r, key, now)
    if r.voters.is_voter(key):
        advance_high_watermark(r, now)


def on_fetch_snapshot(r: RaftState, q: FetchSnapshot, token: Token, now: float) -> None:
    if r.is_other_cluster(q.cluster_id):
        return r.answer(token, SnapshotReply(ErrorCode.INCONSISTENT_CLUSTER_ID, top_level=True))
    error = leader_error(r, q.epoch)
    if error != ErrorCode.NONE:
        return r.answer(token, SnapshotReply(error))
    size = r.log.snapshot_size(q.snapshot) if q.snapshot != BOOTSTRAP_SNAPSHOT else None
    if size is None:
        return r.answer(token, SnapshotReply(ErrorCode.SNAPSHOT_NOT_FOUND))
    if not 0 <= q.position < size:
        return r.answer(token, SnapshotReply(ErrorCode.POSITION_OUT_OF_RANGE))
    update_check_quorum(r, q.replica, now)
    read = max(0, min(part_bytes(r, q.replica, q.position, q.max_bytes), size - q.position))
    compare = q.prefix_digest if q.position > 0 else None
    return r.answer(
        token, SnapshotReply(snapshot=q.snapshot, size=size, position=q.position, read=read, compare=compare)
    )


# --- DescribeQuorum -------------------------------------------------------------------------------


def on_describe(r: RaftState, token: Token, now: float) -> None:
    leading = r.leading
    if leading is None:
        return r.answer(token, QuorumReply(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    end = r.log.end_offset
    voters: list[ReplicaInfo] = []
    seen: set[ReplicaKey] = set()
    for voter in r.voters:
        if voter.id == r.me.id and r.is_voter:
            voters.append(ReplicaInfo(r.me, end, now, now, r.facts))
            continue
        progress = r.progress_of(voter.key)
        if progress is None:
            voters.append(ReplicaInfo(voter.key, -1, None, None))
        else:
            seen.add(progress.key)
            voters.append(_replica_info(progress))
    observers = [
        _replica_info(p)
        for p in leading.progress.values()
        if p.key not in seen and p.last_fetch is not None and now - p.last_fetch < OBSERVER_SESSION_S
    ]
    if not r.is_voter:
        observers.append(ReplicaInfo(r.me, end, now, now, r.facts))
    reply = QuorumReply(high_watermark=-1 if r.hwm is None else r.hwm, voters=voters, observers=observers)
    reply.voter_set = r.voters
    return r.answer(token, reply)


def _replica_info(progress: Progress) -> ReplicaInfo:
    return ReplicaInfo(
        progress.key, progress.end, progress.last_fetch, progress.last_caught_up, progress.facts
    )


# --- the leader's timers --------------------------------------------------------------------------


def poll_leader(r: RaftState, now: float) -> None:
    """Handles a leader's deadlines, advances the voter changes and repeats BeginQuorumEpoch."""
    leading = r.leading
    if leading is None:
        return
    expire_parked(r, now)
    if leading.voter_change is not None or leading.waiting_changes:
        voter_changes.poll_voter_changes(r, now)
    others = len(r.voters) - (1 if r.is_voter else 0)
    if others == 0:
        # The timer starts when there is a second voter.
        leading.check_quorum_deadline = now + r.params.check_quorum_s
        return
    if now >= leading.check_quorum_deadline:
        logger.info("[Raft id=%d] no Fetch from a majority within %.1f s", r.me.id, r.params.check_quorum_s)
        transitions.become_resigned(r, now)
        r.wake(r.election_deadline)
        send_end_quorum_epoch(r, now)
        return
    r.wake(leading.check_quorum_deadline)
    if now >= leading.begin_epoch_at:
        leading.begin_epoch_at = now + r.params.begin_epoch_period_s
        for voter in r.voters:
            address = r.voters.address(voter.id, r.params.listener_name)
            if voter.id != r.me.id and address is not None:
                q = BeginEpoch(r.me.id, r.epoch, r.leader_endpoints, voter.key, r.params.cluster_id)
                r.send(Peer(voter.id, address), q, now)
    r.wake(leading.begin_epoch_at)
    for key in [
        k
        for k, p in leading.progress.items()
        if p.last_fetch is not None and now - p.last_fetch > NON_VOTER_RETENTION_S
    ]:
        if not r.voters.is_voter(key):
            del leading.progress[key]
