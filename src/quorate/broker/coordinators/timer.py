"""The timers of a shard, as data (`CoordinatorTimer` in Kafka). The shard sets them, and the runtime
reads the next deadline.

A timer has an event, not a callback, so that the state of a coordinator can be printed, compared and
simulated.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

E = TypeVar("E")


class CoordinatorTimer(Generic[E]):
    """Deadlines in monotonic seconds, by key.

    Cancelled and replaced entries stay in the heap until they are at its top. The heap is rebuilt when
    more than half of its entries are stale. Therefore a heartbeat of a member costs O(log n), and memory
    does not grow.
    """

    __slots__ = ("_heap", "_live", "_sequence")

    def __init__(self) -> None:
        self._live: dict[Hashable, tuple[float, int, E]] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._live

    def set(self, key: Hashable, deadline: float, event: E) -> None:
        """Sets or replaces the deadline of `key`."""
        self._sequence += 1
        self._live[key] = (deadline, self._sequence, event)
        heapq.heappush(self._heap, (deadline, self._sequence, key))
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._live):
            self._heap = [(at, sequence, k) for k, (at, sequence, _) in self._live.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: Hashable) -> None:
        """Removes the deadline of `key`, if it has one."""
        self._live.pop(key, None)

    def next_deadline(self) -> float | None:
        """The earliest deadline, or None."""
        while self._heap:
            deadline, sequence, key = self._heap[0]
            live = self._live.get(key)
            if live is not None and live[1] == sequence:
                return deadline
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> Iterator[E]:
        """Removes and yields the events whose deadline has passed, in the order of their deadlines. Includes
        those that are set during the iteration."""
        while True:
            deadline = self.next_deadline()
            if deadline is None or deadline > now:
                return
            _, _, key = heapq.heappop(self._heap)
            yield self._live.pop(key)[2]
