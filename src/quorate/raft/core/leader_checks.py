"""What a leader checks before it serves a request, and the timer that makes it resign (KIP-595)."""

from __future__ import annotations

from quorate.protocol.errors import ErrorCode
from quorate.raft.core.messages import Fetch
from quorate.raft.core.role_state import FetchingProcesses
from quorate.raft.core.state import RaftState
from quorate.raft.types import ReplicaKey

MAX_PROCESSES = 16
"""The processes of one voter that a leader remembers."""


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
    count for the high watermark. The other is refused until no other process fetches as this voter.

    Both are alive if one of them has twice fetched again after the other (A, B, A, B, A). Once is not
    enough: when a voter restarts, a request of the process that has died may still wait in the leader's
    socket.
    """
    start = q.facts.start_time_ms
    if r.leading is None or start == 0 or not r.voters.is_voter(q.replica):
        return False
    if q.replica == r.me:
        _log_second_process(r, q.replica, r.params.start_time_ms, start, start, now)
        return True
    seen = r.leading.processes.setdefault(q.replica, FetchingProcesses())
    if start in seen.refused:
        if any(now - at < r.params.check_quorum_s for at in seen.last_fetch.values()):
            _log_second_process(r, q.replica, seen.latest, start, start, now)
            return True
        seen = r.leading.processes[q.replica] = FetchingProcesses()
    other = seen.latest
    if start != other and start in seen.last_fetch:
        returns = seen.returns[start, other] = seen.returns.get((start, other), 0) + 1
        if returns == 2:
            refused = max(start, other)
            _log_second_process(r, q.replica, start, other, refused, now)
            seen.refused.add(refused)
            del seen.last_fetch[refused]
            if refused == start:
                seen.latest = other
                return True
    elif len(seen.last_fetch) + len(seen.refused) >= MAX_PROCESSES:
        seen = r.leading.processes[q.replica] = FetchingProcesses()
    seen.latest = start
    seen.last_fetch[start] = now
    return False


def _log_second_process(
    r: RaftState, voter: ReplicaKey, one: int, another: int, refused: int, now: float
) -> None:
    r.log_error(
        f"second process {voter}",
        f"two processes fetch as {voter}, started at {min(one, another)} and {max(one, another)} (ms since "
        f"1970): one of them runs on a copy of the other's directory. The one that started at {refused} is "
        "refused. Stop it, and remove its directory",
        now,
    )


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
