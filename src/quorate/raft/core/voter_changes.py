"""AddRaftVoter and RemoveRaftVoter on the leader (KIP-853): one change at a time, each a small story of
waits.

A change waits for its turn, for the voter set before it and a record of this epoch to be committed; an
addition then for the new voter to have caught up and to tell its range of kraft.version, and lets
removals go first meanwhile. It acts when its record is appended and is answered when that commits. All
waiting ends with the request's own time, of which an addition gets a minute at most: the answer then
names what was waited for.

A set acts as soon as it is appended, so one without a living majority would never commit: it is not
written (Kafka writes it).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode
from quorate.raft.core.messages import (
    AddVoter,
    Failure,
    Peer,
    ProbeReply,
    ProbeVersions,
    RemoveVoter,
    Replied,
    Token,
    VoterReply,
)
from quorate.raft.core.role_state import NEVER_LOST
from quorate.raft.core.voters import Voter, VoterSet
from quorate.raft.types import NO_DIRECTORY, Endpoints, ReplicaKey

if TYPE_CHECKING:
    from quorate.raft.core.leader import Leading, Progress
    from quorate.raft.core.raft import Raft

log = logging.getLogger(__name__)

REMOVE_TIMEOUT_S = 25.0  # RemoveRaftVoter names no time; clients wait thirty seconds for an answer
MAX_ADD_TIMEOUT_S = 60.0  # whatever an addition asks for: its sender may be gone, and nobody can take it back
ITS_TURN = "its turn"
LATE_S = 0.1  # what a replica had sent may be read so long after its connection was lost
MAX_WAITING = 16  # additions in the queue, and removals: nobody has reason for more


@dataclass(slots=True)
class Change:
    """One request until it is answered."""

    token: Token
    deadline: float
    adding: Voter | None = None
    removing: ReplicaKey | None = None
    ack_when_committed: bool = True
    waits_for: str = ITS_TURN
    probe: ProbeVersions | None = None  # under way
    failure: str = ""  # of the last probe
    kraft_versions: tuple[int, int] | None = None  # what the new voter has told
    votes: bool = True  # likewise
    lacks_since: float | None = None  # since when the voters that it would make have had no living majority
    proposed: bool = False  # its record is on the way into the log
    offset: int | None = None  # of its record


def refuse(r: Raft, token: Token, error: ErrorCode, message: str | None = None) -> None:
    r.answer(token, VoterReply(error, message=message))


# --- requests -------------------------------------------------------------------------------------


def on_add_voter(r: Raft, q: AddVoter, token: Token, now: float) -> None:
    if _not_here(r, q, token):
        return None
    key, listener = q.voter.key, r.params.listener_name
    if key.id < 0 or key.directory_id == NO_DIRECTORY:
        return refuse(r, token, ErrorCode.INVALID_REQUEST, "no voter id or no directory id")
    if listener not in q.voter.endpoints:
        return refuse(r, token, ErrorCode.INVALID_REQUEST, missing_endpoint(listener, q.voter.endpoints))
    deadline = now + min(max(0.0, q.timeout_ms / 1000), MAX_ADD_TIMEOUT_S)
    return _enqueue(r, Change(token, deadline, adding=q.voter, ack_when_committed=q.ack_when_committed))


def on_remove_voter(r: Raft, q: RemoveVoter, token: Token, now: float) -> None:
    if _not_here(r, q, token):
        return None
    if q.key.id < 0 or q.key.directory_id == NO_DIRECTORY:
        there = r.voters.by_id.get(q.key.id)
        if (
            there is None or there.key != q.key
        ):  # an entry whose voter has never told its directory can be removed too
            return refuse(r, token, ErrorCode.INVALID_REQUEST, "no voter id or no directory id")
    return _enqueue(r, Change(token, now + REMOVE_TIMEOUT_S, removing=q.key))


def _not_here(r: Raft, request: AddVoter | RemoveVoter, token: Token) -> bool:
    """Refuses what this replica cannot do at all; whether it did."""
    from quorate.raft.core.election import wrong_cluster

    if wrong_cluster(r, request.cluster_id):
        text = f'the given id "{request.cluster_id}" is not the cluster id "{r.params.cluster_id}"'
        refuse(r, token, ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    elif r.leading is None:
        refuse(r, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif r.shutting_down:
        refuse(r, token, ErrorCode.BROKER_NOT_AVAILABLE)
    elif r.members.kraft_version < 1:
        text = "voters can be changed from kraft.version 1 on, it is 0; kafka-features upgrade --feature kraft.version=1"
        refuse(r, token, ErrorCode.UNSUPPORTED_VERSION, text)
    else:
        return False
    return True


def _enqueue(r: Raft, change: Change) -> None:
    """`drive` takes it from here, still in this step."""
    leading = r.leading
    assert leading is not None
    refused = impossible(r, change)
    if refused is not None:
        refuse(r, change.token, *refused)
    elif leading.change is None:
        leading.change = change
    elif sum((c.adding is None) is (change.adding is None) for c in leading.waiting) >= MAX_WAITING:
        refuse(r, change.token, ErrorCode.REQUEST_TIMED_OUT, "too many changes of voters are waiting")
    elif change.adding is not None:
        leading.waiting.append(change)
    elif leading.change.adding is not None and not leading.change.proposed:  # which may wait for long
        leading.waiting.appendleft(leading.change)
        leading.change = change
    else:
        leading.waiting.insert(sum(c.adding is None for c in leading.waiting), change)


def impossible(r: Raft, change: Change) -> tuple[ErrorCode, str] | None:
    """Why the change makes no sense for the voters as they are."""
    if change.adding is not None:
        key = change.adding.key
        there = r.voters.by_id.get(key.id)
        if there is None:
            shared = shared_address(r.voters, change.adding)
            return None if shared is None else (ErrorCode.INVALID_REQUEST, shared)
        text = f"a voter with id {key.id} is there already: {there.key}"
        if there.key.directory_id == NO_DIRECTORY:
            text += "; it tells its directory id when it starts"
        elif there.key != key:
            from quorate.protocol.uuids import uuid_text

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


def missing_endpoint(listener: str, endpoints: Endpoints) -> str:
    names = ", ".join(endpoints) or "none"
    return f"the voter has no endpoint for listener {listener}, under which voters reach one another (it has: {names})"


def shared_address(
    voters: VoterSet, wanted: Voter, moved: Mapping[int, Voter] = MappingProxyType({})
) -> str | None:
    """Why `wanted` may not be where it says: another voter is there, as far as it has not told that it
    has `moved`. What is sent to one of two voters at one address reaches the other, and neither can be
    elected."""
    mine = {(host.lower(), port): name for name, (host, port) in wanted.endpoints.items()}
    for other in voters:
        if other.id != wanted.id:
            for host, port in moved.get(other.id, other).endpoints.values():
                if (host.lower(), port) in mine:
                    return (
                        f"{mine[host.lower(), port]}://{host}:{port} of voter {wanted.key} is the endpoint "
                        f"of voter {other.key}"
                        " already: give each its own (listeners, advertised.listeners), or remove voter "
                        f"{other.id} first"
                    )
    return None


# --- the way of a change --------------------------------------------------------------------------


def drive(r: Raft, now: float) -> None:
    """Takes the change whose turn it is as far as it can go now."""
    leading = r.leading
    if leading is None:
        return
    _expire(r, leading, now)
    while r.leading is leading and r.effects.append_control is None:
        change = leading.change
        if change is None and leading.waiting:
            change = leading.change = leading.waiting.popleft()
        if change is None or change.proposed:
            return
        awaited = blocked_by(r)
        if awaited is None:
            refused = impossible(r, change)
            if refused is None and change.adding is not None:
                awaited, refused = _prepare(r, change, change.adding, now)
            if awaited is not None:
                change.lacks_since = None
            elif refused is None:
                awaited, refused = _await_majority(r, change, now)
            if refused is not None:
                log.info("[Raft id=%d] no change of voters: %s", r.me.id, refused[1])
                leading.change = None
                refuse(r, change.token, *refused)
                continue
        if awaited is not None:
            change.waits_for = awaited
            return
        if r.effects.high_watermark is not None:  # what has just been committed is told first
            r.wake(now)
            return
        _propose(r, change)


def blocked_by(r: Raft) -> str | None:
    """What any change of the voters has to wait for."""
    leading, at = r.leading, r.members.current_offset
    assert leading is not None
    if r.hwm is None:
        return f"the first record of the leader's epoch {r.epoch} to be committed"
    if leading.upgrade_tokens:
        return "the change of kraft.version to be committed"
    if leading.writing:
        return "the voter set that is being written"
    if at is None or at >= r.hwm:
        return f"the voter set at offset {at} to be committed (the high watermark is {r.hwm})"
    return None


def _prepare(
    r: Raft, change: Change, voter: Voter, now: float
) -> tuple[str | None, tuple[ErrorCode, str] | None]:
    """Catching up and ApiVersions: (what is waited for, why it is refused), neither when both are done."""
    from quorate.raft.core.leader import progress_of

    level, key = r.members.kraft_version, voter.key
    behind = why_behind(r, progress_of(r, key), now)
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
    if (
        not change.votes
    ):  # a broker fetches as a controller does, but never votes and does not sync what it acknowledges
        address = voter.endpoints[r.params.listener_name]
        text = f"voter {key} does not vote: {address[0]}:{address[1]} is no listener of a controller"
        return None, (ErrorCode.INVALID_REQUEST, text)
    low, high = change.kraft_versions
    if not low <= level <= high:
        text = f"voter {key} supports kraft.version {low} to {high}, the cluster is at {level}"
        return None, (ErrorCode.INVALID_REQUEST, text)
    return None, None


def _await_majority(r: Raft, change: Change, now: float) -> tuple[str | None, tuple[ErrorCode, str] | None]:
    """As `_prepare`. Whoever is only late has a moment to show up."""
    lack = why_no_majority(r, _voters_after(r, change), now)
    if lack is None:
        change.lacks_since = None
        return None, None
    if change.lacks_since is None:
        change.lacks_since = now
    until = change.lacks_since + r.params.check_quorum_s
    if now >= until:
        return None, (ErrorCode.REQUEST_TIMED_OUT, lack)
    r.wake(until)
    return f"a majority to fetch: {lack}", None


def why_no_majority(r: Raft, voters: VoterSet, now: float) -> str | None:
    """None where a majority of these, this leader if it is one of them, has fetched lately and not been
    lost since. A Fetch waits half of a fetch timeout at most."""
    from quorate.raft.core.leader import progress_of

    silent: dict[int, str] = {}
    for voter in voters:
        if voter.id != r.me.id or not voters.is_voter(r.me):
            progress, address = progress_of(r, voter.key), voter.endpoints.get(r.params.listener_name)
            lost_at = r.links[address].lost_at if address in r.links else NEVER_LOST
            if progress is None or progress.last_fetch is None:
                silent[voter.id] = f"{voter.id} has not fetched from this leader"
            elif (
                progress.last_fetch < lost_at + LATE_S
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


def why_behind(r: Raft, progress: Progress | None, now: float) -> str | None:
    """None for a replica that is alive and has been at the log's end a moment ago."""
    end = r.log.end_offset
    if progress is None or progress.last_fetch is None:
        return "it has not fetched from this leader"
    if now - progress.last_fetch > r.params.fetch_timeout_s:
        return f"its last fetch was {now - progress.last_fetch:.1f} s ago"
    if progress.last_caught_up is None or now - progress.last_caught_up > r.params.check_quorum_s:
        return f"it is at {progress.end} of {end}"
    return None


def _voters_after(r: Raft, change: Change) -> VoterSet:
    if change.adding is not None:
        assert change.kraft_versions is not None
        return r.voters.with_voter(Voter(change.adding.key, change.adding.endpoints, change.kraft_versions))
    assert change.removing is not None
    return r.voters.without(change.removing.id)


def _propose(r: Raft, change: Change) -> None:
    from quorate.raft.core.membership import KRAFT_VOTERS, voters_record

    assert r.leading is not None
    voters = _voters_after(r, change)
    r.leading.writing = True
    change.proposed = True
    change.waits_for = "the new voter set to be committed"
    r.effects.append_control = [(KRAFT_VOTERS, voters_record(voters))]


def on_probe_reply(r: Raft, event: Replied, now: float) -> bool:
    leading = r.leading
    changes = (leading.change, *leading.waiting) if leading is not None else ()
    change = next((c for c in changes if c is not None and c.probe is event.request), None)
    if change is None:
        return True
    change.probe = None
    reply = event.reply
    if isinstance(reply, ProbeReply) and reply.error == ErrorCode.NONE:
        change.kraft_versions, change.votes = reply.kraft_versions, reply.votes
        return True
    change.failure = reply.value if isinstance(reply, Failure) else reply.error.name
    return False


def appended(r: Raft, offset: int) -> None:
    """A voter set is in the log; it may be that of the change under way."""
    change = r.leading.change if r.leading is not None else None
    if change is not None and change.proposed and change.offset is None:
        change.offset = offset
        if not change.ack_when_committed:
            r.answer(change.token, VoterReply())


def committed(r: Raft) -> None:
    """The high watermark has moved: a change that it has passed is done."""
    leading = r.leading
    if leading is None or r.hwm is None:
        return
    change = leading.change
    if change is not None and change.offset is not None and r.hwm > change.offset:
        leading.change = None
        if change.ack_when_committed:
            r.answer(change.token, VoterReply())


def _expire(r: Raft, leading: Leading, now: float) -> None:
    change = leading.change
    if change is not None:
        if now >= change.deadline:
            leading.change = None
            _time_out(r, change)
        else:
            r.wake(change.deadline)
    for late in [c for c in leading.waiting if now >= c.deadline]:
        leading.waiting.remove(late)
        if late.waits_for == ITS_TURN:
            late.waits_for = "an earlier change of voters to finish"
        _time_out(r, late)
    for waiting in leading.waiting:
        r.wake(waiting.deadline)


def _time_out(r: Raft, change: Change) -> None:
    if change.ack_when_committed or change.offset is None:
        refuse(r, change.token, ErrorCode.REQUEST_TIMED_OUT, f"timed out waiting for {change.waits_for}")


def fail_all(r: Raft, leading: Leading) -> None:
    """Leadership is lost: whoever waits must ask the next leader."""
    for change in (leading.change, *leading.waiting):
        if change is not None and (change.ack_when_committed or change.offset is None):
            refuse(r, change.token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
