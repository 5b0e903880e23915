"""Responses that wait until their records are committed. Source: Kafka's DeferredEventQueue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from quorate.dataclass import dataclass
from quorate.protocol.errors import ErrorCode, KafkaError


@dataclass(slots=True)
class Answer:
    """A response, and the offset of the last record that it depends on, or -1. An Envelope returns the
    offset to the forwarding broker."""

    response: Any
    offset: int


@dataclass(slots=True)
class _Waiting:
    """A response that waits for its offset."""

    offset: int
    response: Any
    future: asyncio.Future[Any]
    deadline: float
    what: str
    with_offset: bool


class ResponsePurgatory:
    """A queue of responses in the order of their offsets. Each response waits for at least the offset of
    the one before it."""

    __slots__ = ("_empty", "_queue", "expired_count")

    def __init__(self) -> None:
        self.expired_count = 0
        """Responses that were replaced by REQUEST_TIMED_OUT."""
        self._queue: deque[_Waiting] = deque()
        self._empty: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def add(
        self,
        offset: int,
        response: Any,
        future: asyncio.Future[Any],
        *,
        deadline: float,
        what: str,
        with_offset: bool,
    ) -> None:
        """Adds a response. `deadline` is in monotonic seconds, or infinity. `with_offset` gives the
        future an `Answer` instead of the response."""
        self._queue.append(_Waiting(offset, response, future, deadline, what, with_offset))

    def release(self, stable_offset: int) -> None:
        """Releases all responses that wait for this offset or a lower one."""
        queue = self._queue
        while queue and queue[0].offset <= stable_offset:
            waiting = queue.popleft()
            if not waiting.future.done():
                waiting.future.set_result(
                    Answer(waiting.response, waiting.offset) if waiting.with_offset else waiting.response
                )

        if not queue and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    async def emptied(self, timeout_s: float) -> None:
        """Waits until no response is waiting, or until the timeout."""
        if self._queue:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=timeout_s)

    def fail_all(self, error: Callable[[], KafkaError]) -> None:
        """Fails all waiting responses."""
        queue, self._queue = self._queue, deque()
        for waiting in queue:
            if not waiting.future.done():
                waiting.future.set_exception(error())

    def expire(self, now: float) -> int:
        """Fails the responses whose deadline has passed with REQUEST_TIMED_OUT, although their records
        may still be committed. Returns their number."""
        expired = 0
        for waiting in self._queue:
            if waiting.deadline <= now and not waiting.future.done():
                waiting.future.set_exception(
                    KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"{waiting.what} was written at offset {waiting.offset}, which no majority has "
                        "confirmed in time.",
                        remedy="It may still be committed. kafka-metadata-quorum describe "
                        "--replication shows which voters lag behind.",
                    )
                )
                expired += 1
        self.expired_count += expired
        return expired
