"""The begin and the end of leadership, and what a leader checks before it serves a request (KIP-595)."""

from __future__ import annotations

from collections.abc import Sequence

from quorate.protocol.errors import ErrorCode
from quorate.raft.core.control_records import epoch_start_records
from quorate.raft.core.messages import Fetch, FetchReply, Token, VoterReply
from quorate.raft.core.role_state import Leading
from quorate.raft.core.state import RaftState
from quorate.raft.types import ReplicaKey


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
