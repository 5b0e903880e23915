"""Which replica of each partition is its preferred leader. Changing it moves no data.

The number of leaders is evened out like a flow: if a broker with too many leaders shares no
partition with one that has too few, leaderships are handed on through brokers between them. Then
the bytes of leaders are evened out, by exchanges where the numbers leave no choice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from quorate.planner.cluster import NONE
from quorate.planner.goals import Band, Goals
from quorate.planner.state import State

NEAR = 16
"""How many partitions of about the wanted size are looked at."""

PARTNERS = 8
"""How many partitions are tried in exchange for a larger one."""


class Leadership:
    """Meets the goals of leaders and of their bytes as far as the order of replicas can."""

    def __init__(self, state: State, goals: Goals, may_change: bytearray | None) -> None:
        """`may_change` has an entry for each partition, 0 if its leader stays. None is all of them."""
        self._state = state
        self._goals = goals
        count = len(state.replicas)
        self._followed: list[list[list[int]]] = [[[] for _ in range(count)] for _ in range(count)]
        """The partitions that a broker leads and another one follows, in ascending order. An entry may be
        out of date."""
        eligible = self._eligible = bytearray(count)
        for b in state.eligible:
            eligible[b] = 1
        for p in range(len(state.sizes)):
            leader = state.broker_of[state.leader_slot[p]]
            if (may_change is None or may_change[p]) and eligible[leader]:
                for slot in range(state.first[p], state.first[p + 1]):
                    b = state.broker_of[slot]
                    if b != leader and eligible[b]:
                        self._followed[leader][b].append(p)

    def run(self) -> None:
        self._even_out_counts()
        for followed in self._followed:
            for partitions in followed:
                partitions.sort()  # what was handed on is at the end
        self._even_out_bytes()

    # -- changes

    def _hand_over(self, p: int, b: int) -> None:
        """Gives the leadership of a partition to a broker that has a replica."""
        state = self._state
        slots = range(state.first[p], state.first[p + 1])
        for slot in slots:
            if state.broker_of[slot] == b:
                state.lead(slot)
                break
        for slot in slots:
            other = state.broker_of[slot]
            if other != b and self._eligible[other]:
                self._followed[b][other].append(p)

    def _leads(self, p: int, b: int) -> bool:
        return self._state.broker_of[self._state.leader_slot[p]] == b

    def _take(self, a: int, b: int, size: float) -> int:
        """Removes a partition of about a size that `a` leads and `b` follows from the index, or
        returns NONE."""
        partitions = self._followed[a][b]
        at = bisect_left(partitions, bisect_left(self._state.sizes, size))
        while partitions:
            p = partitions.pop(min(at, len(partitions) - 1))
            if self._leads(p, a):
                return p
        return NONE

    # -- the number of leaders

    def _even_out_counts(self) -> None:
        stuck: set[int] = set()
        band = self._goals.leaders
        leaders = self._state.leaders
        while True:
            worst = max(
                (b for b in self._state.eligible if b not in stuck and band.excess(b, leaders[b])),
                key=lambda b: (band.excess(b, leaders[b]), -b),
                default=NONE,
            )
            if worst == NONE:
                return
            path = self._path(worst, over=leaders[worst] > band.most[worst])
            if path:
                self._shift(path)
            else:
                stuck.add(worst)

    def _path(self, worst: int, *, over: bool) -> list[int]:
        """Returns the shortest path of brokers along which leaderships can go, or an empty list.

        It begins or ends with `worst`. Of equally long ones it is that of the broker with the
        fewest, or most, leaders.
        """
        band, leaders = self._goals.leaders, self._state.leaders
        came_from = {worst: NONE}
        level = [worst]
        while level:
            following = []
            for b in level:
                for other in self._state.eligible:
                    if other not in came_from and (
                        self._followed[b][other] if over else self._followed[other][b]
                    ):
                        came_from[other] = b
                        following.append(other)
            ends = [
                b for b in following if (leaders[b] < band.most[b] if over else leaders[b] > band.least[b])
            ]
            if ends:
                end = min(ends, key=lambda b: (leaders[b] if over else -leaders[b], b))
                path = [end]
                while came_from[path[-1]] != NONE:
                    path.append(came_from[path[-1]])
                return path[::-1] if over else path
            level = following
        return []

    def _shift(self, path: list[int]) -> None:
        """Hands leaderships on along a path of brokers.

        If it cannot, an edge of the path is gone afterwards.
        """
        state, band = self._state, self._goals.leaders
        first, last = path[0], path[-1]
        if state.leaders[first] > band.most[first]:
            count = min(state.leaders[first] - band.most[first], band.most[last] - state.leaders[last])
        else:
            count = min(state.leaders[first] - band.least[first], band.least[last] - state.leaders[last])
        for _ in range(max(1, count // 8)):
            size = self._wished_size(first, last)
            taken = []
            for a, b in pairwise(path):
                p = self._take(a, b, size)
                if p == NONE:
                    break
                taken.append((p, a, b))
            if len(taken) < len(path) - 1:
                for p, a, b in taken:
                    self._followed[a][b].append(p)
                return
            for p, _, b in taken:
                self._hand_over(p, b)

    def _wished_size(self, a: int, b: int) -> float:
        """Returns the bytes that a partition should have for both brokers to meet the goal of bytes too."""
        state, goals = self._state, self._goals
        bytes_over = state.leader_bytes[a] - goals.leader_bytes.share[a]
        bytes_under = goals.leader_bytes.share[b] - state.leader_bytes[b]
        if bytes_over <= 0 or bytes_under <= 0:
            return 0.0
        over = max(1.0, state.leaders[a] - goals.leaders.share[a])
        under = max(1.0, goals.leaders.share[b] - state.leaders[b])
        return min(bytes_over / over, bytes_under / under)

    # -- the bytes of leaders

    def _even_out_bytes(self) -> None:
        state, band = self._state, self._goals.leader_bytes
        stuck: set[int] = set()
        barren: set[tuple[int, int]] = set()
        while True:
            worst, most = NONE, 0.0
            for b in state.eligible:
                excess = band.excess(b, state.leader_bytes[b]) / max(1.0, band.share[b])
                if b not in stuck and excess > most:
                    worst, most = b, excess
            if worst == NONE:
                return
            over = state.leader_bytes[worst] > band.most[worst]
            others = [b for b in state.eligible if b != worst]
            others.sort(key=lambda b: (state.leader_bytes[b], b), reverse=not over)
            for other in others:
                pair = (worst, other) if over else (other, worst)
                if pair in barren:
                    continue
                if self._shift_bytes(band, *pair):
                    break
                barren.add(pair)
            else:
                stuck.add(worst)

    def _shift_bytes(self, band: Band, a: int, b: int) -> bool:
        """Hands one leadership over, or exchanges two."""
        state, counts = self._state, self._goals.leaders
        loads = state.leader_bytes
        if loads[a] > band.most[a]:
            wanted = min(loads[a] - band.most[a], band.most[b] - loads[b])
        else:
            wanted = min(loads[a] - band.least[a], band.least[b] - loads[b])
        if wanted <= 0:
            return False
        if state.leaders[a] > counts.least[a] and state.leaders[b] < counts.most[b]:
            for p in self._around(a, b, wanted):
                if band.change(loads, a, b, state.sizes[p]) < 0:
                    self._hand_over_sorted(p, a, b)
                    return True
        for back in self._smallest(b, a):
            for p in self._around(a, b, wanted + state.sizes[back]):
                if band.change(loads, a, b, state.sizes[p] - state.sizes[back]) < 0:
                    self._hand_over_sorted(p, a, b)
                    self._hand_over_sorted(back, b, a)
                    return True
        return False

    def _hand_over_sorted(self, p: int, a: int, b: int) -> None:
        """Gives a leadership away and keeps the lists in order."""
        at = bisect_left(self._followed[a][b], p)
        del self._followed[a][b][at]
        self._hand_over(p, b)
        state = self._state
        for slot in range(state.first[p], state.first[p + 1]):
            other = state.broker_of[slot]
            if other != b and self._eligible[other]:
                partitions = self._followed[b][other]
                partitions.insert(bisect_left(partitions, p, 0, len(partitions) - 1), partitions.pop())

    def _smallest(self, a: int, b: int) -> Iterator[int]:
        """Yields some of the smallest partitions that `a` leads and `b` follows."""
        found = 0
        for p in self._followed[a][b]:
            if self._leads(p, a):
                yield p
                found += 1
                if found == PARTNERS:
                    return

    def _around(self, a: int, b: int, size: int) -> Iterator[int]:
        """Yields partitions that `a` leads and `b` follows in order of how near their bytes are to a size."""
        partitions, sizes = self._followed[a][b], self._state.sizes
        above = bisect_left(partitions, bisect_left(sizes, size))
        below = above - 1
        for _ in range(NEAR):
            if below < 0 and above >= len(partitions):
                return
            if below < 0 or (
                above < len(partitions) and sizes[partitions[above]] - size < size - sizes[partitions[below]]
            ):
                p = partitions[above]
                above += 1
            else:
                p = partitions[below]
                below -= 1
            if self._leads(p, a):
                yield p
