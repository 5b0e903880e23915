"""Steps of a follower that downloads a snapshot: its requests, the responses that it accepts, and restarts
of the download."""

from __future__ import annotations

from typing import Any

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import messages as m
from quorate.raft.core.effects import Effects, SnapshotStart
from quorate.raft.core.events import (
    Event,
    Received,
    Receiving,
    Replied,
    SnapshotInstalled,
    SnapshotOpened,
    SnapshotRejected,
    SnapshotWritten,
    Timeout,
)
from quorate.raft.core.follower import REFUSED_SNAPSHOT_S
from quorate.raft.core.raft import Raft
from quorate.raft.types import (
    ASK_FETCH_BYTES,
    ASK_SNAPSHOT_BYTES,
    MAX_SNAPSHOT_BYTES,
    MIN_PART_BYTES,
    LeaderAndEpoch,
    OffsetEpoch,
    Role,
)
from tests.raft.test_rules import started, vote
from tests.raft.world import address

SNAPSHOT = OffsetEpoch(100, 2)
CHUNK = b"s" * 1000
DIGEST = b"d" * 32


class Follower:
    """Node 1 follows node 2 in epoch 3. The leader has answered its Fetch with a snapshot id."""

    def __init__(self, **params_changes: int) -> None:
        self.r: Raft = started(Role.FOLLOWER, **params_changes)
        self.now = 0.2
        self.leader, self.epoch = 2, 3
        self.effects = self.told_of_snapshot()

    def asked(self, kind: type) -> Any:
        """The request of this type that is in flight to the leader."""
        return self.r.state.link(address(self.leader)).in_flight.get(kind)

    def later(self, seconds: float = 0.1) -> None:
        """During the backoff of the leader, other nodes are asked for the leader and name the same one."""
        for at in (self.now, self.now + seconds):
            self.now = at
            self.step(Timeout())
            for where, link in list(self.r.state.links.items()):
                request = link.in_flight.get(m.Fetch)
                if request is not None and where != address(self.leader):
                    reply = m.FetchReply(
                        ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=self.leader, epoch=self.epoch
                    )
                    self.step(Replied(m.Peer(3, where), request, reply))

    def step(self, event: Event) -> Effects:
        self.effects = self.r.step(event, self.now)
        return self.effects

    def reply(self, kind: type, reply: m.Reply) -> Effects:
        reply.leader_id, reply.epoch = self.leader, self.epoch
        return self.step(Replied(m.Peer(self.leader, address(self.leader)), self.asked(kind), reply))

    def told_of_snapshot(self, snapshot: OffsetEpoch = SNAPSHOT) -> Effects:
        return self.reply(m.Fetch, m.FetchReply(snapshot=snapshot))

    def opened(self, position: int = 0, digest: bytes | None = None) -> Effects:
        return self.step(SnapshotOpened(SNAPSHOT, position, digest))

    def chunk(self, data: bytes = CHUNK, size: int = 10_000, **changes: Any) -> Effects:
        request = self.asked(m.FetchSnapshot)
        reply = m.SnapshotReply(snapshot=SNAPSHOT, position=request.position, size=size, data=data)
        for name, value in changes.items():
            setattr(reply, name, value)
        return self.reply(m.FetchSnapshot, reply)

    def new_leader(self) -> None:
        """Node 3 becomes the leader of epoch 4 and gets the first Fetch."""
        self.leader, self.epoch = 3, 4
        endpoints = self.r.state.voters.endpoints(3)
        self.step(Received(m.BeginEpoch(3, 4, endpoints, self.r.state.me), "begin"))
        assert isinstance(self.asked(m.Fetch), m.Fetch)


def test_no_chunk_is_requested_before_the_download_is_open() -> None:
    f = Follower()
    assert f.effects.start_snapshot == SnapshotStart(SNAPSHOT, LeaderAndEpoch(2, 3))
    assert f.asked(m.FetchSnapshot) is None
    f.opened(4000)
    request = f.asked(m.FetchSnapshot)
    assert (request.snapshot, request.position, request.max_bytes) == (SNAPSHOT, 4000, ASK_SNAPSHOT_BYTES)
    assert request.prefix_digest is None


def test_a_part_has_at_most_controller_quorum_fetch_snapshot_max_bytes() -> None:
    f = Follower(fetch_snapshot_max_bytes=1000)
    f.opened()
    assert f.asked(m.FetchSnapshot).max_bytes == 1000
    f.chunk(b"s" * 1000)
    assert (f.asked(m.FetchSnapshot).position, f.asked(m.FetchSnapshot).max_bytes) == (1000, 1000)


def test_after_a_part_that_does_not_arrive_in_time_smaller_parts_are_requested() -> None:
    """A link that carries less than a part within the request timeout would never carry a snapshot."""
    f = Follower()
    f.opened()
    asked = [f.asked(m.FetchSnapshot).max_bytes]
    for _ in range(10):
        f.step(Replied(m.Peer(2, address(2)), f.asked(m.FetchSnapshot), m.Failure.TIMEOUT))
        f.later()
        asked.append(f.asked(m.FetchSnapshot).max_bytes)
    assert asked == [max(ASK_SNAPSHOT_BYTES >> i, MIN_PART_BYTES) for i in range(11)]
    f.chunk(b"s" * MIN_PART_BYTES, 2 * MIN_PART_BYTES)
    assert f.asked(m.FetchSnapshot).max_bytes == MIN_PART_BYTES
    f.chunk(b"s" * MIN_PART_BYTES, 2 * MIN_PART_BYTES)
    f.step(SnapshotInstalled(SNAPSHOT, None, 0))
    f.told_of_snapshot(OffsetEpoch(200, 2))
    f.step(SnapshotOpened(OffsetEpoch(200, 2), 0, None))
    assert f.asked(m.FetchSnapshot).max_bytes == ASK_SNAPSHOT_BYTES, "the link may be fast again"


def test_a_part_that_outlasts_the_fetch_timeout_is_halved_once() -> None:
    f = Follower()
    f.opened()
    late, following = f.asked(m.FetchSnapshot), f.r.state.following
    assert following is not None
    f.now = following.fetch_deadline
    f.step(Timeout())
    assert f.r.state.role is Role.PROSPECTIVE
    f.step(Replied(m.Peer(2, address(2)), late, m.Failure.TIMEOUT))
    f.new_leader()
    f.told_of_snapshot()
    f.step(SnapshotOpened(SNAPSHOT, 0, None, LeaderAndEpoch(3, 4)))
    assert f.asked(m.FetchSnapshot).max_bytes == ASK_SNAPSHOT_BYTES // 2


def test_a_smaller_configured_part_is_not_enlarged_by_a_timeout() -> None:
    f = Follower(fetch_snapshot_max_bytes=1000)
    f.opened()
    f.step(Replied(m.Peer(2, address(2)), f.asked(m.FetchSnapshot), m.Failure.TIMEOUT))
    f.later()
    assert f.asked(m.FetchSnapshot).max_bytes == 1000


def test_a_fetch_asks_for_at_most_controller_quorum_fetch_max_bytes_of_records() -> None:
    f = Follower(fetch_max_bytes=70_000)
    f.new_leader()
    assert f.asked(m.Fetch).max_bytes == 70_000


def test_after_a_fetch_that_is_not_answered_in_time_fewer_bytes_of_the_log_are_requested() -> None:
    """A link that carries less than a response within the request timeout would never carry the log."""
    f = Follower()
    f.new_leader()
    asked = [f.asked(m.Fetch).max_bytes]
    for _ in range(6):
        f.step(Replied(m.Peer(3, address(3)), f.asked(m.Fetch), m.Failure.TIMEOUT))
        f.later()
        asked.append(f.asked(m.Fetch).max_bytes)
    assert asked == [max(ASK_FETCH_BYTES >> i, MIN_PART_BYTES) for i in range(7)]
    f.reply(m.Fetch, m.FetchReply(high_watermark=0))
    assert f.asked(m.Fetch).max_bytes == ASK_FETCH_BYTES, "it has caught up, and the link may be fast again"


def test_a_fetch_that_outlasts_the_fetch_timeout_is_halved_once() -> None:
    f = Follower()
    f.new_leader()
    late = f.asked(m.Fetch)
    f.now = f.r.state.following.fetch_deadline
    f.step(Timeout())
    assert f.r.state.role is Role.PROSPECTIVE
    f.step(Replied(m.Peer(3, address(3)), late, m.Failure.TIMEOUT))
    assert f.r.state.fetch_bytes == ASK_FETCH_BYTES // 2


@pytest.mark.parametrize("kind", [m.Fetch, m.FetchSnapshot])
def test_a_follower_waits_for_a_response_that_arrives_slowly(kind: type) -> None:
    """A leader of Apache Kafka sends 8 MiB of the log whatever was asked for. A batch is never divided."""
    f = Follower()
    if kind is m.FetchSnapshot:
        f.opened()
    else:
        f.new_leader()
    asked, timeout_s = f.asked(kind), f.r.state.params.fetch_timeout_s
    for _ in range(20):
        f.now += timeout_s / 2
        f.step(Receiving(address(f.leader)))
        assert f.r.state.role is Role.FOLLOWER
        assert f.asked(kind) is asked
    f.now += timeout_s
    f.step(Timeout())
    assert f.r.state.role is Role.PROSPECTIVE, "nothing has arrived for the fetch timeout"


def test_a_response_that_arrives_for_longer_than_the_fetch_timeout_makes_the_next_request_smaller() -> None:
    f = Follower()
    f.new_leader()
    for _ in range(8):
        f.now += f.r.state.params.fetch_timeout_s / 2
        f.step(Receiving(address(f.leader)))
    assert f.r.state.fetch_bytes == ASK_FETCH_BYTES // 2


def test_a_pre_vote_is_granted_while_a_response_arrives_for_longer_than_the_fetch_timeout() -> None:
    """The kernel of the leader's host still sends what a leader that has died had written."""
    f = Follower()
    f.new_leader()
    f.reply(m.Fetch, m.FetchReply(high_watermark=0))
    granted = []
    for _ in range(3):
        f.now += f.r.state.params.fetch_timeout_s / 2
        f.step(Receiving(address(f.leader)))
        effects = f.step(Received(vote(4, i=2, pre=True), "vote"))
        granted.append(next(a.reply.granted for a in effects.answers))
    assert granted == [False, True, True]


def test_a_response_of_another_node_than_the_leader_does_not_extend_the_fetch_timeout() -> None:
    f = Follower()
    f.new_leader()
    before = f.r.state.following.fetch_deadline
    f.now += f.r.state.params.fetch_timeout_s / 2
    f.step(Receiving(address(2)))
    assert f.r.state.following.fetch_deadline == before


def test_a_silent_node_that_is_not_the_leader_does_not_make_fetches_smaller() -> None:
    f = Follower()
    f.new_leader()
    f.step(Replied(m.Peer(2, address(2)), f.asked(m.Fetch), m.Failure.TIMEOUT))
    assert f.r.state.fetch_bytes == ASK_FETCH_BYTES


def test_a_download_that_was_opened_for_an_earlier_leader_must_be_confirmed_by_the_new_one() -> None:
    """Opening a download reads the partial file. Meanwhile the new leader may have named the same
    snapshot."""
    f = Follower()
    f.new_leader()
    f.told_of_snapshot()
    f.step(SnapshotOpened(SNAPSHOT, 4000, None, LeaderAndEpoch(2, 3)))
    assert f.asked(m.FetchSnapshot) is None
    f.step(SnapshotOpened(SNAPSHOT, 4000, DIGEST, LeaderAndEpoch(3, 4)))
    request = f.asked(m.FetchSnapshot)
    assert (request.position, request.prefix_digest) == (4000, DIGEST)


def test_the_next_part_is_requested_while_one_part_is_being_written() -> None:
    f = Follower()
    f.opened()
    whole = b"s" * ASK_SNAPSHOT_BYTES
    size = 10 * len(whole)
    f.chunk(whole, size)
    assert f.asked(m.FetchSnapshot).position == len(whole)
    f.chunk(whole, size)
    assert f.asked(m.FetchSnapshot) is None, "two parts wait to be written"
    f.step(SnapshotWritten(SNAPSHOT, len(whole)))
    assert f.asked(m.FetchSnapshot).position == 2 * len(whole)


def test_after_the_last_part_it_neither_fetches_nor_requests_votes_until_the_snapshot_is_installed() -> None:
    f = Follower()
    f.opened()
    effects = f.chunk(size=len(CHUNK))
    assert effects.snapshot_chunk is not None
    assert effects.snapshot_chunk.last
    f.now += 60
    assert f.step(Timeout()).send == []
    f.step(Received(vote(epoch=9, i=3), "t"))
    assert (f.r.state.epoch, f.r.state.role) == (9, Role.UNATTACHED)
    f.now += 60
    assert f.step(Timeout()).send == []
    assert f.r.state.role is Role.UNATTACHED, "its log is about to be replaced"
    f.r.state.log.snapshots[SNAPSHOT] = CHUNK  # type: ignore[attr-defined]
    f.r.state.log.entries, f.r.state.log.start, f.r.state.log.start_epoch = [], 100, 2  # type: ignore[attr-defined]
    f.step(SnapshotInstalled(SNAPSHOT, f.r.state.voters, 1))
    f.step(Timeout())
    assert f.r.state.role is Role.PROSPECTIVE


def test_after_a_lost_connection_the_download_continues_at_the_same_position() -> None:
    f = Follower()
    f.opened()
    f.chunk()
    request = f.asked(m.FetchSnapshot)
    f.step(Replied(m.Peer(2, address(2)), request, m.Failure.DISCONNECTED))
    f.later()
    again = f.asked(m.FetchSnapshot)
    assert again is not request
    assert again.position == len(CHUNK)
    assert f.effects.start_snapshot is None


def test_the_download_continues_from_a_new_leader_with_the_same_prefix() -> None:
    f = Follower()
    f.opened()
    f.chunk()
    f.new_leader()
    assert f.told_of_snapshot().start_snapshot == SnapshotStart(SNAPSHOT, LeaderAndEpoch(3, 4))
    f.opened(len(CHUNK), DIGEST)
    request = f.asked(m.FetchSnapshot)
    assert (request.position, request.prefix_digest) == (len(CHUNK), DIGEST)
    effects = f.chunk(same_prefix=True)
    assert effects.snapshot_chunk is not None
    assert effects.snapshot_chunk.position == len(CHUNK)
    assert f.asked(m.FetchSnapshot).prefix_digest is None, "once is enough"


@pytest.mark.parametrize("same", [False, None])
def test_the_download_restarts_from_a_new_leader_without_the_same_prefix(
    same: bool | None,
) -> None:
    f = Follower()
    f.opened()
    f.chunk()
    f.new_leader()
    f.told_of_snapshot()
    f.opened(len(CHUNK), DIGEST)
    effects = f.chunk(same_prefix=same)
    assert effects.snapshot_chunk is None
    assert effects.start_snapshot == SnapshotStart(SNAPSHOT, LeaderAndEpoch(3, 4), fresh=True)
    f.opened()
    assert f.asked(m.FetchSnapshot).position == 0


def test_a_new_leader_may_offer_another_snapshot() -> None:
    f = Follower()
    f.opened()
    f.chunk()
    f.new_leader()
    other = OffsetEpoch(200, 3)
    assert f.told_of_snapshot(other).start_snapshot == SnapshotStart(other, LeaderAndEpoch(3, 4))
    f.step(SnapshotWritten(SNAPSHOT, 1000))
    assert f.asked(m.FetchSnapshot) is None, "what is told of the old one is of no matter"


def test_a_snapshot_that_the_leader_has_deleted_is_not_requested_again() -> None:
    f = Follower()
    f.opened()
    f.now += 1.0
    effects = f.chunk(b"", error=ErrorCode.SNAPSHOT_NOT_FOUND)
    f.later()
    assert isinstance(f.asked(m.Fetch), m.Fetch)
    assert f.asked(m.FetchSnapshot) is None
    assert effects.snapshot_chunk is None
    assert f.r.state.following is not None
    assert f.r.state.following.fetch_deadline == pytest.approx(1.2 + 2.0), "the leader was heard"


@pytest.mark.parametrize(("position", "fresh"), [(0, False), (4000, True)])
def test_a_position_out_of_range_restarts_the_download(position: int, fresh: bool) -> None:
    f = Follower()
    f.opened(position)
    effects = f.chunk(b"", error=ErrorCode.POSITION_OUT_OF_RANGE)
    assert effects.start_snapshot == (SnapshotStart(SNAPSHOT, LeaderAndEpoch(2, 3), True) if fresh else None)
    f.later()
    if fresh:
        f.opened()
        assert f.asked(m.FetchSnapshot).position == 0
    else:
        assert isinstance(f.asked(m.Fetch), m.Fetch)


def test_a_changed_size_restarts_the_download() -> None:
    f = Follower()
    f.opened()
    f.chunk(size=10_000)
    effects = f.chunk(size=12_000)
    assert effects.snapshot_chunk is None
    assert effects.start_snapshot == SnapshotStart(SNAPSHOT, LeaderAndEpoch(2, 3), fresh=True)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b"", 10_000),
        (b"s" * (ASK_SNAPSHOT_BYTES + 1), 1 << 30),
        (CHUNK, 999),
        (CHUNK, MAX_SNAPSHOT_BYTES + 1),
        (CHUNK, -1),
    ],
)
def test_an_impossible_response_is_not_written_and_its_request_backs_off(data: bytes, size: int) -> None:
    f = Follower()
    f.opened()
    effects = f.chunk(data, size)
    assert effects.snapshot_chunk is None
    assert f.asked(m.FetchSnapshot) is None
    f.later()
    assert f.asked(m.FetchSnapshot).position == 0


@pytest.mark.parametrize("changes", [{"snapshot": OffsetEpoch(101, 2)}, {"position": 7}])
def test_a_response_for_another_snapshot_or_position_is_not_written(
    changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    f = Follower()
    f.opened()
    assert f.chunk(**changes).snapshot_chunk is None
    assert "asked for snapshot and position ((100, 2), 0)" in caplog.text
    assert f.asked(m.FetchSnapshot) is None
    f.later()
    assert f.asked(m.FetchSnapshot).position == 0


@pytest.mark.parametrize("last", [False, True])
def test_a_refused_snapshot_is_fetched_again_after_a_delay(last: bool) -> None:
    f = Follower()
    f.opened()
    f.chunk(size=len(CHUNK) if last else 10_000)
    stale = f.asked(m.FetchSnapshot)
    f.step(SnapshotRejected(SNAPSHOT, "wrong checksum"))
    if stale is not None:  # an answer to the old download is of no matter
        effects = f.step(
            Replied(
                m.Peer(2, address(2)),
                stale,
                m.SnapshotReply(
                    snapshot=SNAPSHOT, position=stale.position, size=10_000, data=CHUNK, leader_id=2, epoch=3
                ),
            )
        )
        assert effects.snapshot_chunk is None
    assert f.asked(m.Fetch) is None
    assert f.r.state.role is Role.FOLLOWER
    f.later(REFUSED_SNAPSHOT_S)
    assert isinstance(f.asked(m.Fetch), m.Fetch)
    assert f.told_of_snapshot().start_snapshot == SnapshotStart(SNAPSHOT, LeaderAndEpoch(2, 3))
