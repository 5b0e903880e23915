"""Requests that reach a controller between two terms: kept until it is active, or somebody else leads.

A new leader is chosen some milliseconds before it is active: its LeaderChange has to commit first.
Brokers that come in between would be sent away and come back with a delay.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.net.dispatch import RequestContext
    from quorate.protocol.schema import Request

MAX_HELD = 10_000  # a broker has a handful under way; what comes beyond is told to ask again

Submit = Callable[["RequestContext", "Request", bool], Any]


class DeferredRequests:
    """In the order in which they came."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[RequestContext, Request, bool, asyncio.Future[Any]]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def full(self) -> bool:
        return len(self._queue) >= MAX_HELD

    def add(self, ctx: RequestContext, request: Request, with_offset: bool) -> asyncio.Future[Any]:
        """The future of what `submit` will give for it."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((ctx, request, with_offset, answer))
        return answer

    def release(self, submit: Submit) -> None:
        """Submits all of them: done, or refused, as things stand now."""
        queue, self._queue = self._queue, deque()
        for ctx, request, with_offset, answer in queue:
            if answer.done():  # nobody waits any more
                continue
            try:
                outcome = submit(ctx, request, with_offset)
            except Exception as error:
                answer.set_exception(error)
                continue
            if asyncio.isfuture(outcome):
                _chain(outcome, answer)
            else:
                answer.set_result(outcome)


def _chain(source: asyncio.Future[Any], answer: asyncio.Future[Any]) -> None:
    def done(source: asyncio.Future[Any]) -> None:
        if answer.done():
            return
        if source.cancelled():
            answer.cancel()
        elif (error := source.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(source.result())

    source.add_done_callback(done)
