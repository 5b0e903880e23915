"""Steps of a leader whose follower does not receive what it is sent within its request timeout. The rules of
such a follower are in `test_snapshot_rules`."""

from __future__ import annotations

from quorate.raft.core import messages as m
from quorate.raft.core.raft import Raft
from quorate.raft.types import MAX_FETCH_BYTES, MIN_PART_BYTES, OffsetEpoch, ReplicaKey
from tests.raft.test_rules import CLUSTER, fetch, leader, reply_to
from tests.raft.world import directory


def sent_bytes(r: Raft, request: m.Fetch, now: float = 5.0) -> int:
    reply = reply_to(r, request, now)
    assert isinstance(reply, m.FetchReply)
    return reply.max_bytes


def test_a_replica_that_asks_again_for_the_same_records_gets_half_as_many_bytes() -> None:
    r = leader()
    sent = [sent_bytes(r, fetch(0, 0)) for _ in range(9)]
    assert sent == [max(MAX_FETCH_BYTES >> i, MIN_PART_BYTES) for i in range(9)]


def test_the_parts_stay_small_until_the_replica_has_caught_up() -> None:
    r = leader()
    assert [sent_bytes(r, fetch(0, 0)), sent_bytes(r, fetch(0, 0))] == [MAX_FETCH_BYTES, MAX_FETCH_BYTES // 2]
    assert sent_bytes(r, fetch(2, 1)) == MAX_FETCH_BYTES // 2
    reply_to(r, fetch(4, 3, wait=0))
    assert sent_bytes(r, fetch(2, 1)) == MAX_FETCH_BYTES, "the link may be fast again"


def test_a_replica_gets_no_more_bytes_than_it_asks_for() -> None:
    r = leader()
    assert sent_bytes(r, fetch(0, 0, max_bytes=1_000_000)) == 1_000_000
    assert sent_bytes(r, fetch(0, 0, max_bytes=1_000_000)) == 500_000
    assert sent_bytes(r, fetch(2, 1, max_bytes=1000)) == 1000


def test_a_replica_that_asks_again_for_the_same_part_of_a_snapshot_gets_half_as_many_bytes() -> None:
    r = leader(snapshots=((2, 1),))
    r.state.log.snapshots[OffsetEpoch(2, 1)] = b"x" * MAX_FETCH_BYTES  # type: ignore[attr-defined]
    reply_to(r, fetch(0, 0))
    follower = ReplicaKey(2, directory(2))
    sent = []
    for position in (0, 0, 0, 1000):
        q = m.FetchSnapshot(follower, 3, OffsetEpoch(2, 1), position, MAX_FETCH_BYTES, CLUSTER)
        reply = reply_to(r, q)
        assert isinstance(reply, m.SnapshotReply)
        sent.append(reply.read)
    assert sent == [MAX_FETCH_BYTES, MAX_FETCH_BYTES // 2, MAX_FETCH_BYTES // 4, MAX_FETCH_BYTES // 4]
