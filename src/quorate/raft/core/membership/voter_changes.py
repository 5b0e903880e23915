"""AddRaftVoter and RemoveRaftVoter on the leader (KIP-853).

KIP-853 allows one change of the voter set at a time, and each adds or removes one voter, so that every
majority of the old set intersects every majority of the new one. A change is appended when these
preconditions hold:

1. No other change is in progress. Further requests wait in a queue.
2. The high watermark of this epoch is known: a record of this epoch is committed. Without this rule, two
   leaders could each append a change while neither has the change of the other.
3. The current voter set is committed.
4. For an addition: the new voter has caught up, and its ApiVersions response lists Vote and a range that
   contains the current kraft.version.
5. A majority of the new voter set is alive: each of its voters has fetched after the other preconditions
   held. The leader answers their parked Fetches at once, so that the check takes one round trip. A voter set
   takes effect when it is appended, so one without a living majority could never be committed. Apache Kafka
   does not check this.

The change takes effect when its record is appended. It is answered when the record is committed, or
already when it is appended if AckWhenCommitted is false. A removal may overtake an addition that still
waits. A request that waits too long is answered with REQUEST_TIMED_OUT, and the message names what it
waited for. An addition ends when its client hangs up, unless its record is being written already.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

from quorate.protocol.errors import ErrorCode
from quorate.protocol.uuids import uuid_text
from quorate.raft.core.control_records import KRAFT_VOTERS, voters_record
from quorate.raft.core.events import Replied
from quorate.raft.core.messages import (
    AddVoter,
    Failure,
    Peer,
    ProbeReply,
    ProbeVersions,
    RemoveVoter,
    Token,
    VoterReply,
)
from quorate.raft.core.role_state import ITS_TURN, NEVER_LOST, Leading, Progress, VoterChange
from quorate.raft.core.state import RaftState
from quorate.raft.core.transitions import refuse
from quorate.raft.core.voters import Voter, VoterSet
from quorate.raft.types import NO_DIRECTORY, Endpoints, ReplicaKey

logger = logging.getLogger(__name__)

REMOVE_TIMEOUT_S = 25.0  # RemoveRaftVoter carries no timeout; clients wait 30 seconds for a response
# A longer timeout_ms is reduced to this. Otherwise the request of a sender that died without closing its
# connection would stay for its whole timeout.
MAX_ADD_TIMEOUT_S = 60.0
# A Fetch may still be handled this long after the loss of the connection on which it came.
LOST_CONNECTION_GRACE_S = 0.1
MAX_WAITING = 16  # additions in the queue, and as many removals


# --- requests -------------------------------------------------------------------------------------


def on_add_voter(r: RaftState, q: AddVoter, token: Token, now: float) -> None:
    if _refuse_if_not_serving(r, q, token):
        return None
    key, listener = q.voter.key, r.params.listener_name
    if key.id < 0 or key.directory_id == NO_DIRECTORY:
        text = "Add voter request didn't include a valid voter: no voter id or no directory id"
        return refuse(r, token, ErrorCode.INVALID_REQUEST, text)
    if listener not in q.voter.endpoints:
        return refuse(
            r, token, ErrorCode.INVALID_REQUEST, missing_endpoint_message(listener, q.voter.endpoints)
        )
    deadline = now + min(max(0.0, q.timeout_ms / 1000), MAX_ADD_TIMEOUT_S)
    return _enqueue(r, VoterChange(token, deadline, adding=q.voter, ack_when_committed=q.ack_when_committed))


def on_remove_voter(r: RaftState, q: RemoveVoter, token: Token, now: float) -> None:
    if _refuse_if_not_serving(r, q, token):
        return None
    if q.key.id < 0 or q.key.directory_id == NO_DIRECTORY:
        there = r.voters.by_id.get(q.key.id)
        # A voter that has never reported its directory id can be removed too.
        if there is None or there.key != q.key:
            text = "Remove voter request didn't include a valid voter: no voter id or no directory id"
            return refuse(r, token, ErrorCode.INVALID_REQUEST, text)
    return _enqueue(r, VoterChange(token, now + REMOVE_TIMEOUT_S, removing=q.key))


def _refuse_if_not_serving(r: RaftState, request: AddVoter | RemoveVoter, token: Token) -> bool:
    """Refuses the request if this replica can make no voter change now. Returns whether it was refused."""
    if r.is_other_cluster(request.cluster_id):
        text = f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{r.params.cluster_id}"'
        refuse(r, token, ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    elif r.leading is None:
        refuse(r, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif r.shutting_down:
        refuse(r, token, ErrorCode.BROKER_NOT_AVAILABLE)
    elif r.members.kraft_version < 1:
        what = "adding" if isinstance(request, AddVoter) else "removing"
        text = (
            f"Cluster doesn't support {what} voter because the kraft.version feature is "
            f"{r.members.kraft_version}. Upgrade it first: kafka-features upgrade --feature kraft.version=1"
        )
        refuse(r, token, ErrorCode.UNSUPPORTED_VERSION, text)
    else:
        return False
    return True


def _enqueue(r: RaftState, change: VoterChange) -> None:
    """Starts the change or puts it into the queue. `poll_voter_changes` continues it in the same step."""
    leading = r.leading
    assert leading is not None
    refused = rejection_reason(r, change)
    if refused is not None:
        refuse(r, change.token, *refused)
    elif leading.voter_change is None:
        leading.voter_change = change
    elif sum((c.adding is None) is (change.adding is None) for c in leading.waiting_changes) >= MAX_WAITING:
        refuse(r, change.token, ErrorCode.REQUEST_TIMED_OUT, "too many changes of voters are waiting")
    elif change.adding is not None:
        leading.waiting_changes.append(change)
    elif (
        leading.voter_change.adding is not None and not leading.voter_change.proposed
    ):  # an addition may wait for a long time
        leading.waiting_changes.appendleft(leading.voter_change)
        leading.voter_change = change
    else:
        leading.waiting_changes.insert(sum(c.adding is None for c in leading.waiting_changes), change)


def rejection_reason(r: RaftState, change: VoterChange) -> tuple[ErrorCode, str] | None:
    """Why the change cannot be made to the current voter set, or None."""
    if change.adding is not None:
        key = change.adding.key
        there = r.voters.by_id.get(key.id)
        if there is None:
            shared = shared_address_message(r.voters, change.adding)
            return None if shared is None else (ErrorCode.INVALID_REQUEST, shared)
        text = f"a voter with id {key.id} is there already: {there.key}"
        if there.key.directory_id == NO_DIRECTORY:
            text += "; it reports its directory id when it starts"
        elif there.key != key:
            text += (
                f"; remove it first: kafka-metadata-quorum remove-controller --controller-id {key.id}"
                f" --controller-directory-id {uuid_text(there.key.directory_id)}"
            )
        return ErrorCode.DUPLICATE_VOTER, text
    assert change.removing is not None
    found = ", ".join(str(v.key) for v in r.voters)
    if not r.voters.has_key(change.removing):
        return ErrorCode.VOTER_NOT_FOUND, f"cannot remove voter {change.removing}: the voters are {found}"
    if len(r.voters) == 1:
        return (
            ErrorCode.VOTER_NOT_FOUND,
            f"cannot remove voter {found}: it is the only one; add another controller first",
        )
    return None


def missing_endpoint_message(listener: str, endpoints: Endpoints) -> str:
    names = ", ".join(endpoints) or "none"
    return (
        f"the voter has no endpoint for listener {listener}, under which voters reach one another (it has: "
        f"{names})"
    )


def shared_address_message(
    voters: VoterSet, wanted: Voter, moved: Mapping[int, Voter] = MappingProxyType({})
) -> str | None:
    """The error message if another voter already has one of this voter's endpoints, or None.

    If two voters have the same address, requests for one of them reach the other, which rejects them with
    INVALID_VOTER_KEY. So one of the two counts as down.

    Args:
        moved: By voter id, the entries that voters have reported and that the voter set does not hold yet.
    """
    mine = {(host.lower(), port): name for name, (host, port) in wanted.endpoints.items()}
    for other in voters:
        if other.id != wanted.id:
            for host, port in moved.get(other.id, other).endpoints.values():
                if (host.lower(), port) in mine:
                    return (
                        f"{mine[host.lower(), port]}://{host}:{port} of voter {wanted.key} is the endpoint "
                        f"of voter {other.key} already: give each its own (listeners, "
                        f"advertised.listeners), or remove voter {other.id} first"
                    )
    return None


# --- progress of a change -------------------------------------------------------------------------


def poll_voter_changes(r: RaftState, now: float) -> None:
    """Advances the change in progress as far as possible, then the next one in the queue."""
    leading = r.leading
    if leading is None:
        return
    _expire(r, leading, now)
    while r.leading is leading and r.effects.append_control is None:
        change = leading.voter_change
        if change is None and leading.waiting_changes:
            change = leading.voter_change = leading.waiting_changes.popleft()
        if change is None or change.proposed:
            return
        awaited = blocked_by(r)
        if awaited is None:
            refused = rejection_reason(r, change)
            if refused is None and change.adding is not None:
                awaited, refused = _check_new_voter(r, change, change.adding, now)
            if awaited is not None:
                change.fetched = None
            elif refused is None:
                awaited, refused = _await_majority(r, change, now)
            if refused is not None:
                logger.info("[Raft id=%d] no change of voters: %s", r.me.id, refused[1])
                leading.voter_change = None
                refuse(r, change.token, *refused)
                continue
        if awaited is not None:
            change.waits_for = awaited
            return
        if r.effects.high_watermark is not None:
            # In this step the append would precede the delivery of the new high watermark to the listeners.
            # So the append waits for the next step.
            r.wake(now)
            return
        _propose(r, change)


def blocked_by(r: RaftState) -> str | None:
    """What every voter change has to wait for (preconditions 2 and 3 above), or None."""
    leading, at = r.leading, r.members.current_offset
    assert leading is not None
    if r.hwm is None:
        return f"the first record of the leader's epoch {r.epoch} to be committed"
    if leading.upgrade_tokens:
        return "the change of kraft.version to be committed"
    if leading.appending_control_records:
        return "the voter set that is being written"
    if at is None or at >= r.hwm:
        return f"the voter set at offset {at} to be committed (the high watermark is {r.hwm})"
    return None


def _check_new_voter(
    r: RaftState, change: VoterChange, voter: Voter, now: float
) -> tuple[str | None, tuple[ErrorCode, str] | None]:
    """Checks precondition 4: the new voter has caught up, and supports Vote and the current kraft.version.

    Returns (what the change waits for, why it is refused); both are None when the precondition holds.
    """
    level, key = r.members.kraft_version, voter.key
    behind = not_caught_up_reason(r, r.progress_of(key), now)
    if behind is not None:
        return f"voter {key} to catch up with the log: {behind}", None
    if change.kraft_versions is None:
        address = voter.endpoints[r.params.listener_name]
        if change.probe is None:
            probe = ProbeVersions()
            if r.send(Peer(key.id, address), probe, now):
                change.probe = probe
        why = f" ({change.failure})" if change.failure else ""
        return f"ApiVersions of voter {key} at {address[0]}:{address[1]}{why}", None
    # A broker fetches like a controller, but it never votes and does not fsync the records it acknowledges.
    if not change.supports_vote:
        address = voter.endpoints[r.params.listener_name]
        text = f"voter {key} does not vote: {address[0]}:{address[1]} is not a listener of a controller"
        return None, (ErrorCode.INVALID_REQUEST, text)
    low, high = change.kraft_versions
    if not low <= level <= high:
        text = f"voter {key} supports kraft.version {low} to {high}, the cluster is at {level}"
        return None, (ErrorCode.INVALID_REQUEST, text)
    return None, None


def _await_majority(
    r: RaftState, change: VoterChange, now: float
) -> tuple[str | None, tuple[ErrorCode, str] | None]:
    """Checks precondition 5. Returns the same pair as `_check_new_voter`.

    The voters have the check-quorum timeout to fetch again.
    """
    leading, voters = r.leading, _voters_after(r, change)
    assert leading is not None
    if change.fetched is None:
        change.fetched = set()
        change.majority_deadline = now + r.params.check_quorum_s
        for parked in leading.parked:
            if voters.is_voter(parked.request.replica):
                parked.deadline = now  # its sender then fetches again
                r.wake(now)
    lack = no_majority_reason(r, voters, change.fetched, now)
    if lack is None:
        return None, None
    if now >= change.majority_deadline:
        return None, (ErrorCode.REQUEST_TIMED_OUT, lack)
    r.wake(change.majority_deadline)
    return f"a majority to fetch: {lack}", None


def no_majority_reason(r: RaftState, voters: VoterSet, fetched: set[ReplicaKey], now: float) -> str | None:
    """Why no majority of these voters is alive, or None if one is.

    A voter is alive if it is among those that have `fetched` and its connection has not been lost since then.
    The last Fetch must be at most 3/4 of the fetch timeout ago. A living voter fetches more often, because
    the leader parks a Fetch for at most half of the fetch timeout.
    """
    silent: dict[int, str] = {}
    for voter in voters:
        if voter.id != r.me.id or not voters.is_voter(r.me):
            progress, address = r.progress_of(voter.key), voter.endpoints.get(r.params.listener_name)
            lost_at = r.links[address].lost_at if address in r.links else NEVER_LOST
            if progress is None or progress.last_fetch is None:
                silent[voter.id] = f"{voter.id} has not fetched from this leader"
            elif (
                progress.key not in fetched
                or progress.last_fetch < lost_at + LOST_CONNECTION_GRACE_S
                or now - progress.last_fetch > 0.75 * r.params.fetch_timeout_s
            ):
                silent[voter.id] = f"{voter.id} has not fetched for {now - progress.last_fetch:.1f} s"
    if len(voters) - len(silent) >= voters.majority:
        return None
    ids = ", ".join(map(str, silent))
    return (
        f"the voters would be {', '.join(map(str, voters.ids))}, and nothing could be committed by them:"
        f" {voters.majority} must be up, but voter {', voter '.join(silent.values())}; start {ids} first, or "
        f"remove {ids} first"
    )


def not_caught_up_reason(r: RaftState, progress: Progress | None, now: float) -> str | None:
    """Why a replica has not caught up, or None if it fetches and was recently at the end of the log."""
    end = r.log.end_offset
    if progress is None or progress.last_fetch is None:
        return "it has not fetched from this leader"
    if now - progress.last_fetch > r.params.fetch_timeout_s:
        return f"its last fetch was {now - progress.last_fetch:.1f} s ago"
    if progress.last_caught_up is None or now - progress.last_caught_up > r.params.check_quorum_s:
        return f"it is at {progress.end} of {end}"
    return None


def _voters_after(r: RaftState, change: VoterChange) -> VoterSet:
    if change.adding is not None:
        assert change.kraft_versions is not None
        return r.voters.with_voter(Voter(change.adding.key, change.adding.endpoints, change.kraft_versions))
    assert change.removing is not None
    return r.voters.without(change.removing.id)


def _propose(r: RaftState, change: VoterChange) -> None:
    assert r.leading is not None
    voters = _voters_after(r, change)
    r.leading.appending_control_records = True
    change.proposed = True
    change.waits_for = "the new voter set to be committed"
    r.effects.append_control = [(KRAFT_VOTERS, voters_record(voters))]


def on_probe_reply(r: RaftState, event: Replied, now: float) -> bool:
    leading = r.leading
    changes = (leading.voter_change, *leading.waiting_changes) if leading is not None else ()
    change = next((c for c in changes if c is not None and c.probe is event.request), None)
    if change is None:
        return True
    change.probe = None
    reply = event.reply
    if isinstance(reply, ProbeReply) and reply.error == ErrorCode.NONE:
        change.kraft_versions, change.supports_vote = reply.kraft_versions, reply.supports_vote
        return True
    change.failure = reply.value if isinstance(reply, Failure) else reply.error.name
    return False


def on_abandoned(r: RaftState, token: Token) -> None:
    """Ends an addition whose sender has hung up, because nobody would learn of the new voter.

    An addition whose record is already being written continues.
    """
    leading = r.leading
    if leading is None:
        return
    for change in (leading.voter_change, *leading.waiting_changes):
        if change is None or change.token is not token or change.proposed:
            continue
        if change is leading.voter_change:
            leading.voter_change = None
        else:
            leading.waiting_changes.remove(change)
        refuse(r, token, ErrorCode.REQUEST_TIMED_OUT, f"the client hung up, waiting for {change.waits_for}")
        return


def on_appended(r: RaftState, offset: int) -> None:
    """Records the offset of the appended voter set.

    Answers the request now if it does not wait for the commit.
    """
    change = r.leading.voter_change if r.leading is not None else None
    if change is not None and change.proposed and change.offset is None:
        change.offset = offset
        if not change.ack_when_committed:
            r.answer(change.token, VoterReply())


def on_high_watermark(r: RaftState) -> None:
    """Ends the change in progress when its voter set is committed. Answers it, unless it was already
    answered on append."""
    leading = r.leading
    if leading is None or r.hwm is None:
        return
    change = leading.voter_change
    if change is not None and change.offset is not None and r.hwm > change.offset:
        leading.voter_change = None
        if change.ack_when_committed:
            r.answer(change.token, VoterReply())


def _expire(r: RaftState, leading: Leading, now: float) -> None:
    change = leading.voter_change
    if change is not None:
        if now >= change.deadline:
            leading.voter_change = None
            _time_out(r, change)
        else:
            r.wake(change.deadline)
    for late in [c for c in leading.waiting_changes if now >= c.deadline]:
        leading.waiting_changes.remove(late)
        if late.waits_for == ITS_TURN:
            late.waits_for = "an earlier change of voters to finish"
        _time_out(r, late)
    for waiting in leading.waiting_changes:
        r.wake(waiting.deadline)


def _time_out(r: RaftState, change: VoterChange) -> None:
    if change.ack_when_committed or change.offset is None:
        refuse(r, change.token, ErrorCode.REQUEST_TIMED_OUT, f"timed out waiting for {change.waits_for}")
