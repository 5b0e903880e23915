"""Two users of one log: what one has replayed, the other takes over."""

from __future__ import annotations

from quorate.metadata.framing import encode_record
from quorate.metadata.image import EMPTY
from quorate.metadata.records import FeatureLevelRecord, TopicRecord
from quorate.metadata.shared_replay import SharedReplay
from quorate.raft.types import CommittedBatch


def batch(offset: int, *records: TopicRecord | FeatureLevelRecord) -> CommittedBatch:
    values = [encode_record(record, 0) for record in records]
    return CommittedBatch(offset, offset + len(values) - 1, 1, 0, values, 100)


BATCHES = [
    batch(0, FeatureLevelRecord(name="metadata.version", feature_level=27)),
    *[batch(n, TopicRecord(name=f"t{n}", topic_id=n.to_bytes(16, "big"))) for n in range(200, 203)],
]


def test_the_same_batches_are_replayed_once() -> None:
    shared = SharedReplay()
    first = shared.apply(EMPTY, BATCHES)
    assert shared.apply(EMPTY, BATCHES) is first
    assert len(first.topics.by_name) == 3


def test_only_who_asks_for_it_gets_an_image_that_is_ahead() -> None:
    shared = SharedReplay()
    newest = shared.apply(EMPTY, BATCHES)
    assert shared.apply(EMPTY, BATCHES[:2], ahead=True) is newest
    exact = shared.apply(EMPTY, BATCHES[:2])
    assert exact.provenance.offset == BATCHES[1].last_offset
    assert shared.apply(exact, BATCHES[2:]) is newest


def test_an_image_that_is_offered_is_taken_over() -> None:
    shared = SharedReplay()
    mine = EMPTY.apply([FeatureLevelRecord(name="metadata.version", feature_level=27)], offset=0, epoch=1, timestamp_ms=0)
    shared.offer(mine)
    assert shared.apply(EMPTY, BATCHES[:1]) is mine
    shared.offer(EMPTY)
    assert shared.apply(EMPTY, BATCHES[:1]) is mine


def test_a_snapshot_is_read_once() -> None:
    shared = SharedReplay()
    first = shared.load(1, 1, BATCHES[:1])
    assert shared.load(1, 1, iter(())) is first
    newer = shared.apply(first, BATCHES[1:])
    assert shared.load(1, 1, iter(()), ahead=True) is newer


def test_batches_that_an_image_contains_are_not_replayed_again() -> None:
    shared = SharedReplay()
    ahead = shared.apply(EMPTY, BATCHES[:3])
    mine = shared.apply(EMPTY, BATCHES[:1], ahead=True)
    assert mine is ahead
    assert shared.apply(mine, BATCHES[1:2], ahead=True) is ahead
    newest = shared.apply(mine, BATCHES[1:], ahead=True)  # some contained, one not
    assert (newest.provenance.offset, len(newest.topics.by_name)) == (BATCHES[-1].last_offset, 3)
