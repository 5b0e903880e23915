"""Failover: which voters become candidates and which wait, which nodes learn of the new leader, and which
steps wait for the disk."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.protocol.schema import Request, Response
from quorate.raft.core import messages as m
from quorate.raft.core.events import PeerLost, Received, Replied, Shutdown, Timeout
from quorate.raft.core.raft import Raft
from quorate.raft.core.voters import Membership, VoterSet
from quorate.raft.runtime.wire.requests import encode_request
from quorate.raft.storage.quorum_state import QuorumStateFile
from quorate.raft.types import Address, OffsetEpoch, QuorumState, RaftParams, ReplicaKey, Role
from tests.raft.nodes import (
    MemoryTransport,
    Network,
    Node,
    context,
    dynamic,
    format_dynamic,
    leader_of,
)
from tests.raft.world import CLUSTER, LISTENER, Entry, MemoryLog, World, address, directory, voter

OBSERVER = ReplicaKey(9, directory(9))


def replica(
    i: int = 1, stored: QuorumState | None = None, epochs: tuple[int, ...] = (1, 1, 2), voters: int = 3
) -> Raft:
    """Node i of a dynamic quorum in epoch 3, started at time 0. By default it follows node 2."""
    members = Membership()
    members.reset(-1, VoterSet.of(voter(j) for j in range(1, voters + 1)), 1)
    params = RaftParams(
        ReplicaKey(i, directory(i)), CLUSTER, LISTENER, {LISTENER: address(i)}, True, (address(2),)
    )
    log = MemoryLog([Entry(e, e) for e in epochs])
    r = Raft(params, log, stored if stored is not None else QuorumState(3, 2), members, random.Random(i))
    r.start(0.0)
    return r


def hear(r: Raft, leader: int, now: float) -> None:
    """Delivers one successful Fetch response of the leader."""
    request = next(
        q for link in r.state.links.values() for q in link.in_flight.values() if isinstance(q, m.Fetch)
    )
    reply = m.FetchReply(leader_id=leader, epoch=3, high_watermark=0)
    r.step(Replied(m.Peer(leader, address(leader)), request, reply), now)


def asks(r: Raft, request: m.RaftRequest, now: float) -> m.Reply:
    effects = r.step(Received(request, "t"), now)
    return next(a.reply for a in effects.answers if a.token == "t")


def pre_vote(i: int, to: int = 1, last: tuple[int, int] = (3, 2), epoch: int = 3) -> m.Vote:
    return m.Vote(
        epoch, ReplicaKey(i, directory(i)), OffsetEpoch(*last), ReplicaKey(to, directory(to)), True, CLUSTER
    )


# --- who has lost its leader grants a pre-vote ----------------------------------------------------


@pytest.mark.parametrize("lost", [PeerLost(address(2)), m.EndEpoch(2, 3, [], {}, CLUSTER)])
def test_a_leader_whose_connection_was_reset_or_that_resigned_is_not_in_contact(
    lost: PeerLost | m.EndEpoch,
) -> None:
    r = replica()
    hear(r, 2, 0.1)
    refused = asks(r, pre_vote(3), 0.15)
    assert isinstance(refused, m.VoteReply)
    assert not refused.granted
    r.step(lost if isinstance(lost, PeerLost) else Received(lost, "e"), 0.2)
    granted = asks(r, pre_vote(3), 0.2)
    assert isinstance(granted, m.VoteReply)
    assert granted.granted


def test_a_reset_connection_of_another_voter_does_not_concern_the_leader() -> None:
    r = replica()
    hear(r, 2, 0.1)
    r.step(PeerLost(address(3)), 0.2)
    reply = asks(r, pre_vote(3), 0.2)
    assert isinstance(reply, m.VoteReply)
    assert not reply.granted


def test_a_leader_that_answers_again_is_in_contact_again() -> None:
    r = replica()
    hear(r, 2, 0.1)
    r.step(PeerLost(address(2)), 0.2)
    assert r.state.following is not None
    r.state.following.quick_pre_vote_at = 9.0
    elsewhere = r.state.link(address(3)).in_flight[m.Fetch]
    told = m.FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=2, epoch=3)
    r.step(Replied(m.Peer(3, address(3)), elsewhere, told), 0.3)
    hear(r, 2, 0.35)
    reply = asks(r, pre_vote(3), 0.4)
    assert isinstance(reply, m.VoteReply)
    assert not reply.granted
    assert r.state.role is Role.FOLLOWER


# --- giving way -----------------------------------------------------------------------------------


def test_a_replica_that_granted_a_pre_vote_lets_the_other_go_first() -> None:
    r = replica()
    r.step(PeerLost(address(2)), 0.1)
    asks(r, pre_vote(3), 0.1)
    r.step(Timeout(), 0.249)
    assert r.state.role is Role.FOLLOWER
    r.step(Timeout(), 0.351)
    assert r.state.role is Role.PROSPECTIVE


def test_a_replica_with_a_longer_log_asks_at_once_when_it_refuses_a_pre_vote() -> None:
    r = replica()
    r.step(PeerLost(address(2)), 0.1)
    assert r.state.following is not None
    r.state.following.quick_pre_vote_at = 0.12
    refused = asks(r, pre_vote(3, last=(2, 2)), 0.101)
    assert isinstance(refused, m.VoteReply)
    assert not refused.granted
    assert r.state.role is Role.PROSPECTIVE


def test_a_replica_with_a_longer_log_that_has_its_leader_asks_for_no_votes() -> None:
    r = replica()
    hear(r, 2, 0.1)
    asks(r, pre_vote(3, last=(2, 2)), 0.101)
    assert r.state.role is Role.FOLLOWER


def test_a_replica_that_lets_another_one_go_first_waits_although_a_third_log_is_shorter() -> None:
    r = replica(1, voters=4)
    r.step(PeerLost(address(2)), 0.1)
    asks(r, pre_vote(3), 0.1)
    asks(r, pre_vote(4, last=(2, 2)), 0.11)
    assert r.state.role is Role.FOLLOWER


@pytest.mark.parametrize("lost", [2, 3, 4])
def test_a_replica_waits_no_longer_for_another_one_that_is_gone(lost: int) -> None:
    r = replica(1, voters=4)
    r.step(PeerLost(address(2)), 0.1)
    asks(r, pre_vote(3), 0.1)
    r.step(PeerLost(address(lost)), 0.13)
    assert r.state.role is (Role.PROSPECTIVE if lost == 3 else Role.FOLLOWER)


def test_a_prospective_waits_no_longer_for_another_one_that_is_gone() -> None:
    r = replica(3)
    r.step(PeerLost(address(2)), 0.1)
    r.step(Timeout(), 0.121)
    asks(r, pre_vote(1, 3), 0.122)
    request = next(q for q in r.state.link(address(1)).in_flight.values() if isinstance(q, m.Vote))
    r.step(Replied(m.Peer(1, address(1)), request, m.VoteReply(epoch=3, granted=True)), 0.123)
    assert r.state.role is Role.PROSPECTIVE
    r.step(PeerLost(address(1)), 0.124)
    assert r.state.role is Role.CANDIDATE


def test_a_replica_lets_another_go_first_once_an_epoch_at_most() -> None:
    r = replica()
    r.step(PeerLost(address(2)), 0.1)
    for at in range(1, 20):
        asks(r, pre_vote(3), 0.1 + at * 0.01)
    assert r.state.role is Role.PROSPECTIVE


@pytest.mark.parametrize(
    ("me", "other", "last", "waits"),
    [
        (1, 3, (3, 2), False),  # as long a log: the lower id goes first
        (3, 1, (3, 2), True),
        (1, 3, (4, 2), True),  # the longer log goes first
    ],
)
def test_one_of_two_simultaneous_prospectives_becomes_a_candidate_first(
    me: int, other: int, last: tuple[int, int], waits: bool
) -> None:
    r = replica(me)
    r.step(PeerLost(address(2)), 0.1)
    r.step(Timeout(), 0.121)
    assert r.state.role is Role.PROSPECTIVE
    asks(r, pre_vote(other, me, last), 0.122)
    request = next(q for q in r.state.link(address(other)).in_flight.values() if isinstance(q, m.Vote))
    r.step(Replied(m.Peer(other, address(other)), request, m.VoteReply(epoch=3, granted=True)), 0.123)
    assert r.state.role is (Role.PROSPECTIVE if waits else Role.CANDIDATE)
    r.step(Timeout(), 0.373)
    assert r.state.role is Role.CANDIDATE


def test_two_followers_that_lose_their_leader_at_once_do_not_split_the_votes() -> None:
    epochs = []
    for seed in range(30):
        world = World(3, seed=seed, kraft=1)
        world.boot_all()
        leader = world.elect()
        world.settle("a")
        world.run(3)
        before = leader.core.state.epoch
        world.kill(leader.id)
        world.settle("b")
        assert world.leader is not None
        epochs.append(world.leader.core.state.epoch - before)
    assert sum(epochs) <= 33  # hardly ever a second attempt


# --- again and again ------------------------------------------------------------------------------


def answer_votes(r: Raft, now: float, granted: bool) -> None:
    """Node 3 answers its Vote request; node 2 is dead."""
    for i, reply in ((2, m.Failure.DISCONNECTED), (3, m.VoteReply(epoch=r.state.epoch, granted=granted))):
        request = next(q for q in r.state.link(address(i)).in_flight.values() if isinstance(q, m.Vote))
        r.step(Replied(m.Peer(i, address(i)), request, reply), now)


@pytest.mark.parametrize("seed", range(5))
def test_after_a_reset_pre_votes_are_requested_within_20_ms_and_then_every_20_to_50_ms(
    seed: int,
) -> None:
    r = replica()
    r.state.rng = random.Random(seed)
    hear(r, 2, 0.1)
    assert r.state.following is not None
    end = r.state.following.fetch_deadline
    effects = r.step(PeerLost(address(2)), 0.2)
    asked: list[float] = []
    now = 0.2
    while now < end:
        now = effects.wake_at
        effects = r.step(Timeout(), now)
        if r.state.role is Role.PROSPECTIVE and now < end:
            asked.append(now)
            answer_votes(r, now, granted=False)  # node 3 still hears the leader
            effects = r.step(Timeout(), now)
            assert (r.state.role, r.state.epoch, r.state.leader_id) == (Role.FOLLOWER, 3, 2)
    assert 0.2 <= asked[0] <= 0.22
    assert all(0.0199 <= b - a <= 0.0501 for a, b in itertools.pairwise(asked))
    assert end - asked[-1] <= 0.0501
    assert r.state.role is Role.PROSPECTIVE
    assert (
        r.state.election_deadline >= end + r.state.params.election_timeout_s
    )  # from now on with Kafka's patience


@pytest.mark.parametrize("seed", range(5))
def test_a_candidate_that_loses_waits_twice_as_long_each_time_up_to_the_limit(seed: int) -> None:
    r = replica()
    r.state.rng = random.Random(seed)
    hear(r, 2, 0.1)
    now = 0.2
    r.step(Received(m.EndEpoch(2, 3, [r.state.me], {}, CLUSTER), "t"), now)
    for lost in range(9):
        assert (r.state.role, r.state.epoch) == (Role.CANDIDATE, 4 + lost)
        answer_votes(r, now, granted=False)
        low, high = (min(s * 2**lost, r.state.params.backoff_max_s) for s in (0.010, 0.050))
        assert low - 1e-6 <= r.state.election_deadline - now <= high + 1e-6
        now = r.state.election_deadline
        r.step(Timeout(), now)
        assert r.state.role is Role.PROSPECTIVE
        answer_votes(r, now, granted=True)


# --- standing at once, standing soon --------------------------------------------------------------


def test_the_successor_that_a_leader_names_becomes_a_candidate_without_a_pre_vote() -> None:
    r = replica()
    hear(r, 2, 0.1)
    keys = [ReplicaKey(1, directory(1)), ReplicaKey(3, directory(3))]
    effects = r.step(Received(m.EndEpoch(2, 3, keys, {}, CLUSTER), "t"), 0.2)
    assert (r.state.role, r.state.epoch) == (Role.CANDIDATE, 4)
    assert effects.save_quorum_state == QuorumState(4, None, r.state.me)
    assert not any(isinstance(o.request, m.Vote) and o.request.pre_vote for o in effects.send)


def test_a_voter_that_refuses_a_shorter_log_soon_requests_votes_itself() -> None:
    r = replica(stored=QuorumState(3))
    r.step(
        Received(m.Vote(4, ReplicaKey(3, directory(3)), OffsetEpoch(2, 1), None, False, CLUSTER), "t"), 0.01
    )
    assert (r.state.role, r.state.voted) == (Role.UNATTACHED, None)
    r.step(Timeout(), 0.062)
    assert r.state.role is Role.PROSPECTIVE


# --- observers are told ---------------------------------------------------------------------------


def fetch(key: ReplicaKey, epoch: int = 3, wait: int = 500) -> m.Fetch:
    return m.Fetch(key, epoch, 0, 0, wait, -1, cluster_id=CLUSTER)


def test_an_observers_fetch_waits_for_the_next_leader_and_names_it() -> None:
    r = replica()
    r.step(PeerLost(address(2)), 0.1)
    effects = r.step(Received(fetch(OBSERVER), "o"), 0.105)
    assert not effects.answers
    assert effects.wake_at <= 0.605
    effects = r.step(Received(m.BeginEpoch(3, 4, {LISTENER: address(3)}, None, CLUSTER), "b"), 0.2)
    reply = next(a.reply for a in effects.answers if a.token == "o")
    assert (reply.error, reply.leader_id, reply.epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 3, 4)


def test_a_fetch_waits_for_a_leader_no_longer_than_its_max_wait() -> None:
    r = replica(stored=QuorumState(3))
    r.state.election_deadline = 99.0
    r.step(Received(fetch(OBSERVER, wait=200), "o"), 0.01)
    effects = r.step(Timeout(), 0.22)
    assert [(a.token, a.reply.error) for a in effects.answers] == [("o", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


@pytest.mark.parametrize(
    "request_",
    [
        fetch(ReplicaKey(3, directory(3))),
        fetch(OBSERVER, wait=0),
        fetch(OBSERVER, epoch=4),
        fetch(ReplicaKey(-1)),
    ],
    ids=["a voter", "no time", "of a later epoch", "no replica"],
)
def test_fetches_that_do_not_wait_for_a_leader(request_: m.Fetch) -> None:
    assert asks(replica(stored=QuorumState(3)), request_, 0.01).error != ErrorCode.NONE


def test_a_follower_answers_a_fetch_with_its_leader_at_once() -> None:
    assert asks(replica(), fetch(OBSERVER), 0.01).leader_id == 2


def test_a_leader_that_resigns_keeps_observers_until_it_knows_its_successor() -> None:
    world = World(3, seed=1, observers=1, kraft=1)
    world.boot_all()
    leader = world.elect()
    world.settle("a")
    observer = world.nodes[4]
    assert world.run(
        5,
        lambda: (
            observer.core.state.leader_id == leader.id
            and any(p.request.replica.id == 4 for p in parked(leader.core))
        ),
    )
    leader.step(Shutdown())
    assert [p.request.replica.id for p in leader.core.state.fetches_awaiting_leader] == [4]
    assert world.run(1, lambda: observer.core.state.leader_id not in (None, leader.id))
    assert not leader.core.state.fetches_awaiting_leader


def parked(r: Raft) -> list[object]:
    return list(r.state.leading.parked) if r.state.leading is not None else []


# --- what waits for the disk ----------------------------------------------------------------------


def test_an_unchanged_state_is_not_written_again() -> None:
    r = replica()
    r.step(PeerLost(address(2)), 0.1)
    effects = r.step(Timeout(), 0.121)
    assert (r.state.role, effects.save_quorum_state) == (Role.PROSPECTIVE, None)


def test_only_the_name_of_another_leader_may_be_written_later() -> None:
    r = replica(stored=QuorumState(3))
    vote = m.Vote(4, ReplicaKey(3, directory(3)), OffsetEpoch(3, 2), None, False, CLUSTER)
    effects = r.step(Received(vote, "v"), 0.01)
    assert (effects.save_quorum_state, effects.save_may_wait) == (QuorumState(4, None, vote.candidate), False)
    effects = r.step(Received(m.BeginEpoch(3, 4, {LISTENER: address(3)}, None, CLUSTER), "b"), 0.02)
    assert (effects.save_quorum_state, effects.save_may_wait) == (QuorumState(4, 3, vote.candidate), True)
    effects = r.step(Received(m.BeginEpoch(2, 5, {LISTENER: address(2)}, None, CLUSTER), "b"), 0.03)
    assert (effects.save_quorum_state, effects.save_may_wait) == (QuorumState(5, 2), False)


def test_a_new_leaders_own_name_does_not_wait() -> None:
    r = replica(voters=1, stored=QuorumState(3))
    assert r.state.role is Role.LEADER
    assert r.state.effects.save_quorum_state == QuorumState(4, 1)
    assert not r.state.effects.save_may_wait


class QuickTransport(MemoryTransport):
    """A transport with open connections to all nodes: requests are written within the call."""

    def __init__(self, network: Network, order: list[str]) -> None:
        super().__init__(network)
        self.order = order
        self.warmed: set[Address] = set()

    def post(self, where: Address, request: Request, timeout_s: float) -> asyncio.Future[Response]:
        self.order.append(type(request).__name__)
        return asyncio.ensure_future(self.call(where, request, timeout_s))

    def warm(self, addresses: Iterable[Address]) -> None:
        self.warmed |= set(addresses)


def test_requests_are_sent_before_the_quorum_state_is_saved_and_responses_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    write = QuorumStateFile.write

    def noted(self: QuorumStateFile, state: QuorumState, kraft_version: int, voter_ids: list[int]) -> None:
        if self.path.is_relative_to(tmp_path / "1"):
            order.append(
                f"write {state.epoch} voted {state.voted.id if state.voted else None} leader "
                f"{state.leader_id}"
            )
        write(self, state, kraft_version, voter_ids)

    monkeypatch.setattr(QuorumStateFile, "write", noted)

    async def main() -> None:
        network = Network()
        for i in (1, 2):
            format_dynamic(tmp_path / str(i), dynamic(1, 2))
        transport = QuickTransport(network, order)
        network.transport = lambda: transport  # type: ignore[method-assign]
        first = Node(network, tmp_path / "1", 1)
        await first.start()
        del network.transport  # type: ignore[method-assign]
        second = Node(network, tmp_path / "2", 2, election_timeout_s=5.0, quick_failover=False)
        await second.start()
        await first.lead()
        await first.commit(b"a")
        assert transport.warmed == {address(2)}
        vote = order.index("write 1 voted 1 leader None")
        assert order[vote - 1] == "VoteRequest"
        begin = order.index("write 1 voted None leader 1")
        assert order[begin - 1] == "BeginQuorumEpochRequest"
        await second.stop()
        await first.stop()
        assert not first.fatal + second.fatal

    asyncio.run(main())


def test_a_leader_that_stops_waits_for_its_last_records_to_commit(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        nodes = {}
        for i in (1, 2, 3):
            format_dynamic(tmp_path / str(i), dynamic(1, 2, 3))
            nodes[i] = await Node(network, tmp_path / str(i), i).start()
        async with asyncio.timeout(10):
            while not any(n.client.is_leader for n in nodes.values()):
                await asyncio.sleep(0.005)
        leader = next(n for n in nodes.values() if n.client.is_leader)
        await leader.commit(b"a")
        last = leader.client.append(leader.client.epoch, [b"b"])
        await leader.client.shutdown(2.0)
        assert leader.machine.hwm > last
        network.clients.pop(address(leader.id))
        others = [n for n in nodes.values() if n is not leader]
        for node in others:
            await node.machine.until(lambda machine=node.machine: b"b" in machine.values)
        for node in others:
            await node.kill()

    asyncio.run(main())


@pytest.mark.parametrize("leader_lost", [True, False])
def test_a_follower_answers_a_pre_vote_when_it_could_have_noticed_that_the_leader_is_gone(
    tmp_path: Path, leader_lost: bool
) -> None:
    """The connections of a dead leader are reset one after the other, and the other voter was first."""

    async def main() -> None:
        network = Network()
        nodes = []
        for i in (1, 2, 3):
            format_dynamic(tmp_path / str(i), dynamic(1, 2, 3))
            nodes.append(await Node(network, tmp_path / str(i), i).start())
        leader = await leader_of(nodes)
        await leader.commit(b"a")
        follower, other = (node for node in nodes if node is not leader)
        await follower.machine.until(lambda: b"a" in follower.machine.values)
        client = follower.client
        end = client.log.end_offset
        request = encode_request(pre_vote(other.id, follower.id, (end, client.epoch), client.epoch))
        answer = asyncio.ensure_future(client.handle(context(52, 2), request))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        if leader_lost:
            client.driver.step(PeerLost(address(leader.id)))
        response = await answer
        assert response.topics[0].partitions[0].vote_granted is leader_lost  # type: ignore[attr-defined]
        for node in nodes:
            await node.kill()

    asyncio.run(main())
