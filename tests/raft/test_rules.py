"""Rules of the core as tables: granted votes, responses to Fetch, transitions between roles."""

from __future__ import annotations

import random
from typing import Any

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import messages as m
from quorate.raft.core import transitions
from quorate.raft.core.control_records import LEADER_CHANGE
from quorate.raft.core.effects import Effects
from quorate.raft.core.events import Appended, ControlRecord, Received, Replied, Resign, Synced, Timeout
from quorate.raft.core.raft import Raft
from quorate.raft.core.voters import Membership, VoterSet
from quorate.raft.types import TRANSITIONS, OffsetEpoch, QuorumState, RaftError, RaftParams, ReplicaKey, Role
from quorate.records.control import LeaderChangeMessage
from tests.raft.world import CLUSTER, LISTENER, Entry, MemoryLog, address, directory, voter


def replica(
    stored: QuorumState | None = None,
    epochs: tuple[int, ...] = (),
    i: int = 1,
    voters: int = 3,
    can_vote: bool = True,
    **params_changes: Any,
) -> Raft:
    """Node i of a dynamic quorum, not started. Its log has one record for each given epoch."""
    log = MemoryLog([Entry(e, e) for e in epochs])
    members = Membership()
    members.reset(-1, VoterSet.of(voter(j) for j in range(1, voters + 1)), 1)
    params = RaftParams(
        ReplicaKey(i, directory(i)),
        CLUSTER,
        LISTENER,
        {LISTENER: address(i)},
        can_vote,
        (address(2),),
        quick_failover=False,
        **params_changes,
    )
    return Raft(params, log, stored, members, random.Random(1))


def started(role: Role, epochs: tuple[int, ...] = (1, 1, 2), **params_changes: Any) -> Raft:
    """Node 1 in epoch 3, in the given role."""
    match role:
        case Role.FOLLOWER:
            r = replica(QuorumState(3, 2), epochs, **params_changes)
        case Role.CANDIDATE:
            r = replica(QuorumState(3, None, ReplicaKey(1, directory(1))), epochs, **params_changes)
        case Role.RESIGNED:
            r = replica(QuorumState(3, 1), epochs, **params_changes)
        case _:
            r = replica(QuorumState(3), epochs, **params_changes)
    r.start(0.0)
    if role is Role.PROSPECTIVE:
        r.step(Timeout(), 5.0)
    if role is Role.LEADER:
        r = replica(QuorumState(2), epochs, **params_changes)
        r.start(0.0)
        effects = r.step(Timeout(), 5.0)
        while r.state.role is not Role.LEADER:
            out = effects.send[0]
            effects = r.step(
                Replied(out.to, out.request, m.VoteReply(epoch=r.state.epoch, granted=True)), 5.0
            )
    assert r.state.role is role
    assert r.state.epoch == 3
    return r


def reply_to(r: Raft, request: m.RaftRequest, now: float = 5.0) -> m.Reply:
    effects = r.step(Received(request, "t"), now)
    return next(a.reply for a in effects.answers if a.token == "t")


def vote(
    epoch: int = 3, last: tuple[int, int] = (3, 2), i: int = 2, pre: bool = False, **changes: object
) -> m.Vote:
    q = m.Vote(
        epoch, ReplicaKey(i, directory(i)), OffsetEpoch(*last), ReplicaKey(1, directory(1)), pre, CLUSTER
    )
    for name, value in changes.items():
        setattr(q, name, value)
    return q


# --- votes ----------------------------------------------------------------------------------------

GRANTS = [  # role, standard vote, pre-vote; candidate's log as good as ours
    (Role.UNATTACHED, True, True),
    (Role.PROSPECTIVE, True, True),
    (Role.CANDIDATE, False, True),
    (Role.FOLLOWER, False, True),
    (Role.LEADER, False, False),
    (Role.RESIGNED, False, True),
]


@pytest.mark.parametrize(("role", "standard", "pre"), GRANTS)
def test_grants_by_role(role: Role, standard: bool, pre: bool) -> None:
    for request, expected in ((vote(), standard), (vote(pre=True), pre)):
        r = started(role)
        last = (r.state.end.offset, r.state.end.epoch if role is not Role.LEADER else 2)
        request.last = OffsetEpoch(*last)
        reply = reply_to(r, request)
        assert isinstance(reply, m.VoteReply)
        assert (reply.error, reply.granted) == (ErrorCode.NONE, expected)


def test_a_candidate_outside_of_the_voter_set_may_get_a_vote() -> None:
    r = started(Role.UNATTACHED)
    assert 9 not in r.state.voters.ids
    reply = reply_to(r, vote(i=9))
    assert isinstance(reply, m.VoteReply)
    assert reply.granted


def test_a_replica_outside_of_the_voter_set_may_grant_a_vote() -> None:
    r = replica(QuorumState(3), (1, 1, 2), i=4)
    r.start(0.0)
    assert not r.state.is_voter
    reply = reply_to(r, vote(voter=ReplicaKey(4, directory(4))))
    assert isinstance(reply, m.VoteReply)
    assert reply.granted


def test_a_leader_announces_itself_to_all_voters_periodically() -> None:
    r = replica(QuorumState(2), (1, 1, 2))
    r.start(0.0)
    effects = r.step(Timeout(), 5.0)
    while r.state.role is not Role.LEADER:
        out = effects.send[0]
        granted = m.VoteReply(epoch=r.state.epoch, granted=True)
        effects = r.step(Replied(out.to, out.request, granted), 5.0)
    announced = [out for out in effects.send if isinstance(out.request, m.BeginEpoch)]
    assert sorted(out.to.id for out in announced) == [2, 3]
    for out in announced:
        r.step(Replied(out.to, out.request, m.EpochReply(epoch=3, leader_id=1)), 5.1)
    again = r.step(Timeout(), 5.0 + r.state.params.begin_epoch_period_s).send
    assert sorted(out.to.id for out in again if isinstance(out.request, m.BeginEpoch)) == [2, 3]
    assert r.state.role is Role.LEADER


@pytest.mark.parametrize(
    ("last", "granted"),
    [((3, 2), True), ((9, 2), True), ((2, 2), False), ((9, 1), False), ((0, 0), False)],
)
def test_a_candidate_with_a_shorter_or_older_log_gets_no_vote(last: tuple[int, int], granted: bool) -> None:
    for pre in (False, True):
        reply = reply_to(started(Role.UNATTACHED), vote(last=last, pre=pre))
        assert isinstance(reply, m.VoteReply)
        assert reply.granted is granted


def test_a_vote_is_granted_once_and_durable_before_the_response() -> None:
    r = started(Role.UNATTACHED)
    effects = r.step(Received(vote(i=2), "t"), 1.0)
    assert effects.save_quorum_state == QuorumState(3, None, ReplicaKey(2, directory(2)))
    again, other = reply_to(r, vote(i=2)), reply_to(r, vote(i=3))
    assert isinstance(again, m.VoteReply)
    assert isinstance(other, m.VoteReply)
    assert (again.granted, other.granted) == (True, False)


def test_a_candidate_asks_for_votes_when_its_log_is_durable() -> None:
    """Otherwise it could lose records in a crash, and get a second vote of the same epoch with a shorter
    log."""
    r = started(Role.FOLLOWER)
    assert isinstance(r.state.log, MemoryLog)
    r.state.log.entries.append(Entry(3, 3))  # written, not synced
    asked = r.step(Timeout(), 9.0).send
    assert [(q.to.id, q.request.pre_vote, q.request.last) for q in asked] == [
        (2, True, (4, 3)),
        (3, True, (4, 3)),
    ]  # type: ignore[union-attr]
    effects = r.step(Replied(asked[0].to, asked[0].request, m.VoteReply(epoch=3, granted=True)), 9.0)
    assert (r.state.role, r.state.epoch, effects.send) == (Role.CANDIDATE, 4, [])
    asked = r.step(Synced(4), 9.1).send
    assert [(q.to.id, q.request.pre_vote, q.request.last) for q in asked] == [
        (2, False, (4, 3)),
        (3, False, (4, 3)),
    ]  # type: ignore[union-attr]


def test_a_vote_for_another_directory_of_the_same_id_is_another_vote() -> None:
    r = started(Role.UNATTACHED)
    reply_to(r, vote(i=2))
    reply = reply_to(r, vote(i=2, candidate=ReplicaKey(2, directory(9))))
    assert isinstance(reply, m.VoteReply)
    assert not reply.granted


def test_a_follower_that_has_fetched_from_its_leader_refuses_the_pre_vote() -> None:
    r = started(Role.FOLLOWER)
    effects = r.step(Timeout(), 0.1)
    del effects
    request = next(
        q for link in r.state.links.values() for q in link.in_flight.values() if isinstance(q, m.Fetch)
    )
    peer = m.Peer(2, address(2))
    r.step(Replied(peer, request, m.FetchReply(leader_id=2, epoch=3, high_watermark=0)), 0.2)
    reply = reply_to(r, vote(pre=True), 0.3)
    assert isinstance(reply, m.VoteReply)
    assert not reply.granted


@pytest.mark.parametrize(
    ("request_", "error", "top"),
    [
        (vote(cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID, True),
        (vote(epoch=2, last=(3, 1)), ErrorCode.FENCED_LEADER_EPOCH, False),
        (vote(last=(-1, 2)), ErrorCode.INVALID_REQUEST, False),
        (vote(last=(3, -1)), ErrorCode.INVALID_REQUEST, False),
        (vote(last=(3, 3)), ErrorCode.INVALID_REQUEST, False),
        (vote(last=(3, 4), pre=True), ErrorCode.INVALID_REQUEST, False),
        (vote(candidate=ReplicaKey(-1)), ErrorCode.INVALID_REQUEST, False),
        (vote(voter=ReplicaKey(2, directory(2))), ErrorCode.INVALID_VOTER_KEY, False),
        (vote(voter=ReplicaKey(1, directory(9))), ErrorCode.INVALID_VOTER_KEY, False),
        (vote(voter=ReplicaKey(1)), ErrorCode.NONE, False),
        (vote(voter=None, cluster_id=None), ErrorCode.NONE, False),
        (vote(last=(3, 3), pre=True), ErrorCode.NONE, False),
    ],
)
def test_errors_of_vote(request_: m.Vote, error: ErrorCode, top: bool) -> None:
    reply = reply_to(started(Role.UNATTACHED), request_)
    assert (reply.error, reply.top_level) == (error, top)


@pytest.mark.parametrize("pre", [False, True])
def test_a_greater_epoch_in_a_vote_is_adopted(pre: bool) -> None:
    r = started(Role.LEADER)
    reply = reply_to(r, vote(epoch=8, last=(99, 3), pre=pre))
    assert (r.state.role, r.state.epoch, reply.epoch) == (Role.UNATTACHED, 8, 8)


def test_a_peer_without_pre_vote_makes_the_prospective_a_candidate_at_once() -> None:
    r = started(Role.PROSPECTIVE)
    request = next(
        q for link in r.state.links.values() for q in link.in_flight.values() if isinstance(q, m.Vote)
    )
    effects = r.step(Replied(m.Peer(2, address(2)), request, m.Failure.UNSUPPORTED_VERSION), 5.1)
    assert (r.state.role, r.state.epoch) == (Role.CANDIDATE, 4)
    assert effects.save_quorum_state == QuorumState(4, None, r.state.me)


# --- starting -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "epochs", "role", "epoch", "leader"),
    [
        (None, (), Role.UNATTACHED, 0, None),
        (QuorumState(2, 2), (1, 4), Role.UNATTACHED, 4, None),
        (QuorumState(5, 1), (1, 4), Role.RESIGNED, 5, 1),
        (QuorumState(5, None, ReplicaKey(1, directory(1))), (4,), Role.CANDIDATE, 5, None),
        (QuorumState(5, None, ReplicaKey(1, directory(9))), (4,), Role.UNATTACHED, 5, None),
        (QuorumState(5, 2, ReplicaKey(1, directory(1))), (5,), Role.FOLLOWER, 5, 2),
        (QuorumState(5, 2), (4,), Role.FOLLOWER, 5, 2),
        (QuorumState(5, 9), (4,), Role.UNATTACHED, 5, 9),
    ],
)
def test_role_after_a_start(
    stored: QuorumState | None, epochs: tuple[int, ...], role: Role, epoch: int, leader: int | None
) -> None:
    r = replica(stored, epochs)
    r.start(0.0)
    assert (r.state.role, r.state.epoch, r.state.leader_id) == (role, epoch, leader)


def test_an_illegal_transition_raises() -> None:
    for role in (Role.UNATTACHED, Role.FOLLOWER):
        r = started(role)
        with pytest.raises(RaftError):
            transitions.become_candidate(r.state, 1.0)
    assert set(TRANSITIONS) == set(Role)


@pytest.mark.parametrize("role", [Role.UNATTACHED, Role.FOLLOWER, Role.LEADER])
@pytest.mark.parametrize("epoch", [3 + (1 << 24) + 1, (1 << 31) - 1])
def test_an_impossibly_large_epoch_is_refused(role: Role, epoch: int) -> None:
    for request_ in (
        vote(epoch=epoch, last=(99, 3)),
        vote(epoch=epoch, last=(99, 3), pre=True),
        m.BeginEpoch(2, epoch, {}, None, CLUSTER),
        m.EndEpoch(2, epoch, [], {}, CLUSTER),
    ):
        r = started(role)
        assert reply_to(r, request_, 5.0 if role is Role.LEADER else 0.1).error == ErrorCode.INVALID_REQUEST
        assert (r.state.role, r.state.epoch) == (role, 3)
    r = started(role)
    assert reply_to(r, vote(epoch=3 + (1 << 24), last=(99, 3)), 5.0).epoch == r.state.epoch == 3 + (1 << 24)


def test_a_response_with_an_impossibly_large_epoch_is_ignored() -> None:
    r = started(Role.CANDIDATE)
    request = next(
        q for link in r.state.links.values() for q in link.in_flight.values() if isinstance(q, m.Vote)
    )
    r.step(
        Replied(
            m.Peer(2, address(2)), request, m.VoteReply(ErrorCode.FENCED_LEADER_EPOCH, epoch=(1 << 31) - 1)
        ),
        0.2,
    )
    assert (r.state.role, r.state.epoch) == (Role.CANDIDATE, 3)


# --- BeginQuorumEpoch, EndQuorumEpoch -------------------------------------------------------------


def test_begin_epoch_adopts_the_leader_before_it_refuses_a_foreign_voter_key() -> None:
    r = started(Role.UNATTACHED)
    begin = m.BeginEpoch(2, 3, {LISTENER: address(2)}, ReplicaKey(1, directory(9)), CLUSTER)
    assert reply_to(r, begin).error == ErrorCode.INVALID_VOTER_KEY
    assert (r.state.role, r.state.leader_id) == (Role.FOLLOWER, 2)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (m.BeginEpoch(2, 2, {}, None, CLUSTER), ErrorCode.FENCED_LEADER_EPOCH),
        (m.BeginEpoch(-1, 3, {}, None, CLUSTER), ErrorCode.INVALID_REQUEST),
        (m.BeginEpoch(2, 3, {}, None, "other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (m.EndEpoch(2, 2, [], {}, CLUSTER), ErrorCode.FENCED_LEADER_EPOCH),
        (m.EndEpoch(-1, 3, [], {}, CLUSTER), ErrorCode.INVALID_REQUEST),
        (m.EndEpoch(2, 3, [], {}, "other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_errors_of_begin_and_end_epoch(request_: m.RaftRequest, error: ErrorCode) -> None:
    assert reply_to(started(Role.UNATTACHED), request_).error == error


@pytest.mark.parametrize(
    ("preferred", "wait"),
    [([1, 3], 0.0), ([3, 1], 0.5), ([3], 1.0), ([], 1.0), ([4, 5, 1], 0.5), ([4, 1, 5], 0.25)],
)
def test_end_epoch_makes_the_preferred_successor_the_first_candidate(
    preferred: list[int], wait: float
) -> None:
    r = started(Role.FOLLOWER)
    keys = [ReplicaKey(i, directory(i)) for i in preferred]
    r.step(Received(m.EndEpoch(2, 3, keys, {}, CLUSTER), "t"), 1.0)
    if wait == 0.0:
        assert r.state.role is Role.PROSPECTIVE
    else:
        assert r.state.following is not None
        assert r.state.following.fetch_deadline == pytest.approx(1.0 + wait)


# --- Fetch ----------------------------------------------------------------------------------------


def fetch(offset: int, last_epoch: int, epoch: int = 3, wait: int = 500, **changes: object) -> m.Fetch:
    q = m.Fetch(ReplicaKey(2, directory(2)), epoch, offset, last_epoch, wait, -1, cluster_id=CLUSTER)
    for name, value in changes.items():
        setattr(q, name, value)
    return q


def append_leader_change(r: Raft) -> None:
    """Appends the LeaderChange record with which a leader of epoch 3 begins, at offset 3."""
    assert isinstance(r.state.log, MemoryLog)
    record = LeaderChangeMessage(leader_id=r.state.me.id)
    r.state.log.entries.append(Entry(3, (LEADER_CHANGE, record)))
    r.step(Appended([ControlRecord(3, LEADER_CHANGE, record)]), 5.0)


def leader(snapshots: tuple[tuple[int, int], ...] = (), start: tuple[int, int] | None = None) -> Raft:
    """A leader of epoch 3. Its log has records of the epochs 1, 1 and 2 and its own LeaderChange at offset
    3, all durable."""
    r = started(Role.LEADER)
    log = r.state.log
    assert isinstance(log, MemoryLog)
    append_leader_change(r)
    r.step(Synced(4), 5.0)
    for s in snapshots:
        log.snapshots[OffsetEpoch(*s)] = b"x" * 100
    if start is not None:
        del log.entries[: start[0]]
        log.start, log.start_epoch = start
    return r


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (fetch(0, 0, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (fetch(-1, 0), ErrorCode.INVALID_REQUEST),
        (fetch(0, -1), ErrorCode.INVALID_REQUEST),
        (fetch(0, 4), ErrorCode.INVALID_REQUEST),
        (fetch(0, 0, wait=-1), ErrorCode.INVALID_REQUEST),
        (fetch(0, 0, epoch=2), ErrorCode.FENCED_LEADER_EPOCH),
        (fetch(0, 0, epoch=4), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (fetch(0, 0), ErrorCode.NONE),
    ],
)
def test_errors_of_fetch(request_: m.Fetch, error: ErrorCode) -> None:
    assert reply_to(leader(), request_).error == error


def test_only_a_leader_answers_fetch() -> None:
    reply = reply_to(started(Role.FOLLOWER), fetch(0, 0))
    assert (reply.error, reply.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging", "read_from"),
    [
        (0, 0, None, 0),
        (2, 1, None, 2),
        (3, 2, None, 3),
        (3, 1, (2, 1), None),
        (9, 2, (3, 2), None),
        (1, 0, (0, 0), None),
    ],
)
def test_where_logs_diverge(
    offset: int, epoch: int, diverging: tuple[int, int] | None, read_from: int | None
) -> None:
    reply = reply_to(leader(), fetch(offset, epoch))
    assert isinstance(reply, m.FetchReply)
    assert reply.read_from == read_from
    assert reply.diverging == (None if diverging is None else OffsetEpoch(*diverging))


@pytest.mark.parametrize(
    ("snapshots", "start", "offset", "epoch", "wanted"),
    [
        (((0, 0),), None, 0, 0, None),
        (((2, 1),), None, 0, 0, (2, 1)),
        (((2, 1),), None, 1, 1, None),
        (((2, 1), (3, 2)), (2, 1), 1, 1, (3, 2)),
        (((2, 1),), (2, 1), 2, 1, None),
        (((2, 1),), (2, 1), 2, 0, (2, 1)),
    ],
)
def test_fetches_that_are_answered_with_a_snapshot_id(
    snapshots: tuple[tuple[int, int], ...],
    start: tuple[int, int] | None,
    offset: int,
    epoch: int,
    wanted: tuple[int, int] | None,
) -> None:
    reply = reply_to(leader(snapshots, start), fetch(offset, epoch))
    assert isinstance(reply, m.FetchReply)
    assert reply.snapshot == (None if wanted is None else OffsetEpoch(*wanted))


def test_a_fetch_waits_for_records_for_the_high_watermark_or_its_time() -> None:
    r = leader()
    effects = r.step(Received(fetch(4, 3), "a"), 6.0)
    assert [a.token for a in effects.answers] == ["a"], "its high watermark of -1 was behind"
    assert r.state.hwm == 4
    effects = r.step(Received(fetch(4, 3, high_watermark=4), "b"), 6.0)
    assert not effects.answers
    assert effects.wake_at <= 6.5
    assert isinstance(r.state.log, MemoryLog)
    r.state.log.entries.append(Entry(3, "new"))
    effects = r.step(Appended(), 6.1)
    assert [a.token for a in effects.answers] == ["b"]
    effects = r.step(Received(fetch(5, 3, high_watermark=4), "c"), 6.2)
    effects = r.step(Synced(5), 6.3)
    assert [a.token for a in effects.answers] == ["c"], "the high watermark rose"
    effects = r.step(Received(fetch(5, 3, high_watermark=5), "d"), 6.4)
    assert not effects.answers
    effects = r.step(Timeout(), 6.95)
    assert [a.token for a in effects.answers] == ["d"]


def test_waiting_fetches_are_refused_when_leadership_ends() -> None:
    r = leader()
    r.step(Received(fetch(4, 3), "a"), 6.0)
    r.step(Received(fetch(4, 3, high_watermark=4), "b"), 6.0)
    effects = r.step(Resign(3, "test"), 6.1)
    assert [(a.token, a.reply.error) for a in effects.answers] == [("b", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_the_high_watermark_needs_a_record_of_this_epoch_and_the_leaders_own_fsync() -> None:
    r = started(Role.LEADER)
    append_leader_change(r)
    r.step(Received(fetch(3, 2), "a"), 5.1)
    assert r.state.hwm is None, "everything of older epochs is replicated, but that is not enough"
    r.step(Received(fetch(4, 3), "b"), 5.2)
    assert r.state.hwm is None, "one follower alone: the leader has not synced"
    assert r.step(Synced(4), 5.3).high_watermark == 4


def test_followers_alone_can_commit_before_the_leaders_fsync() -> None:
    r = started(Role.LEADER)
    append_leader_change(r)
    r.step(Received(fetch(4, 3), "a"), 5.1)
    other = fetch(4, 3)
    other.replica = ReplicaKey(3, directory(3))
    assert r.step(Received(other, "b"), 5.2).high_watermark == 4


@pytest.mark.parametrize(
    "key",
    [ReplicaKey(-1), ReplicaKey(9, directory(9)), ReplicaKey(2, directory(9)), ReplicaKey(1, directory(1))],
)
def test_replicas_that_do_not_count_for_the_high_watermark(key: ReplicaKey) -> None:
    r = started(Role.LEADER)
    append_leader_change(r)
    r.step(Synced(4), 5.0)
    q = fetch(4, 3)
    q.replica = key
    r.step(Received(q, "a"), 5.1)
    assert r.state.hwm is None


# --- snapshots, follower side ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("snapshot", "position", "error"),
    [
        ((2, 1), 0, ErrorCode.NONE),
        ((2, 1), 99, ErrorCode.NONE),
        ((2, 1), 100, ErrorCode.POSITION_OUT_OF_RANGE),
        ((2, 1), -1, ErrorCode.POSITION_OUT_OF_RANGE),
        ((3, 1), 0, ErrorCode.SNAPSHOT_NOT_FOUND),
        ((0, 0), 0, ErrorCode.SNAPSHOT_NOT_FOUND),
    ],
)
def test_parts_of_snapshots_that_are_served(
    snapshot: tuple[int, int], position: int, error: ErrorCode
) -> None:
    r = leader(((0, 0), (2, 1)))
    q = m.FetchSnapshot(ReplicaKey(2, directory(2)), 3, OffsetEpoch(*snapshot), position, 60, CLUSTER)
    reply = reply_to(r, q)
    assert isinstance(reply, m.SnapshotReply)
    assert reply.error == error
    if error == ErrorCode.NONE:
        assert reply.read == min(60, 100 - position)


def test_a_follower_never_truncates_committed_records() -> None:
    r = started(Role.FOLLOWER)
    peer = m.Peer(2, address(2))

    def answer(reply: m.FetchReply) -> Effects:
        request = next(
            q for link in r.state.links.values() for q in link.in_flight.values() if isinstance(q, m.Fetch)
        )
        return r.step(Replied(peer, request, reply), 0.2)

    assert answer(m.FetchReply(leader_id=2, epoch=3, high_watermark=2)).high_watermark == 2
    with pytest.raises(RaftError, match="high watermark"):
        answer(m.FetchReply(leader_id=2, epoch=3, diverging=OffsetEpoch(1, 1)))


@pytest.mark.parametrize(
    ("diverging", "to"),
    [((2, 1), 2), ((1, 1), 1), ((9, 1), 2), ((3, 2), 3), ((2, 2), 2), ((1, 0), 1), ((5, 0), 3)],
)
def test_where_a_follower_truncates_its_log(diverging: tuple[int, int], to: int) -> None:
    r = started(Role.FOLLOWER)
    request = next(
        q for link in r.state.links.values() for q in link.in_flight.values() if isinstance(q, m.Fetch)
    )
    reply = m.FetchReply(leader_id=2, epoch=3, diverging=OffsetEpoch(*diverging))
    assert r.step(Replied(m.Peer(2, address(2)), request, reply), 0.2).truncate_to == to
