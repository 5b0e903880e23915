"""Messages that name two leaders of one epoch, and invalid messages of every kind: no message stops a
node."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import messages as m
from quorate.raft.core import transitions
from quorate.raft.core.control_records import KRAFT_VERSION, KRAFT_VOTERS, kraft_version_record, voters_record
from quorate.raft.core.effects import Effects
from quorate.raft.core.events import (
    Appended,
    ControlRecord,
    Event,
    FetchRejected,
    Received,
    Replied,
    Resign,
    SnapshotOpened,
    SnapshotRejected,
    Synced,
    Timeout,
)
from quorate.raft.core.follower import check_fetched
from quorate.raft.core.raft import Raft
from quorate.raft.core.voters import Voter, VoterSet
from quorate.raft.types import CommittedBatch, OffsetEpoch, QuorumState, ReplicaKey, Role
from quorate.records.batch import build_metadata_batch
from quorate.records.errors import InvalidRecordError
from tests.raft.nodes import sole
from tests.raft.test_rules import replica, reply_to, started
from tests.raft.world import CLUSTER, LISTENER, World, address, directory, voter


def begin(leader: int = 3, epoch: int = 3) -> m.BeginEpoch:
    return m.BeginEpoch(leader, epoch, {LISTENER: address(leader)}, None, CLUSTER)


def end(leader: int = 3, epoch: int = 3, preferred: tuple[ReplicaKey, ...] = ()) -> m.EndEpoch:
    return m.EndEpoch(leader, epoch, preferred, {LISTENER: address(leader)}, CLUSTER)


def under_way(r: Raft, kind: type) -> m.RaftRequest:
    return next(q for link in r.state.links.values() for k, q in link.in_flight.items() if k is kind)


def answered(r: Raft, reply: m.Reply, now: float = 0.2, by: int = 2) -> Effects:
    return r.step(Replied(m.Peer(by, address(by)), under_way(r, m.Fetch), reply), now)


def shown() -> Raft:
    """A follower of node 2 in epoch 3. Node 2 has answered one of its Fetches."""
    r = started(Role.FOLLOWER)
    answered(r, m.FetchReply(leader_id=2, epoch=3, high_watermark=0), 0.1)
    return r


# --- whom to believe ------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", [begin(), end()], ids=["begin", "end"])
def test_a_leader_that_was_only_named_is_replaced_by_the_next_one_that_is_named(
    claim: m.BeginEpoch | m.EndEpoch,
) -> None:
    r = started(Role.FOLLOWER)
    assert reply_to(r, claim, 0.1).error == ErrorCode.NONE
    assert (r.state.role, r.state.epoch, r.state.leader_id) == (Role.FOLLOWER, 3, 3)
    assert r.state.address_of(3) == address(3)


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE])
@pytest.mark.parametrize("by", [2, 3])
def test_a_leader_that_was_only_named_is_replaced_by_one_named_in_a_response(
    by: int, error: ErrorCode
) -> None:
    r = started(Role.FOLLOWER)
    answered(r, m.FetchReply(error, leader_id=3, epoch=3), by=by)
    assert (r.state.role, r.state.epoch, r.state.leader_id) == (Role.FOLLOWER, 3, 3)


@pytest.mark.parametrize("claim", [begin(), end()], ids=["begin", "end"])
def test_a_confirmed_leader_is_kept(
    claim: m.BeginEpoch | m.EndEpoch, caplog: pytest.LogCaptureFixture
) -> None:
    r = shown()
    for _ in range(5):
        assert reply_to(r, claim, 0.2).error == ErrorCode.INVALID_REQUEST
    assert (r.state.role, r.state.epoch, r.state.leader_id) == (Role.FOLLOWER, 3, 2)
    errors = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert len(errors) == 1
    assert "names 3 as the leader of epoch 3, which is 2" in errors[0]


def test_a_response_does_not_replace_a_confirmed_leader_and_its_request_backs_off() -> None:
    r = shown()
    effects = answered(r, m.FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=3, epoch=3))
    assert (r.state.role, r.state.leader_id) == (Role.FOLLOWER, 2)
    assert not any(o.to.address == address(2) for o in effects.send)


def test_a_leader_is_confirmed_for_one_epoch_only() -> None:
    r = shown()
    reply_to(r, begin(3, 4), 0.2)
    assert reply_to(r, begin(2, 4), 0.3).error == ErrorCode.NONE
    assert (r.state.epoch, r.state.leader_id) == (4, 2)


@pytest.mark.parametrize("role", [Role.LEADER, Role.RESIGNED])
def test_a_leader_ignores_a_claim_of_another_leader_in_its_epoch(role: Role) -> None:
    r = started(role)
    for claim in (begin(), end()):
        assert reply_to(r, claim, 5.0 if role is Role.LEADER else 0.1).error == ErrorCode.INVALID_REQUEST
    peer = m.Peer(2, address(2))
    for error in (
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ):
        sent = m.BeginEpoch(1, 3, {}, ReplicaKey(2, directory(2)), CLUSTER)
        r.step(
            Replied(peer, sent, m.EpochReply(error, epoch=3, leader_id=3)),
            5.1 if role is Role.LEADER else 0.2,
        )
    assert (r.state.role, r.state.epoch, r.state.leader_id) == (role, 3, 1)


def test_a_replica_does_not_become_leader_because_a_message_names_it() -> None:
    r = started(Role.FOLLOWER)
    assert reply_to(r, begin(1), 0.1).error == ErrorCode.INVALID_REQUEST
    answered(r, m.FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=1, epoch=3))
    assert (r.state.role, r.state.leader_id) == (Role.FOLLOWER, 2)


def test_after_a_restart_a_leader_with_records_on_disk_is_replaced_only_by_its_own_response() -> None:
    r = replica(QuorumState(3, 2), (1, 2, 3))
    r.start(0.0)
    assert reply_to(r, begin(3), 0.1).error == ErrorCode.INVALID_REQUEST
    answered(r, m.FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=3, epoch=3), by=3)
    assert r.state.leader_id == 2
    r.step(Timeout(), 0.5)
    answered(r, m.FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=3, epoch=3), 0.6, by=2)
    assert r.state.leader_id == 3


def test_contradicting_claims_do_not_extend_the_fetch_timeout() -> None:
    r = started(Role.FOLLOWER)
    deadline = r.state.following.fetch_deadline if r.state.following is not None else 0.0
    for i in range(50):
        reply_to(r, begin(3 if i % 2 == 0 else 2), i * 0.02)
    assert r.state.following is not None
    assert r.state.following.fetch_deadline == deadline


def test_an_unknown_leader_without_an_address_is_replaced() -> None:
    r = started(Role.UNATTACHED)
    reply_to(r, m.BeginEpoch(99, 3, {}, None, CLUSTER), 0.1)
    assert (r.state.role, r.state.leader_id) == (Role.UNATTACHED, 99)
    assert reply_to(r, begin(2), 0.2).error == ErrorCode.NONE
    assert (r.state.role, r.state.leader_id) == (Role.FOLLOWER, 2)


@pytest.mark.parametrize("seed", range(12))
def test_a_forged_announcement_does_not_prevent_following_the_elected_leader(seed: int) -> None:
    w = World(3, seed, kraft=1)
    w.boot_all()
    old = w.elect()
    victim, named = (n for n in w.nodes.values() if n is not old)
    epoch = old.core.state.epoch + 1
    w.ask(victim, m.BeginEpoch(named.id, epoch, {LISTENER: address(named.id)}, None, CLUSTER))
    assert (victim.core.state.epoch, victim.core.state.leader_id) == (epoch, named.id)
    old.step(Resign(old.core.state.epoch, "so that another election gives the epoch a leader in truth"))

    def one_leader() -> bool:
        leader = w.leader
        return leader is not None and leader.core.state.hwm is not None and all(
            (n.core.state.epoch, n.core.state.leader_id) == (leader.core.state.epoch, leader.id) for n in w.nodes.values()
        )  # fmt: skip

    assert w.run(10.0, one_leader)
    w.settle("goes on")


@pytest.mark.parametrize("seed", range(12))
def test_a_forged_claim_is_replaced_by_the_elected_leader_of_the_epoch(seed: int) -> None:
    """The replica sends a Fetch to the named voter, which answers that it does not lead and names its own
    leader."""
    w = World(3, seed, kraft=1)
    w.boot_all()
    leader = w.elect()
    victim, named = (n for n in w.nodes.values() if n is not leader)
    epoch = leader.core.state.epoch
    transitions.become_unattached(
        victim.core.state, epoch, None, w.now
    )  # as in the moment before the leader's announcement comes
    victim.core.state.leader_confirmed_epoch = -1
    w.ask(victim, m.BeginEpoch(named.id, epoch, {LISTENER: address(named.id)}, None, CLUSTER))
    assert victim.core.state.leader_id == named.id
    assert w.run(10.0, lambda: victim.core.state.leader_id == leader.id and victim.core.state.epoch == epoch)
    w.settle("goes on")
    assert leader.core.state.epoch == epoch


# --- answers that Kafka's controllers end for -----------------------------------------------------


@pytest.mark.parametrize(
    ("error", "top_level"),
    [(ErrorCode.INVALID_REQUEST, False), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True)],
)
def test_a_refusal_is_logged_with_its_sender_and_another_is_asked_meanwhile(
    error: ErrorCode, top_level: bool, caplog: pytest.LogCaptureFixture
) -> None:
    r = started(Role.FOLLOWER)
    effects = answered(r, m.FetchReply(error, top_level=top_level, leader_id=None, epoch=3))
    assert [o.to.address for o in effects.send if isinstance(o.request, m.Fetch)] == [address(3)]
    assert f"n2:9002 answers Fetch with {error.name}" in caplog.text


# --- records --------------------------------------------------------------------------------------


def fetched_by(r: Raft, epoch: int, *sets: VoterSet) -> None:
    batch = CommittedBatch(3, 3 + len(sets), epoch, 0, (), 100)
    check_fetched(
        r.state, [batch], [ControlRecord(3 + i, KRAFT_VOTERS, voters_record(s)) for i, s in enumerate(sets)]
    )


def test_records_that_would_prevent_the_next_start_are_refused() -> None:
    r = shown()
    one, two, three, four = (
        VoterSet.of(voter(i) for i in ids) for ids in ((1, 2, 3), (1, 2), (2, 4), (2, 4, 5))
    )
    fetched_by(r, 3, two, one)
    with pytest.raises(InvalidRecordError, match="a batch of epoch 4 from the leader of epoch 3"):
        fetched_by(r, 4)
    with pytest.raises(InvalidRecordError, match="differs by more than one voter"):
        fetched_by(r, 3, two, four)
    fetched_by(r, 3, two, three, four)
    twice = voters_record(two)
    twice.voters.append(twice.voters[0])
    with pytest.raises(InvalidRecordError, match="twice in one voter set"):
        check_fetched(r.state, [], [ControlRecord(3, KRAFT_VOTERS, twice)])
    with pytest.raises(InvalidRecordError, match=r"kraft.version at offset 3 falls from 1 to 0"):
        check_fetched(r.state, [], [ControlRecord(3, KRAFT_VERSION, kraft_version_record(0))])
    assert r.state.voters == one


def test_such_records_are_not_appended(tmp_path: Path) -> None:
    async def main() -> None:
        node = await sole(tmp_path)
        client, end = node.client, node.client.log.end_offset
        for epoch, taken in ((client.epoch + 1, False), (client.epoch, True)):
            client.driver._append_fetched(
                build_metadata_batch([b"x"], base_offset=end, leader_epoch=epoch, timestamp=1)
            )
            assert (client.log.end_offset > end) is taken
            assert isinstance(client.driver._queue[0], Appended if taken else FetchRejected)
            client.driver._queue.clear()
        await node.kill()

    asyncio.run(main())


# --- whatever else --------------------------------------------------------------------------------


def test_a_long_list_of_successors_stops_no_replica() -> None:
    r = shown()
    keys = tuple(ReplicaKey(i) for i in (3, 1, *range(10, 5000)))
    assert reply_to(r, end(2, 3, keys), 0.2).error == ErrorCode.NONE


def test_no_election_begins_while_a_snapshot_replaces_the_log() -> None:
    r = shown()
    r.state.installing = OffsetEpoch(10, 3)
    reply_to(r, end(2, 3, (ReplicaKey(1, directory(1)),)), 0.2)
    assert r.state.role is Role.FOLLOWER


def any_request(rng: random.Random) -> m.RaftRequest:
    number = lambda: rng.choice((-(1 << 31), -1, 0, 1, 2, 3, 4, 5, 1 << 20, (1 << 31) - 1))  # noqa: E731
    long = lambda: rng.choice((-(1 << 63), -1, 0, 1, 2, 3, 4, 1 << 40, (1 << 63) - 1))  # noqa: E731
    ids, directories = (-1, 0, 1, 2, 3, 9), (bytes(16), directory(1), directory(2))
    key = lambda: ReplicaKey(rng.choice(ids), rng.choice(directories))  # noqa: E731
    ends = rng.choice(({}, {LISTENER: address(2)}, {LISTENER: ("", 0)}, {"OTHER": ("\x00", 1)}))
    other = Voter(key(), ends, (number(), number()))
    return rng.choice(
        (
            m.Vote(
                number(), key(), OffsetEpoch(long(), number()), rng.choice((None, key())), rng.random() < 0.5
            ),
            m.BeginEpoch(number(), number(), ends, rng.choice((None, key()))),
            m.EndEpoch(number(), number(), [key() for _ in range(rng.choice((0, 1, 3, 1200)))], ends),
            m.Fetch(key(), number(), long(), number(), number(), long(), number()),
            m.FetchSnapshot(key(), number(), OffsetEpoch(long(), number()), long(), number()),
            m.AddVoter(other, timeout_ms=number()),
            m.RemoveVoter(key()),
            m.UpdateVoter(other, number()),
            m.DescribeQuorum(),
        )
    )


def any_reply(rng: random.Random, to: m.RaftRequest) -> m.Reply | m.Failure:
    if rng.random() < 0.1:
        return rng.choice(list(m.Failure))
    number = lambda: rng.choice((-1, 0, 1, 2, 3, 4, 5, 1 << 20, (1 << 31) - 1))  # noqa: E731
    where = lambda: rng.choice((None, OffsetEpoch(rng.choice((-1, 0, 1, 2, 3, 1 << 40)), number())))  # noqa: E731
    reply: m.Reply
    match to:
        case m.Vote():
            reply = m.VoteReply(granted=rng.random() < 0.5)
        case m.Fetch():
            reply = m.FetchReply(
                high_watermark=number(), log_start=number(), diverging=where(), snapshot=where()
            )
        case m.FetchSnapshot():
            reply = m.SnapshotReply(
                snapshot=where() or to.snapshot, size=number(), position=number(), data=b"x" * 7
            )
        case m.BeginEpoch() | m.EndEpoch():
            reply = m.EpochReply()
        case m.ProbeVersions():
            reply = m.ProbeReply(kraft_versions=(number(), number()), supports_vote=rng.random() < 0.5)
        case _:
            reply = m.VoterReply()
    reply.error = rng.choice(list(ErrorCode) if rng.random() < 0.5 else [ErrorCode.NONE])
    reply.top_level = rng.random() < 0.2
    reply.leader_id, reply.epoch = rng.choice((None, 1, 2, 3, 9)), number()
    reply.leader_endpoints = rng.choice(({}, {LISTENER: address(3)}, {LISTENER: ("", 0)}))
    return reply


@pytest.mark.parametrize("role", list(Role))
def test_no_request_and_no_response_stops_a_replica(role: Role) -> None:
    for seed in range(40):
        rng = random.Random(seed)
        r = started(role)
        now = 6.0
        for _ in range(40):
            now += rng.choice((0.0, 0.02, 0.5, 2.5))
            flying = [(a, q) for a, link in r.state.links.items() for q in link.in_flight.values()]
            if flying and rng.random() < 0.5:
                to, request = rng.choice(flying)
                event: Event = Replied(m.Peer(rng.choice((-2, 2, 3)), to), request, any_reply(rng, request))
            elif rng.random() < 0.1:
                event = Timeout()
            else:
                event = Received(any_request(rng), "t")
            effects = r.step(event, now)
            if effects.truncate_to is not None:
                del r.state.log.entries[effects.truncate_to :]  # type: ignore[attr-defined]
                r.step(Synced(effects.truncate_to), now)
            if effects.start_snapshot is not None:
                r.step(SnapshotOpened(effects.start_snapshot.snapshot, 0), now)
            if r.state.installing is not None:
                r.step(SnapshotRejected(r.state.installing, "it is none"), now)


@pytest.mark.parametrize(
    "error", [ErrorCode.INVALID_VOTER_KEY, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_repeated_refusals_of_a_vote_are_logged_once(
    error: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    r = started(Role.PROSPECTIVE)
    caplog.set_level("INFO")
    caplog.clear()
    for i in range(100):
        q = m.Vote(r.state.epoch, r.state.me, r.state.end, ReplicaKey(3, directory(3)), True)
        r.step(Replied(m.Peer(3, address(3)), q, m.VoteReply(error, epoch=r.state.epoch)), 0.1 + 0.022 * i)
    lines = [
        x.getMessage()
        for x in caplog.records
        if error.name in x.getMessage() or "voter key" in x.getMessage()
    ]
    assert len(lines) == 1, lines
    assert address(3)[0] in lines[0]
