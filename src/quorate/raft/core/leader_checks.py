"""What a leader checks before it serves a request, and the timer that makes it resign (KIP-595)."""

from __future__ import annotations

from quorate.protocol.errors import ErrorCode
from quorate.raft.core.messages import Fetch
from quorate.raft.core.role_state import FetchingProcesses
from quorate.raft.core.state import RaftState
from quorate.raft.types import ReplicaKey

BOTH_ALIVE = 3
"""The changes between two start times, one back to the other, that a late request does not explain. It is one,
and the next request of the living process is another."""


def leader_error(r: RaftState, epoch: int) -> ErrorCode:
    """Why this replica cannot serve a request as the leader of `epoch`, or NONE.

    The same checks as Kafka's `validateLeaderOnlyRequest`.
    """
    if epoch < r.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > r.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if r.leading is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if r.shutting_down:
        return ErrorCode.BROKER_NOT_AVAILABLE
    return ErrorCode.NONE


def may_wait_for_leader(r: RaftState, q: Fetch) -> bool:
    """Whether a Fetch may be held until a leader is known, so that its sender need not repeat it.

    This is for observers only. A Kafka voter has one request in flight on a connection, so its Vote
    would wait after its Fetch.
    """
    return (
        r.params.quick_failover
        and r.params.can_vote
        and q.replica.id >= 0
        and not r.voters.is_voter(q.replica)
    )


def is_second_process(r: RaftState, q: Fetch, now: float) -> bool:
    """Whether a Fetch comes from a second process of a voter, started from a copy of its directory.

    What one process acknowledges is not on the disk of the other, so only the one that started first may
    count for the high watermark. The other is refused until the first one no longer fetches.

    A replica that restarts reports another start time, once. If the earlier start time comes back twice,
    both processes are alive. Once is not enough: a request of a process that has died may still wait in the
    leader's socket.
    """
    start = q.facts.start_time_ms
    progress = None if r.leading is None else r.leading.progress.get(q.replica)
    if start == 0 or progress is None or not r.voters.is_voter(q.replica):
        return False
    seen = progress.processes
    if start == seen.current:
        return False
    if start == seen.refused and _has_fetched_lately(r, progress.last_fetch, now):
        return True
    seen.returns = seen.returns + 1 if start == seen.previous else 0
    if seen.returns < BOTH_ALIVE:
        seen.current, seen.previous, seen.refused = start, seen.current, 0
        return False
    first, second = sorted((start, seen.current))
    progress.processes = FetchingProcesses(current=first, refused=second)
    r.log_error(
        f"second process {q.replica}",
        f"two processes fetch as {q.replica}, started at {first} and {second} (ms since 1970): one of them "
        "runs on a copy of the other's directory. The later one is refused. Stop it and format its "
        "directory anew",
        now,
    )
    return start == second


def _has_fetched_lately(r: RaftState, last_fetch: float | None, now: float) -> bool:
    return last_fetch is not None and now - last_fetch < r.params.check_quorum_s


def update_check_quorum(r: RaftState, key: ReplicaKey, now: float) -> None:
    """Notes a Fetch of a voter, and resets the check-quorum timer when a majority has fetched.

    A leader that receives no Fetch from a majority resigns (Raft thesis, section 6.2).
    """
    leading = r.leading
    if leading is None or not r.voters.is_voter(key):
        return
    leading.fetched_voters.add(key.id)
    needed = r.voters.majority - (1 if r.is_voter else 0)
    if len(leading.fetched_voters) >= needed:
        leading.fetched_voters.clear()
        leading.check_quorum_deadline = now + r.params.check_quorum_s
