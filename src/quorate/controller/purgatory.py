"""Answers that wait for their records to commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quorate.protocol.errors import ErrorCode, KafkaError


@dataclass(slots=True)
class Answer:
    """offset: the last record on which it depends, -1 for none; an Envelope passes it on to the
    forwarding broker."""

    response: Any
    offset: int


@dataclass(slots=True)
class _Waiting:
    offset: int
    response: Any
    future: asyncio.Future[Any]
    deadline: float
    what: str
    with_offset: bool


class ResponsePurgatory:
    """In order of offset, since each answer waits for at least what the one before it waits for."""

    __slots__ = ("_empty", "_queue")

    def __init__(self) -> None:
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
        """deadline: monotonic seconds, infinity for none. with_offset: give an `Answer`, not the bare
        response."""
        self._queue.append(_Waiting(offset, response, future, deadline, what, with_offset))

    def release(self, stable_offset: int) -> None:
        """Answers everything that waits for this offset or an earlier one."""
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
        """Returns when nothing waits any more, at the latest after the time given."""
        if self._queue:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=timeout_s)

    def fail_all(self, error: Callable[[], KafkaError]) -> None:
        queue, self._queue = self._queue, deque()
        for waiting in queue:
            if not waiting.future.done():
                waiting.future.set_exception(error())

    def expire(self, now: float) -> int:
        """Answers REQUEST_TIMED_OUT where the deadline has passed: the change may still happen. Returns
        how many."""
        expired = 0
        for waiting in self._queue:
            if waiting.deadline <= now and not waiting.future.done():
                waiting.future.set_exception(
                    KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"{waiting.what} was written at offset {waiting.offset}, which no majority has "
                        "confirmed in time.",
                    )
                )
                expired += 1
        return expired
