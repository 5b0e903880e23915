"""The requests that wait for a partition: a Fetch for data, a Produce with acks=all for its replicas, a
DeleteRecords for the low watermark of the followers.

Nothing polls. A waiting request is registered with the partitions that it waits for and has one timer;
an append or a moved watermark wakes it. Its answer is a future, which the connection awaits. If the
connection is lost, a Fetch is cancelled (`quorate.net.dispatch.CANCELLABLE_APIS`); the other requests wait
until they complete, because their effect does not depend on the reader of the response.

This module does not import `Partition`, but declares the part it needs as `HasDelayedOperations`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Protocol

from quorate.protocol.errors import ErrorCode


class DelayedOperations:
    """The requests that wait for one partition, by what they wait for (`DelayedOperations` in Kafka)."""

    __slots__ = ("_deletions", "appends", "fetches")

    def __init__(self) -> None:
        self.fetches: dict[DelayedFetch | Wakeup, None] = {}
        """In order of arrival; a dictionary, because a Fetch that ends early is removed from the middle."""
        self.appends: deque[tuple[int, DelayedAcks, int]] = deque()
        """(offset that the high watermark must reach, request, index of the append in it), by offset."""
        self._deletions: list[tuple[int, DelayedAcks, int]] = []

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of waiting fetches, appends and deletions."""
        return len(self.fetches), len(self.appends), len(self._deletions)

    def requests(self) -> Iterable[tuple[str, Iterable[object]]]:
        """The waiting requests by what they wait for, each at least once."""
        yield "Fetch", self.fetches
        yield "Produce", [request for _, request, _ in self.appends if not request.is_done]
        yield "DeleteRecords", [request for _, request, _ in self._deletions if not request.is_done]

    @property
    def has_deletions(self) -> bool:
        """Whether a DeleteRecords waits for the low watermark."""
        return bool(self._deletions)

    def add_append(self, required: int, request: DelayedAcks, index: int) -> None:
        """Calls `request.acked(index, ...)` when the high watermark reaches `required`."""
        appends = self.appends
        while appends and appends[0][1].is_done:  # timed out
            appends.popleft()
        entry = (required, request, index)
        if appends and appends[-1][0] > required:
            # A producer's retry is answered with the offsets of its first attempt.
            appends.insert(bisect_right(appends, required, key=itemgetter(0)), entry)
        else:
            appends.append(entry)

    def add_deletion(self, required: int, request: DelayedAcks, index: int) -> None:
        """Calls `request.acked(index, ...)` when the low watermark reaches `required`."""
        self._deletions.append((required, request, index))

    def wake_fetches(self) -> None:
        """Lets every waiting Fetch check whether it has enough to answer."""
        for fetch in self.fetches:
            fetch.wake()

    def complete_appends(self, high_watermark: int, error: ErrorCode) -> None:
        """Settles the appends below the high watermark with `error` (NONE: acknowledged)."""
        appends = self.appends
        while appends and appends[0][0] <= high_watermark:
            _, request, index = appends.popleft()
            request.acked(index, error)

    def complete_deletions(self, low_watermark: int) -> None:
        """Settles the deletions below the low watermark."""
        deletions = self._deletions
        self._deletions = [entry for entry in deletions if entry[0] > low_watermark]
        for required, request, index in deletions:
            if required <= low_watermark:
                request.acked(index, ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """Ends appends and deletions with `error`, because the replica has another role or is gone.
        Fetches are woken and find the reason themselves."""
        appends, self.appends = self.appends, deque()
        deletions, self._deletions = self._deletions, []
        for _, request, index in (*appends, *deletions):
            request.acked(index, error)
        self.wake_fetches()


class HasDelayedOperations(Protocol):
    """The only member of a `Partition` that a waiting request uses."""

    @property
    def delayed_operations(self) -> DelayedOperations: ...


class DelayedAcks:
    """Waits until each of several appends is on enough replicas (acks=all), or each of several
    deletions is done by the live followers.

    `settle(index, error)` is called once for each of them: with NONE, with the error that ended the
    wait, or with REQUEST_TIMED_OUT. Then `finish()` makes the value of the future.
    """

    __slots__ = ("_count", "_finish", "_loop", "_open", "_settle", "_timer", "future")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        waits: Sequence[tuple[HasDelayedOperations, int]],
        timeout_s: float | None,
        settle: Callable[[int, ErrorCode], None],
        finish: Callable[[], Any],
        count: int = 0,
    ) -> None:
        """`waits` are (partition, offset that its high watermark must reach). Without them, `count` is
        the number of deletions that the caller registers with their partitions.

        Without `timeout_s` more appends may be added, and the request does not finish before `start`.
        """
        self.future: asyncio.Future[Any] = loop.create_future()
        self._loop = loop
        self._count = len(waits) or count
        self._open = set(range(self._count))
        self._settle = settle
        self._finish = finish
        self._timer = None if timeout_s is None else loop.call_later(timeout_s, self._expire)
        for index, (partition, required) in enumerate(waits):
            partition.delayed_operations.add_append(required, self, index)

    def add(self, partition: HasDelayedOperations, required: int) -> None:
        """Adds an append to wait for. Not allowed after `start`."""
        index, self._count = self._count, self._count + 1
        self._open.add(index)
        partition.delayed_operations.add_append(required, self, index)

    def add_deletion(self, partition: HasDelayedOperations, required: int) -> None:
        """Adds a deletion to wait for. Not allowed after `start`."""
        index, self._count = self._count, self._count + 1
        self._open.add(index)
        partition.delayed_operations.add_deletion(required, self, index)

    def start(self, timeout_s: float) -> None:
        """Starts the timeout after the last append or deletion has been added."""
        self._timer = self._loop.call_later(timeout_s, self._expire)
        if not self._open:
            self._complete()

    def acked(self, index: int, error: ErrorCode) -> None:
        """Settles one append or deletion. Calls after its first one have no effect."""
        if index not in self._open:
            return
        self._open.discard(index)
        self._settle(index, error)
        if not self._open and self._timer is not None:
            self._complete()

    @property
    def is_done(self) -> bool:
        """Whether the request no longer waits for anything."""
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
            except Exception as error:  # a bug ends only this request, not the append that completed it
                self.future.set_exception(error)


class DelayedFetch:
    """Waits until `ready()` is true, for at most `max_wait_s`. Then `finish()` makes the answer."""

    __slots__ = ("_expired", "_finish", "_loop", "_partitions", "_ready", "_timer", "_woken", "future")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Sequence[HasDelayedOperations],
        max_wait_s: float,
        ready: Callable[[], bool],
        finish: Callable[[], Any],
        expired: Callable[[], None] | None = None,
    ) -> None:
        """`expired()` is called before `finish` if `max_wait_s` has passed."""
        self.future: asyncio.Future[Any] = loop.create_future()
        self._loop = loop
        self._expired = expired
        self._partitions = list(partitions)
        self._ready = ready
        self._finish = finish
        self._woken = False
        for partition in partitions:
            partition.delayed_operations.fetches[self] = None
        self._timer = loop.call_later(max_wait_s, self._expire)
        self.future.add_done_callback(self._released)

    def join(self, partition: HasDelayedOperations) -> None:
        """Waits for one more partition, and checks `ready()`."""
        if not self.future.done():
            partition.delayed_operations.fetches[self] = None
            self._partitions.append(partition)
            self.wake()

    def wake(self) -> None:
        """Schedules a check of `ready()`. All appends of one turn of the event loop cause one check."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._woken = False
        if not self.future.done() and self._ready():
            self._complete()

    def _expire(self) -> None:
        if not self.future.done():
            if self._expired is not None:
                self._expired()
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
            partition.delayed_operations.fetches.pop(self, None)
        self._partitions = []


class Wakeup:
    """Lets a Fetch of very many partitions wait for an append to any of them. The Fetch registers itself,
    checks and waits in several turns of the event loop."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def register(self, partition: HasDelayedOperations) -> None:
        """Is woken by the partition."""
        partition.delayed_operations.fetches[self] = None

    def release(self, partition: HasDelayedOperations) -> None:
        """Is no longer woken by the partition."""
        partition.delayed_operations.fetches.pop(self, None)

    def join(self, partition: HasDelayedOperations) -> None:
        """Ends `wait`, because of a partition that is not registered."""
        self._event.set()

    def wake(self) -> None:
        """Ends `wait`, now or when it is called."""
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        """Waits until a partition has called `wake`. Returns false if none did within `timeout_s`."""
        try:
            await asyncio.wait_for(self._event.wait(), timeout_s)
        except TimeoutError:
            return False
        self._event.clear()
        return True
