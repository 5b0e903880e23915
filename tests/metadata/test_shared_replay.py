"""Two users of one log share images."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from quorate.metadata import loader
from quorate.metadata.framing import encode_record
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import apply_records
from quorate.metadata.loader import ImageSteps
from quorate.metadata.records import FeatureLevelRecord, TopicRecord
from quorate.metadata.shared_replay import SharedReplay
from quorate.raft.types import CommittedBatch
from tests.support.garbage import freeze_garbage_collector


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


def test_only_a_user_that_allows_it_gets_an_image_that_is_ahead() -> None:
    shared = SharedReplay()
    newest = shared.apply(EMPTY, BATCHES)
    assert shared.apply(EMPTY, BATCHES[:2], ahead=True) is newest
    exact = shared.apply(EMPTY, BATCHES[:2])
    assert exact.provenance.offset == BATCHES[1].last_offset
    assert shared.apply(exact, BATCHES[2:]) is newest


def test_an_offered_image_is_shared() -> None:
    shared = SharedReplay()
    mine = apply_records(
        EMPTY,
        [FeatureLevelRecord(name="metadata.version", feature_level=27)],
        offset=0,
        epoch=1,
        timestamp_ms=0,
    )
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


def many(count: int) -> list[CommittedBatch]:
    """Batches of 700 topics each."""
    return [
        batch(
            at,
            *[
                TopicRecord(name=f"t{n}", topic_id=n.to_bytes(16, "big"))
                for n in range(at, min(at + 700, count))
            ],
        )
        for at in range(0, count, 700)
    ]


def drained(steps: ImageSteps, between: Callable[[], None] = lambda: None) -> MetadataImage:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            image: MetadataImage = done.value
            return image
        between()


@pytest.mark.parametrize("how", ["log", "snapshot"])
def test_steps_lead_to_the_same_image_and_none_is_long(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = 0
    decode = loader.decode_record

    def counting(value: bytes | memoryview) -> object:
        nonlocal replayed
        replayed += 1
        return decode(value)

    monkeypatch.setattr(loader, "decode_record", counting)
    batches, at_once = many(3000), []

    def between() -> None:
        nonlocal replayed
        at_once.append(replayed)
        replayed = 0

    if how == "log":
        wanted = loader.apply_committed(EMPTY, batches)
        replayed = 0
        got = drained(SharedReplay().apply_steps(EMPTY, batches), between)
    else:
        wanted = loader.load_snapshot(9000, 4, batches)
        replayed = 0
        got = drained(SharedReplay().load_steps(9000, 4, batches), between)
    assert got == wanted
    assert got.provenance == wanted.provenance
    assert sum(at_once) == 3000
    assert max(at_once) <= loader.STEP_RECORDS


def test_two_users_that_load_the_same_snapshot_in_steps_read_it_once() -> None:
    shared, batches = SharedReplay(), many(2000)
    first, second = shared.load_steps(2000, 1, batches), shared.load_steps(2000, 1, iter(()))
    image = drained(first, lambda: next(second))
    assert drained(second) is image


def test_a_waiting_user_loads_the_snapshot_when_the_other_one_stops() -> None:
    shared, batches = SharedReplay(), many(2000)
    first, second = shared.load_steps(2000, 1, batches), shared.load_steps(2000, 1, batches)
    for _ in range(3):
        next(first)
        next(second)
    first.close()
    assert len(drained(second).topics.by_name) == 2000


def test_garbage_collection_pauses_while_a_snapshot_is_loaded() -> None:
    was = gc.isenabled()
    gc.enable()
    try:
        during: set[bool] = set()
        drained(SharedReplay().load_steps(2000, 1, many(2000)), lambda: during.add(gc.isenabled()))
        assert during == {False}
        assert gc.isenabled()
        steps = SharedReplay().load_steps(2000, 1, many(2000))
        next(steps)
        steps.close()
        assert gc.isenabled()
    finally:
        freeze_garbage_collector()
        (gc.enable if was else gc.disable)()
