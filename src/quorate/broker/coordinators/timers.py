"""Deadlines of a coordinator, as data: the core sets them, the driver only asks which one comes next.

A timer carries a plain event (what fell due), never a callback, so that the whole state of a
coordinator can be printed, compared and simulated.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

E = TypeVar("E")


class Timers(Generic[E]):
    """Keyed deadlines in monotonic seconds; setting a key again replaces its deadline.

    Cancelled and replaced entries stay in the heap until they surface, and the heap is rebuilt when
    more than half of it is stale: a heartbeat every 3 s for each member must cost O(log n) and no
    growing memory.
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
        """Arms `key` for `deadline`, instead of what it was armed for before."""
        self._sequence += 1
        self._live[key] = (deadline, self._sequence, event)
        heapq.heappush(self._heap, (deadline, self._sequence, key))
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._live):
            self._heap = [(at, sequence, k) for k, (at, sequence, _) in self._live.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: Hashable) -> None:
        """Disarms `key`; no error when it is not armed."""
        self._live.pop(key, None)

    def next_deadline(self) -> float | None:
        """The earliest armed deadline."""
        while self._heap:
            deadline, sequence, key = self._heap[0]
            live = self._live.get(key)
            if live is not None and live[1] == sequence:
                return deadline
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> Iterator[E]:
        """Disarms and yields, in order of their deadlines, the events due at `now`; what a consumer
        arms meanwhile is seen too.
        """
        while True:
            deadline = self.next_deadline()
            if deadline is None or deadline > now:
                return
            _, _, key = heapq.heappop(self._heap)
            yield self._live.pop(key)[2]
