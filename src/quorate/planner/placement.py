"""Brokers for the replicas that have none, or that must leave the one that they are on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from quorate.planner.cluster import NONE, NoPlaceError, Unplaced
from quorate.planner.goals import Goals
from quorate.planner.state import UNRACKED, State

CHOICES = 6
"""Of how many of the emptiest brokers the one with the fewest replicas of the topic is taken."""


def required_slots(state: State, *, mend_racks: bool, goals: Goals, fixed: bytearray | None) -> list[int]:
    """Returns the slots that need another broker, the largest first.

    These are the slots without a broker and those on drained brokers, and with `mend_racks` those by which a
    partition has too many replicas in a rack. `fixed` has an entry for each partition, 1 if its racks stay.
    """
    drained = state.drained
    found = [slot for slot, b in enumerate(state.broker_of) if b == NONE or drained[b]]
    if mend_racks:
        taken = set(found)
        for p in range(len(state.sizes)):
            if fixed is not None and fixed[p]:
                continue
            for _ in range(goals.crowded(p)):
                slot = _crowding_slot(state, goals, p, taken)
                if slot != NONE:
                    found.append(slot)
                    taken.add(slot)
    return sorted(found, reverse=True)


def _crowding_slot(state: State, goals: Goals, p: int, taken: set[int]) -> int:
    """Returns the slot whose move mends a crowded rack: the last that does not lead, on an eligible
    broker."""
    limit = goals.limit_of(p)
    slots = [slot for slot in range(state.first[p], state.first[p + 1]) if slot not in taken]
    racks = [state.rack_of[state.broker_of[slot]] for slot in slots]
    crowding = [
        slot
        for slot, rack in zip(slots, racks, strict=True)
        if rack != UNRACKED and racks.count(rack) > limit and state.broker_of[slot] in state.eligible
    ]
    return max(crowding, key=lambda slot: (slot != state.leader_slot[p], slot), default=NONE)


class Placement:
    """Chooses brokers one slot at a time.

    Eligible brokers are in a heap for each rack, the emptiest first.
    """

    def __init__(self, state: State, goals: Goals) -> None:
        self._state = state
        self._goals = goals
        self._heaps: dict[int, list[tuple[float, int]]] = {}
        for b in state.eligible:
            heappush(self._heaps.setdefault(state.rack_of[b], []), (self._fill(b), b))
        self._choices = max(1, CHOICES // max(1, len(self._heaps)))
        self._without_room: list[int] = []
        """The slots that are on brokers without room, because no other broker had any."""

    def _fill(self, b: int) -> float:
        """Returns how full a broker is: its replicas and bytes in relation to its shares."""
        state, goals = self._state, self._goals
        return state.replicas[b] / max(1.0, goals.replicas.share[b]) + state.bytes[b] / max(
            1.0, goals.bytes.share[b]
        )

    def place(self, slots: Iterable[int]) -> None:
        """Moves each slot to a broker. Raises NoPlaceError if all brokers have replicas of a partition.

        Where no broker has room, the slot goes to one nevertheless: `check_room` tells whether moves of other
        replicas have made room for it.
        """
        state = self._state
        counts, brokers = state.topic_counts, len(state.replicas)
        homeless: list[int] = []
        for slot in slots:
            p = state.partition_of[slot]
            topic = state.topic_of[p] * brokers
            held = {state.broker_of[other] for other in range(state.first[p], state.first[p + 1])}
            best: tuple[int, int, float, int] | None = None
            for there, rack in self._racks(slot, p):
                for fill, b in self._emptiest(rack, held, state.sizes[p]):
                    key = (there, counts[topic + b], fill, b)
                    if best is None or key < best:
                        best = key
            b = best[3] if best is not None else self._last_resort(slot, p, held)
            if b != NONE:
                state.move(slot, b)
                self._refresh(b)
            elif state.broker_of[slot] == NONE or state.drained[state.broker_of[slot]]:
                homeless.append(slot)
        self._raise(homeless)

    def check_room(self, held: Sequence[int]) -> None:
        """Raises NoPlaceError if a broker has too little room, and now more bytes than it `held`
        before, or if it gets a replica for which none of its disks has room."""
        state, goals = self._state, self._goals
        if any(largest is not None for largest in state.largest):
            self._raise([slot for slot, b in enumerate(state.broker_of) if self._is_too_large(slot, b)])
        over = {b for b in state.eligible if goals.overflow(b, state.bytes[b]) and state.bytes[b] > held[b]}
        if over:
            came = [slot for slot, b in enumerate(state.broker_of) if b in over and b != state.home[slot]]
            without = set(self._without_room)
            self._raise([slot for slot in came if slot in without] or came)

    def _is_too_large(self, slot: int, b: int) -> bool:
        state = self._state
        return b not in (NONE, state.home[slot]) and not self._goals.admits(
            b, state.sizes[state.partition_of[slot]]
        )

    def _raise(self, slots: Sequence[int]) -> None:
        """Raises NoPlaceError for the partitions of slots that have no place, if there are any."""
        state = self._state
        found = []
        for slot in slots:
            p = state.partition_of[slot]
            held = {state.broker_of[s] for s in range(state.first[p], state.first[p + 1]) if s != slot}
            free = [state.cluster.brokers[b].id for b in state.eligible if b not in held]
            name = state.cluster.topics[state.topic_of[p]]
            found.append(
                Unplaced(name, state.cluster.index_of[p], state.factor(p), state.sizes[p], tuple(free))
            )
        if found:
            raise NoPlaceError(sorted(set(found)), [state.cluster.brokers[b].id for b in state.eligible])

    def _racks(self, slot: int, p: int) -> list[tuple[int, int]]:
        """Returns how many replicas of a partition are in each rack that may have one more.

        Those with the fewest are to be preferred: the partition then is in as many racks as it can
        be.
        """
        limit = self._goals.limit_of(p)
        found = [(0 if r == UNRACKED else self._state.in_rack(p, r, slot), r) for r in self._heaps]
        return [(there, rack) for there, rack in found if there < limit]

    def _emptiest(self, rack: int, held: set[int], size: int) -> list[tuple[float, int]]:
        """Returns the emptiest brokers of a rack that have no replica of the partition, and room."""
        heap = self._heaps[rack]
        popped: list[tuple[float, int]] = []
        found: list[tuple[float, int]] = []
        while heap and len(found) < self._choices:
            entry = heappop(heap)
            popped.append(entry)
            if entry[1] not in held and self._has_room(entry[1], size):
                found.append(entry)
        for entry in popped:
            heappush(heap, entry)
        return found

    def _has_room(self, b: int, size: int) -> bool:
        return self._goals.admits(b, size) and self._goals.fits(b, size)

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
        """Returns the broker for a slot for which no rack has a place, or NONE if there is none, or
        if the slot can stay."""
        state, goals = self._state, self._goals
        old = state.broker_of[slot]
        if old != NONE and not state.drained[old]:
            return NONE
        free = [b for b in state.eligible if b not in held]
        size = state.sizes[p]
        if free and not any(self._has_room(b, size) for b in free):
            self._without_room.append(slot)
        return min(
            free,
            key=lambda b: (
                not goals.admits(b, size),
                goals.overflow(b, state.bytes[b] + size),
                0 if state.rack_of[b] == UNRACKED else state.in_rack(p, state.rack_of[b], slot),
                self._fill(b),
                b,
            ),
            default=NONE,
        )
