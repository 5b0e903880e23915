"""Large messages are freed in pieces."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from quorate.net.connections.release import PIECE, release
from quorate.protocol.messages.fetch import FetchRequest


def fetch(*counts: int) -> FetchRequest:
    """A Fetch with these numbers of partitions in its topics."""
    return FetchRequest(
        topics=[
            FetchRequest.FetchTopic(
                topic=f"t{number}",
                partitions=[FetchRequest.FetchPartition(partition=p) for p in range(count)],
            )
            for number, count in enumerate(counts)
        ]
    )


class Freed(FetchRequest.FetchPartition):
    """A partition that counts how many are freed at once: without a call of a Python function between."""

    __slots__ = ()
    total = 0

    def __del__(self) -> None:
        Freed.total += 1


@pytest.mark.parametrize("counts", [(), (0,), (3, 5), (10 * PIECE,), (20, 2 * PIECE, 0, 7), (1,) * 3 * PIECE])
def test_everything_is_freed(counts: tuple[int, ...]) -> None:
    Freed.total = 0
    message = fetch(*counts)
    for topic in message.topics:
        topic.partitions = [Freed(partition=part.partition) for part in topic.partitions]
    topic = None
    values: list[Any] = [message, None]
    del message
    release(values)
    assert values == []
    assert Freed.total == sum(counts)


def test_few_structs_are_freed_at_once() -> None:
    Freed.total = 0
    message = fetch(0, 0)
    for topic in message.topics:
        topic.partitions = [Freed() for _ in range(4 * PIECE)]
    del topic
    values: list[Any] = [message]
    del message
    seen = [0]

    def trace(frame: Any, event: str, arg: object) -> Any:
        if frame.f_code is not Freed.__del__.__code__:
            seen.append(Freed.total)
            return trace
        return None

    sys.settrace(trace)
    try:
        release(values)
    finally:
        sys.settrace(None)
    assert Freed.total == 8 * PIECE
    assert max(after - before for before, after in pairwise(seen)) <= PIECE


@pytest.mark.parametrize(
    "kept",
    [
        lambda message: message,
        lambda message: message.topics,
        lambda message: message.topics[1],
        lambda message: message.topics[1].partitions,
        lambda message: message.topics[1].partitions[7],
    ],
    ids=["message", "list", "struct", "inner list", "inner struct"],
)
def test_what_a_handler_still_refers_to_stays(kept: Callable[[FetchRequest], Any]) -> None:
    message = fetch(2 * PIECE, 3 * PIECE)
    part = kept(message)
    values: list[Any] = [message]
    del message
    release(values)
    assert part == kept(fetch(2 * PIECE, 3 * PIECE))
