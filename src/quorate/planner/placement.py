"""Brokers for the replicas that have none, or that must leave the one that they are on."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from quorate.planner.cluster import NONE, PlanError
from quorate.planner.goals import Goals
from quorate.planner.state import UNRACKED, State

CHOICES = 6
"""Of how many of the emptiest brokers the one with the fewest replicas of the topic is taken."""


def required_slots(state: State, *, mend_racks: bool, goals: Goals) -> list[int]:
    """Returns the slots that need another broker, the largest first.

    These are the slots without a broker and those on drained brokers, and with `mend_racks` those by which a
    partition has too many replicas in a rack.
    """
    drained = state.drained
    found = [slot for slot, b in enumerate(state.broker_of) if b == NONE or drained[b]]
    if mend_racks:
        taken = set(found)
        for p in range(len(state.sizes)):
            for _ in range(goals.crowded(p)):
                slot = _crowding_slot(state, goals, p, taken)
                if slot != NONE:
                    found.append(slot)
                    taken.add(slot)
    return sorted(found, reverse=True)


def _crowding_slot(state: State, goals: Goals, p: int, taken: set[int]) -> int:
    """Returns the slot whose move mends a crowded rack: the last that does not lead, on an eligible broker."""
    limit = goals.rack_limit[state.factor(p)]
    slots = [slot for slot in range(state.first[p], state.first[p + 1]) if slot not in taken]
    racks = [state.rack_of[state.broker_of[slot]] for slot in slots]
    crowding = [
        slot
        for slot, rack in zip(slots, racks, strict=True)
        if rack != UNRACKED and racks.count(rack) > limit and state.broker_of[slot] in state.eligible
    ]
    return max(crowding, key=lambda slot: (slot != state.leader_slot[p], slot), default=NONE)


class Placement:
    """Chooses brokers one slot at a time. Eligible brokers are in a heap for each rack, the emptiest first."""

    def __init__(self, state: State, goals: Goals) -> None:
        self._state = state
        self._goals = goals
        self._heaps: dict[int, list[tuple[float, int]]] = {}
        for b in state.eligible:
            heappush(self._heaps.setdefault(state.rack_of[b], []), (self._fill(b), b))
        self._choices = max(1, CHOICES // max(1, len(self._heaps)))

    def _fill(self, b: int) -> float:
        """Returns how full a broker is: its replicas and bytes in relation to its shares."""
        state, goals = self._state, self._goals
        return state.replicas[b] / max(1.0, goals.replicas.share[b]) + state.bytes[b] / max(
            1.0, goals.bytes.share[b]
        )

    def place(self, slots: Iterable[int]) -> None:
        """Moves each slot to a broker. Raises PlanError if no broker can have a replica."""
        state = self._state
        counts, brokers = state.topic_counts, len(state.replicas)
        for slot in slots:
            p = state.partition_of[slot]
            topic = state.topic_of[p] * brokers
            held = {state.broker_of[other] for other in range(state.first[p], state.first[p + 1])}
            best: tuple[int, float, int] | None = None
            for rack in self._racks(slot, p):
                for fill, b in self._emptiest(rack, held, state.sizes[p]):
                    key = (counts[topic + b], fill, b)
                    if best is None or key < best:
                        best = key
            b = best[2] if best is not None else self._last_resort(slot, p, held)
            if b != NONE:
                state.move(slot, b)
                self._refresh(b)

    def _racks(self, slot: int, p: int) -> list[int]:
        """Returns the racks that may have one more replica of a partition."""
        limit = self._goals.rack_limit[self._state.factor(p)]
        return [
            rack for rack in self._heaps if rack == UNRACKED or self._state.in_rack(p, rack, slot) < limit
        ]

    def _emptiest(self, rack: int, held: set[int], size: int) -> list[tuple[float, int]]:
        """Returns the emptiest brokers of a rack that have no replica of the partition, and room."""
        heap = self._heaps[rack]
        popped: list[tuple[float, int]] = []
        found: list[tuple[float, int]] = []
        while heap and len(found) < self._choices:
            entry = heappop(heap)
            popped.append(entry)
            if entry[1] not in held and self._goals.fits(entry[1], size):
                found.append(entry)
        for entry in popped:
            heappush(heap, entry)
        return found

    def _refresh(self, b: int) -> None:
        """Corrects the entry of a broker, which is among the first few of its heap."""
        heap = self._heaps[self._state.rack_of[b]]
        popped = []
        while heap:
            entry = heappop(heap)
            if entry[1] == b:
                break
            popped.append(entry)
        for entry in popped:
            heappush(heap, entry)
        heappush(heap, (self._fill(b), b))

    def _last_resort(self, slot: int, p: int, held: set[int]) -> int:
        """Returns the broker for a slot for which no rack has a place, or NONE if the slot can stay."""
        state, goals = self._state, self._goals
        old = state.broker_of[slot]
        if old != NONE and not state.drained[old]:
            return NONE
        name = f"{state.cluster.topics[state.topic_of[p]]}-{state.cluster.index_of[p]}"
        free = [b for b in state.eligible if b not in held]
        if not free:
            raise PlanError(
                f"partition {name} is to have {state.factor(p)} replicas, but there are only "
                f"{len(state.eligible)} brokers that can have one"
            )
        size = state.sizes[p]
        with_room = [b for b in free if goals.fits(b, size)]
        if not with_room:
            raise PlanError(
                f"no broker that could have a replica of partition {name} has room for its {size:,} bytes"
            )
        return min(
            with_room,
            key=lambda b: (
                0 if state.rack_of[b] == UNRACKED else state.in_rack(p, state.rack_of[b], slot),
                self._fill(b),
                b,
            ),
        )
