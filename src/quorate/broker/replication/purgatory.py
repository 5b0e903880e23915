"""Requests that wait: a Fetch for data, a Produce for its replicas, DeleteRecords for the followers'
low watermark.

Nothing polls. A waiting request hangs on the partitions that it waits for, and on one timer; an append
or a moved watermark wakes it. It ends in a future, which the connection awaits; a connection that goes
away cancels the future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from quorate.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from quorate.broker.replication.partition import Partition


class DelayedAcks:
    """Waits until each of several appends is on enough replicas (acks=all).

    `settle(index, error)` is told once for every append: with NONE, with the error that ended the wait,
    or with REQUEST_TIMED_OUT; `finish()` then makes the future's value.
    """

    __slots__ = ("_count", "_finish", "_loop", "_open", "_settle", "_timer", "future")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        waits: Sequence[tuple[Partition, int]],
        timeout_s: float | None,
        settle: Callable[[int, ErrorCode], None],
        finish: Callable[[], Any],
        count: int = 0,
    ) -> None:
        """`waits`: (partition, offset that its high watermark must reach); or `count` of what the
        caller registers.

        Without `timeout_s` more appends may be added, and nothing is finished before `start`.
        """
        self.future: asyncio.Future[Any] = loop.create_future()
        self._loop = loop
        self._count = len(waits) or count
        self._open = set(range(self._count))
        self._settle = settle
        self._finish = finish
        self._timer = None if timeout_s is None else loop.call_later(timeout_s, self._expire)
        for index, (partition, required) in enumerate(waits):
            partition.add_ack_waiter(required, self, index)

    def add(self, partition: Partition, required: int) -> None:
        """One more append to wait for; only before `start`."""
        index, self._count = self._count, self._count + 1
        self._open.add(index)
        partition.add_ack_waiter(required, self, index)

    def start(self, timeout_s: float) -> None:
        """All appends are known: the time runs."""
        self._timer = self._loop.call_later(timeout_s, self._expire)
        if not self._open:
            self._complete()

    def acked(self, index: int, error: ErrorCode) -> None:
        """One append is settled."""
        if index not in self._open:
            return
        self._open.discard(index)
        self._settle(index, error)
        if not self._open and self._timer is not None:
            self._complete()

    @property
    def is_done(self) -> bool:
        return (not self._open and self._timer is not None) or self.future.done()

    def _expire(self) -> None:
        for index in sorted(self._open):
            self._settle(index, ErrorCode.REQUEST_TIMED_OUT)
        self._open.clear()
        self._complete()

    def _complete(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        if not self.future.done():
            try:
                self.future.set_result(self._finish())
            except Exception as error:  # a bug must end this request only, not the produce of another client
                self.future.set_exception(error)


class DelayedFetch:
    """Waits until `ready()` says so, at most `max_wait_s`; then `finish()` makes the answer."""

    __slots__ = ("_finish", "_loop", "_partitions", "_ready", "_timer", "_woken", "future")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Sequence[Partition],
        max_wait_s: float,
        ready: Callable[[], bool],
        finish: Callable[[], Any],
    ) -> None:
        self.future: asyncio.Future[Any] = loop.create_future()
        self._loop = loop
        self._partitions = partitions
        self._ready = ready
        self._finish = finish
        self._woken = False
        for partition in partitions:
            partition.add_fetch_waiter(self)
        self._timer = loop.call_later(max_wait_s, self._complete)
        self.future.add_done_callback(self._released)

    def wake(self) -> None:
        """Something changed in one of the partitions; looked at once per turn of the loop, whatever
        number of appends a turn brings."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._woken = False
        if not self.future.done() and self._ready():
            self._complete()

    def _complete(self) -> None:
        if not self.future.done():
            try:
                self.future.set_result(self._finish())
            except Exception as error:
                self.future.set_exception(error)
            self._release()

    def _released(self, _future: asyncio.Future[Any]) -> None:
        self._release()

    def _release(self) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.remove_fetch_waiter(self)
        self._partitions = ()
