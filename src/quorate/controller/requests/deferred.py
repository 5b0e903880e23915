"""Requests that arrive while this controller leads and cannot write.

A new leader becomes active when its LeaderChange record is committed, some milliseconds after the
election. A request that arrives in between is kept until this controller is active or another one leads.
If it were rejected, the broker would send it again only after its retry backoff. A request that arrives
while a metadata transaction is being written is kept until the transaction has its end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.net.dispatch import RequestContext
    from quorate.protocol.schema import Request

MAX_DEFERRED = 10_000
"""A broker has only a few requests in flight. Requests above this limit get NOT_CONTROLLER."""

Submit = Callable[["RequestContext", "Request", bool], Any]


class DeferredRequests:
    """A queue of requests in the order of their arrival."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[RequestContext, Request, bool, asyncio.Future[Any]]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether no more requests are accepted."""
        return len(self._queue) >= MAX_DEFERRED

    def add(self, ctx: RequestContext, request: Request, with_offset: bool) -> asyncio.Future[Any]:
        """Keeps a request. Returns the future of the outcome that `submit` will give."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((ctx, request, with_offset, answer))
        return answer

    def release(self, submit: Submit) -> None:
        """Submits all requests. Each one is handled or rejected according to the current leader."""
        queue, self._queue = self._queue, deque()
        for ctx, request, with_offset, answer in queue:
            if answer.done():  # the client has gone
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
    """Copies the outcome of one future to another."""

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
