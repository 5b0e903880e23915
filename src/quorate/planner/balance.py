"""Moves of replicas until the load of each broker is in its band, goal by goal.

The broker that is farthest outside of its band gives replicas to, or gets them from, the ones at
the other end. Among the replicas of a broker those are tried first whose bytes are what both
brokers need. So the goal of bytes is mostly met with the moves that the goal of replicas needs
anyway.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from quorate.planner.cluster import NONE
from quorate.planner.goals import Band, Goals
from quorate.planner.state import State

NEAR = 32
"""How many replicas of about the wanted size are looked at for a move between two brokers."""

FAR = 128
"""The same in the second round, for brokers for which the first one found none."""

PARTNERS = 8
"""How many of the smallest replicas of a broker are tried in exchange for a larger one."""

Attempt = Callable[[int, int], bool]
"""Moves replicas from one broker to another. Returns whether there were any to move."""


class Balancer:
    """Meets the goals of capacity, replicas, bytes and topics as far as moves and exchanges of two
    replicas can."""

    def __init__(self, state: State, goals: Goals) -> None:
        self._state = state
        self._goals = goals
        self._depth = NEAR

    def run(self) -> None:
        state, goals = self._state, self._goals
        self.relieve()
        for self._depth in (NEAR, FAR):
            self._even_out(state.replicas, goals.replicas, self._move_count)
            self._even_out(state.bytes, goals.bytes, self._move_bytes)
        self._spread_topics()
        self._return_home()

    # -- pairs of brokers

    def _even_out(self, loads: list[int], band: Band, attempt: Attempt) -> None:
        """Repeats an attempt with the brokers that need it most, until none is left or possible."""
        stuck: set[int] = set()
        barren: set[tuple[int, int]] = set()
        while (worst := self._worst(loads, band, stuck)) != NONE:
            over = loads[worst] > band.most[worst]
            for other in self._counterparts(loads, band, worst, over=over):
                pair = (worst, other) if over else (other, worst)
                if pair in barren:
                    continue
                if attempt(*pair):
                    break
                barren.add(pair)
            else:
                stuck.add(worst)

    def _worst(self, loads: Sequence[int], band: Band, stuck: set[int]) -> int:
        """Returns the broker that is farthest outside of its band in relation to its share, or NONE."""
        receives = self._state.receives
        found, most = NONE, 0.0
        for b in self._state.eligible:
            excess = band.excess(b, loads[b]) / max(band.share[b], 1e-9)
            if excess > most and b not in stuck and (receives[b] or loads[b] > band.most[b]):
                found, most = b, excess
        return found

    def _counterparts(self, loads: Sequence[int], band: Band, b: int, *, over: bool) -> list[int]:
        """Returns the brokers that can take from, or give to, a broker: those with the least, or most."""
        state = self._state

        def fill(other: int) -> tuple[float, int]:
            return loads[other] / max(band.share[other], 1e-9), other

        if over:
            return sorted(
                [o for o in state.eligible if o != b and state.receives[o] and loads[o] < band.most[o]],
                key=fill,
            )
        return sorted(
            [o for o in state.eligible if o != b and loads[o] > band.least[o]], key=fill, reverse=True
        )

    # -- capacity

    def relieve(self) -> None:
        """Moves replicas away from brokers that have more bytes than room."""
        self._depth = FAR
        for a in self._state.eligible:
            while self._goals.overflow(a, self._state.bytes[a]) and self._relieve_once(a):
                pass

    def _relieve_once(self, a: int) -> bool:
        state, share = self._state, self._goals.bytes.share
        others = [b for b in state.eligible if b != a and state.receives[b]]
        others.sort(key=lambda b: (state.bytes[b] / max(share[b], 1.0), b))
        for b in others:
            for slot in self._around(a, self._goals.overflow(a, state.bytes[a])):
                if self._size(slot) and self._can_move(slot, b):
                    state.move(slot, b)
                    return True
        return False

    # -- the goal of replicas

    def _move_count(self, a: int, b: int) -> bool:
        state, band = self._state, self._goals.replicas
        loads = state.replicas
        if loads[a] > band.most[a]:
            count = min(loads[a] - band.most[a], band.most[b] - loads[b])
        else:
            count = min(loads[a] - band.least[a], band.least[b] - loads[b])
        moved = 0
        for _ in range(max(1, count // 8)):  # not all at once: others may need the same brokers more
            slot = self._slot_of_size(a, b, self._wished_size(a, b))
            if slot == NONE:
                break
            state.move(slot, b)
            moved += 1
        return moved > 0

    def _wished_size(self, a: int, b: int) -> float:
        """Returns the bytes that a replica should have for both brokers to meet the goal of bytes too."""
        state, goals = self._state, self._goals
        surplus = (
            state.bytes[a] - goals.bytes.share[a],
            state.replicas[a] - goals.replicas.share[a],
        )
        deficit = (
            goals.bytes.share[b] - state.bytes[b],
            goals.replicas.share[b] - state.replicas[b],
        )
        if surplus[0] <= 0 or deficit[0] <= 0:
            return 0.0
        return min(surplus[0] / max(1.0, surplus[1]), deficit[0] / max(1.0, deficit[1]))

    def _slot_of_size(self, a: int, b: int, size: float) -> int:
        """Returns a slot of about a size that can move from `a` to `b`, or NONE."""
        state = self._state
        counts, brokers = state.topic_counts, len(state.replicas)
        best, best_spread = NONE, 0
        for slot in self._around(a, size):
            if not self._can_move(slot, b):
                continue
            topic = state.topic_of[state.partition_of[slot]] * brokers
            spread = counts[topic + a] - counts[topic + b]
            if spread > 0:
                return slot
            if best == NONE or spread > best_spread:
                best, best_spread = slot, spread
        return best

    def _around(self, b: int, size: float) -> Iterator[int]:
        """Yields slots of a broker in order of how near their bytes are to a size."""
        state = self._state
        slots, sizes, partition_of = state.slots_on[b], state.sizes, state.partition_of
        above = bisect_left(slots, state.first_slot_of_size(size))
        below = above - 1
        for _ in range(self._depth):
            if above >= len(slots):
                if below < 0:
                    return
                nearer_above = False
            elif below < 0:
                nearer_above = True
            else:
                nearer_above = (
                    sizes[partition_of[slots[above]]] - size < size - sizes[partition_of[slots[below]]]
                )
            if nearer_above:
                yield slots[above]
                above += 1
            else:
                yield slots[below]
                below -= 1

    def _can_move(self, slot: int, b: int, *, freed: int = 0) -> bool:
        return self._goals.obstacle(slot, b, freed=freed) is None

    # -- the goal of bytes

    def _move_bytes(self, a: int, b: int) -> bool:
        state, goals = self._state, self._goals
        band, loads = goals.bytes, state.bytes
        if loads[a] > band.most[a]:
            wanted = min(loads[a] - band.most[a], band.most[b] - loads[b])
        else:
            wanted = min(loads[a] - band.least[a], band.least[b] - loads[b])
        counts = state.replicas
        if counts[a] > goals.replicas.least[a] and counts[b] < goals.replicas.most[b]:
            for slot in self._useful(a, b, 0, wanted):
                if self._can_move(slot, b):
                    state.move(slot, b)
                    return True
        return self._exchange(a, b, wanted)

    def _exchange(self, a: int, b: int, wanted: int) -> bool:
        """Exchanges a replica on `a` for a smaller one on `b`, so that about `wanted` bytes go to `b`."""
        state = self._state
        if not state.receives[a]:
            return False
        for back in state.slots_on[b][:PARTNERS]:
            size = self._size(back)
            for slot in self._useful(a, b, size, wanted):
                if (
                    state.partition_of[slot] != state.partition_of[back]
                    and self._can_move(slot, b, freed=size)
                    and self._can_move(back, a, freed=self._size(slot))
                ):
                    state.move(slot, b)
                    state.move(back, a)
                    return True
        return False

    def _useful(self, a: int, b: int, base: int, wanted: int) -> Iterator[int]:
        """Yields slots on `a` that bring the bytes of both brokers nearer to their bands if they go
        to `b`, while `base` bytes come back. Those come first with which about `wanted` bytes are
        transferred.

        The gain is convex in the bytes that are transferred: above the first that does not gain none does.
        """
        state = self._state
        slots, sizes, partition_of = state.slots_on[a], state.sizes, state.partition_of
        above = bisect_left(slots, state.first_slot_of_size(base + wanted))
        below = above - 1
        end = len(slots)
        for _ in range(self._depth):
            more = sizes[partition_of[slots[above]]] - base if above < end else 0
            if above < end and self._change(a, b, more) >= 0:
                end = above
            less = sizes[partition_of[slots[below]]] - base if below >= 0 else 0
            if above < end and (less <= 0 or more - wanted < wanted - less):
                yield slots[above]
                above += 1
            elif less > 0 and self._change(a, b, less) < 0:
                yield slots[below]
                below -= 1
            else:
                return

    def _size(self, slot: int) -> int:
        return self._state.sizes[self._state.partition_of[slot]]

    def _change(self, a: int, b: int, size: int) -> int:
        """Returns what a transfer of bytes adds to the squared excess of two brokers."""
        return self._goals.bytes.change(self._state.bytes, a, b, size)

    # -- the goal of topics

    def _spread_topics(self) -> None:
        """Moves replicas of topics that have too many on a broker, or exchanges them for others."""
        state, goals = self._state, self._goals
        brokers = len(state.replicas)
        crowds: dict[tuple[int, int], list[int]] = {}
        for b in state.eligible:
            for slot in state.slots_on[b]:
                topic = state.topic_of[state.partition_of[slot]]
                if state.topic_counts[topic * brokers + b] > goals.topic_most(topic, b):
                    crowds.setdefault((topic, b), []).append(slot)
        for (topic, b), slots in sorted(crowds.items()):
            for slot in slots:
                if goals.topic_excess(topic, b) == 0:
                    break
                self._spread(slot, topic, b)

    def _spread(self, slot: int, topic: int, a: int) -> None:
        """Moves one replica away, to a broker with few replicas of the topic."""
        state, goals = self._state, self._goals
        at = topic * len(state.replicas)
        others = [
            b
            for b in state.eligible
            if b != a and state.receives[b] and state.topic_counts[at + b] < goals.topic_most(topic, b)
        ]
        others.sort(key=lambda b: (state.topic_counts[at + b], b))
        size = self._size(slot)
        for b in others[:PARTNERS]:
            if (
                state.replicas[a] > goals.replicas.least[a]
                and state.replicas[b] < goals.replicas.most[b]
                and self._change(a, b, size) <= 0
                and self._can_move(slot, b)
            ):
                state.move(slot, b)
                return
            if state.receives[a] and self._exchange_topics(slot, a, b, size):
                return

    def _exchange_topics(self, slot: int, a: int, b: int, size: int) -> bool:
        """Exchanges a replica for one of about its size of another topic."""
        state, goals = self._state, self._goals
        topic_of, partition_of = state.topic_of, state.partition_of
        for back in self._around(b, size):
            other = topic_of[partition_of[back]]
            if (
                other != topic_of[partition_of[slot]]
                and state.topic_counts[other * len(state.replicas) + a] < goals.topic_most(other, a)
                and self._change(a, b, size - self._size(back)) <= 0
                and self._can_move(slot, b, freed=self._size(back))
                and self._can_move(back, a, freed=size)
            ):
                state.move(slot, b)
                state.move(back, a)
                return True
        return False

    # -- the least bytes

    def _return_home(self) -> None:
        """Undoes moves that are no longer necessary after later ones, the largest first."""
        state, goals = self._state, self._goals
        counts = goals.replicas
        home, broker_of = state.home, state.broker_of
        eligible = set(state.eligible)
        for slot in range(len(broker_of) - 1, -1, -1):
            a, b = broker_of[slot], home[slot]
            if a == b or b not in eligible or a not in eligible:
                continue
            topic = state.topic_of[state.partition_of[slot]]
            if (
                counts.excess(a, state.replicas[a] - 1) <= counts.excess(a, state.replicas[a])
                and counts.excess(b, state.replicas[b] + 1) <= counts.excess(b, state.replicas[b])
                and self._change(a, b, self._size(slot)) <= 0
                and state.topic_counts[topic * len(state.replicas) + b] < goals.topic_most(topic, b)
                and self._can_move(slot, b)
            ):
                state.move(slot, b)
