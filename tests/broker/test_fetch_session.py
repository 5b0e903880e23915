"""Fetch sessions: the partitions of an incremental request, and of its response."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from quorate.broker.replication.fetch_session import (
    FetchPartition,
    FetchSessionCache,
    FetchSessions,
    IncrementalFetchContext,
    PartitionKey,
    next_epoch,
)
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.fetch import FetchResponse
from quorate.protocol.uuids import ZERO_UUID

Answer = FetchResponse.PartitionData


def want(
    topic: str, partition: int = 0, offset: int = 0, max_bytes: int = 100
) -> dict[PartitionKey, FetchPartition]:
    return {(topic, partition): FetchPartition(topic, ZERO_UUID, partition, offset, -1, max_bytes, -1, -1)}


def answer(
    partition: int = 0, high_watermark: int = 10, start: int = 0, records: bytes = b"", error: int = 0
) -> Answer:
    return Answer(
        partition_index=partition,
        high_watermark=high_watermark,
        log_start_offset=start,
        records=records,
        error_code=error,
    )


def sessions(limit: int = 10, names: Callable[[bytes], str | None] = lambda _id: None) -> FetchSessions:
    ids = itertools.count(1)
    return FetchSessions(FetchSessionCache(limit, 1000, lambda: next(ids)), names)


def ask(
    known: FetchSessions,
    session_id: int,
    epoch: int,
    wanted: dict[PartitionKey, FetchPartition],
    forgotten: tuple[PartitionKey, ...] = (),
    *,
    by_id: bool = False,
    privileged: bool = False,
    now_ms: int = 0,
):
    return known.context(
        session_id=session_id,
        epoch=epoch,
        uses_topic_ids=by_id,
        privileged=privileged,
        wanted=wanted,
        forgotten=forgotten,
        now_ms=now_ms,
    )


def open_session(known: FetchSessions, wanted: dict[PartitionKey, FetchPartition], **kwargs) -> int:
    context = ask(known, 0, 0, wanted, **kwargs)
    error, session_id, _ = context.finish({key: answer() for key in wanted}, kwargs.get("now_ms", 0))
    assert error == ErrorCode.NONE
    return session_id


def test_a_full_request_opens_a_session_and_answers_everything():
    known = sessions()
    context = ask(known, 0, 0, want("a") | want("b"))
    error, session_id, news = context.finish({("a", 0): answer(), ("b", 0): answer()}, 0)
    assert (error, session_id) == (ErrorCode.NONE, 1)
    assert list(news) == [("a", 0), ("b", 0)]


def test_the_final_epoch_asks_for_no_session_and_closes_the_one_it_names():
    known = sessions()
    session_id = open_session(known, want("a"))
    context = ask(known, session_id, -1, want("a"))
    assert context.finish({("a", 0): answer()}, 0)[1] == 0
    assert len(known.cache) == 0


def test_an_incremental_response_omits_unchanged_partitions():
    known = sessions()
    session_id = open_session(known, want("a") | want("b"))
    context = ask(known, session_id, 1, {})
    _, _, news = context.finish({("a", 0): answer(), ("b", 0): answer(records=b"x")}, 0)
    assert list(news) == [("b", 0)]


@pytest.mark.parametrize(
    "changed",
    [
        answer(high_watermark=11),
        answer(start=1),
        answer(error=int(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        Answer(high_watermark=10, log_start_offset=0, preferred_read_replica=2),
        Answer(
            high_watermark=10,
            log_start_offset=0,
            diverging_epoch=FetchResponse.EpochEndOffset(epoch=1, end_offset=2),
        ),
    ],
    ids=["high watermark", "log start", "error", "preferred replica", "diverging epoch"],
)
def test_an_incremental_response_has_the_changed_partitions(changed):
    known = sessions()
    session_id = open_session(known, want("a"))
    news = ask(known, session_id, 1, {}).finish({("a", 0): changed}, 0)[2]
    assert list(news) == [("a", 0)]


def test_after_an_error_the_next_success_is_sent():
    known = sessions()
    session_id = open_session(known, want("a"))
    ask(known, session_id, 1, {}).finish({("a", 0): answer(error=6)}, 0)
    news = ask(known, session_id, 2, {}).finish({("a", 0): answer()}, 0)[2]
    assert list(news) == [("a", 0)]


@pytest.mark.parametrize("epoch_of_the_divergence", [0, 1])
def test_after_a_divergence_the_next_success_is_sent(epoch_of_the_divergence):
    """A follower truncates its log at a divergence and ignores the high watermark of the response."""
    known = sessions()
    diverging = answer(high_watermark=10)
    diverging.diverging_epoch = FetchResponse.EpochEndOffset(epoch=3, end_offset=10)
    answers = [answer(high_watermark=10)] * epoch_of_the_divergence + [diverging]
    session_id = 0
    for epoch, response in enumerate(answers):
        context = ask(known, session_id, epoch, want("a") if epoch == 0 else {})
        _, session_id, news = context.finish({("a", 0): response}, 0)
        assert list(news) == [("a", 0)]
    context = ask(known, session_id, len(answers), {})
    assert list(context.finish({("a", 0): answer(high_watermark=10)}, 0)[2]) == [("a", 0)]


def test_in_a_new_leader_epoch_everything_is_sent_again():
    """A follower ignores a response that arrives after it has learned of the new leader epoch."""
    known = sessions()
    session_id = open_session(known, want("a"))
    (part,) = ask(known, session_id, 1, {}).partitions.values()
    news = ask(known, session_id, 2, {("a", 0): replace(part, current_leader_epoch=5)})
    assert list(news.finish({("a", 0): answer()}, 0)[2]) == [("a", 0)]


def test_partitions_with_data_move_to_the_end():
    known = sessions()
    session_id = open_session(known, want("a") | want("b") | want("c"))
    context = ask(known, session_id, 1, {})
    context.finish({("a", 0): answer(records=b"x"), ("b", 0): answer(), ("c", 0): answer()}, 0)
    assert [key[0] for key in ask(known, session_id, 2, {}).partitions] == ["b", "c", "a"]


def test_partitions_are_added_changed_and_removed():
    known = sessions()
    session_id = open_session(known, want("a") | want("b"))
    context = ask(known, session_id, 1, want("a", offset=7) | want("c"), (("b", 0),))
    assert [(key[0], part.fetch_offset) for key, part in context.partitions.items()] == [("a", 7), ("c", 0)]


def test_a_session_without_partitions_is_closed():
    known = sessions()
    session_id = open_session(known, want("a"))
    context = ask(known, session_id, 1, {}, (("a", 0),))
    assert context.finish({}, 0)[:2] == (ErrorCode.NONE, 0)
    assert len(known.cache) == 0


@pytest.mark.parametrize(
    ("session_id", "epoch", "by_id", "error"),
    [
        (99, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_request_that_does_not_fit_its_session_is_refused(session_id, epoch, by_id, error):
    known = sessions()
    open_session(known, want("a"))
    context = ask(known, session_id, epoch, {}, by_id=by_id)
    assert context.error == error
    assert context.finish({}, 0)[2] == {}


def test_the_same_request_twice_while_one_waits_gives_an_epoch_error():
    known = sessions()
    session_id = open_session(known, want("a"))
    first = ask(known, session_id, 1, {})
    assert isinstance(first, IncrementalFetchContext)
    ask(known, session_id, 2, {})
    assert first.finish({("a", 0): answer(records=b"x")}, 0)[0] == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_unknown_topic_id_is_resolved_when_its_name_is_known():
    names: dict[bytes, str] = {}
    known = sessions(names=names.get)
    topic_id = bytes(range(16))
    part = FetchPartition(None, topic_id, 0, 0, -1, 1, -1, -1)
    session_id = open_session(known, {(topic_id, 0): part}, by_id=True)
    names[topic_id] = "late"
    context = ask(known, session_id, 1, {}, by_id=True)
    assert [part.topic for part in context.partitions.values()] == ["late"]


def test_a_full_cache_gives_no_session_to_a_fetcher_of_the_same_kind():
    known = sessions(limit=1)
    open_session(known, want("a"))
    assert open_session(known, want("b")) == 0


def test_an_unused_session_is_evicted():
    known = sessions(limit=1)
    first = open_session(known, want("a"))
    second = open_session(known, want("b"), now_ms=1001)
    assert second not in (0, first)
    assert known.cache.get(first) is None
    assert known.cache.evictions == 1


def test_a_followers_session_evicts_that_of_a_consumer_and_not_the_reverse():
    known = sessions(limit=1)
    open_session(known, want("a"))
    follower = open_session(known, want("b"), privileged=True)
    assert follower != 0
    assert open_session(known, want("c")) == 0
    assert known.cache.evictions == 1


@pytest.mark.parametrize(("epoch", "following"), [(0, 1), (1, 2), (0x7FFFFFFF, 1), (-1, -1)])
def test_epochs_follow_each_other(epoch, following):
    assert next_epoch(epoch) == following
