"""The goals of a plan: for each broker a band of every load, and the limit of replicas in a rack.

The order is that of Cruise Control's default goals. The hard ones: racks, then capacity. No two
replicas of a partition are on one broker; no step of a plan ever does that. The soft ones: number
of replicas, bytes, number of leaders, spread of topics, bytes of leaders. A later goal is never met
at the expense of an earlier one.
"""

from __future__ import annotations

import enum
import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence

from quorate.dataclass import dataclass
from quorate.planner.cluster import NONE
from quorate.planner.request import Request
from quorate.planner.state import UNRACKED, State

TOPIC_FACTOR, TOPIC_LEAST_GAP, TOPIC_MOST_GAP = 3.0, 2, 40
"""A broker may have three times the average number of replicas of a topic, and at least 2 and at most 40 more
than the average (the defaults of Cruise Control's TopicReplicaDistributionGoal)."""


class Obstacle(enum.Enum):
    """Why a replica must not move to a broker."""

    REPLICA = "the brokers have replicas of the same partitions"
    RACK = "the rule of racks keeps replicas in their racks"
    ROOM = "brokers have no room for more bytes"


Kind = tuple[int, tuple[int, ...]]
"""What the racks can have of a partition depends on: its number of replicas, and the racks of those
that stay where they are because their brokers are not active."""


@dataclass(slots=True)
class Band:
    """The fair share of each broker of one load, and the least and most that is accepted."""

    share: list[float]
    least: list[int]
    most: list[int]

    def excess(self, b: int, load: int) -> int:
        """Returns by how much a load is outside of the band."""
        if load > self.most[b]:
            return load - self.most[b]
        return max(0, self.least[b] - load)

    def change(self, loads: Sequence[int], a: int, b: int, amount: int) -> int:
        """Returns what a transfer from `a` to `b` adds to the squared excess of both: below 0, it
        is a gain."""
        before = self.excess(a, loads[a]) ** 2 + self.excess(b, loads[b]) ** 2
        return self.excess(a, loads[a] - amount) ** 2 + self.excess(b, loads[b] + amount) ** 2 - before


class Goals:
    """The bands and limits of one request. They depend on totals only, which no move changes."""

    def __init__(self, state: State, request: Request) -> None:
        self.tolerance = request.tolerance
        self.state = state
        self._keeps_racks = not request.balance
        self._fixed = [not b.active and not state.drained[n] for n, b in enumerate(state.cluster.brokers)]
        """Whether the replicas of a broker stay where they are, because it is not active."""
        self._any_fixed = any(self._fixed)
        self._kinds, self._kind_of = self._find_kinds()
        self._limits: dict[Kind, int] = {}
        self._limit_of_kind = [self.rack_limit(kind) for kind in self._kinds]
        self.replicas = self._band([1] * len(state.sizes), state.replicas, racks=True)
        room = [math.inf if capacity is None else capacity for capacity in state.capacity]
        self.bytes = self._band(state.sizes, state.bytes, racks=True, limits=room)
        self.leaders = self._band([1] * len(state.sizes), state.leaders, racks=False)
        self.leader_bytes = self._band(state.sizes, state.leader_bytes, racks=False)
        self._topic_totals = [0] * len(state.cluster.topics)
        for p, topic in enumerate(state.topic_of):
            self._topic_totals[topic] += state.factor(p)
        fair = sum(self.replicas.share) / max(1, len(state.eligible))
        self._weight = [share / fair if fair else 1.0 for share in self.replicas.share]
        self._topic_most: dict[tuple[int, float], int] = {}

    # -- racks

    def _rack_sizes(self) -> dict[int, int]:
        """Returns the number of brokers in each rack that has one."""
        sizes = Counter(self.state.rack_of[b] for b in self.state.eligible)
        return {rack: sizes[rack] for rack in sorted(sizes)}

    def rack_limit(self, kind: Kind) -> int:
        """Returns the most replicas of a partition in one rack: the lowest limit with which all
        have a place."""
        found = self._limits.get(kind)
        if found is None:
            found = self._limits[kind] = self._lowest_limit(kind)
        return found

    def _lowest_limit(self, kind: Kind) -> int:
        factor, fixed = kind
        sizes = self._rack_sizes()
        for limit in range(1, factor + 1):
            if sum(self._places(rack, kind, limit, sizes) for rack in sizes) >= factor - len(fixed):
                return limit
        return factor

    def _places(self, rack: int, kind: Kind, limit: int, sizes: Mapping[int, int]) -> int:
        """Returns how many replicas of a partition, beside those that stay, can be in a rack."""
        if rack == UNRACKED:
            return sizes[rack]
        return min(max(0, limit - kind[1].count(rack)), sizes[rack])

    def limit_of(self, p: int) -> int:
        """Returns the most replicas of a partition in one rack."""
        return self._limit_of_kind[self._kind_of[p]]

    def crowded(self, p: int) -> int:
        """Returns how many replicas of a partition are in racks beyond the limit."""
        state = self.state
        if self.limit_of(p) >= state.factor(p):
            return 0
        return self.crowding(state.broker_of[state.first[p] : state.first[p + 1]])

    def crowding(self, brokers: Sequence[int]) -> int:
        """Returns how many of the replicas on some brokers, those of one partition, are beyond the
        limit and could be elsewhere."""
        kind = self._kind(brokers)
        limit = self.rack_limit(kind)
        racks = [self.state.rack_of[b] for b in brokers if b != NONE]
        return sum(
            [
                max(0, racks.count(rack) - max(limit, kind[1].count(rack)))
                for rack in set(racks)
                if rack != UNRACKED
            ]
        )

    def lost_racks(self, p: int) -> int:
        """Returns in how many fewer racks a partition is than before, as far as its number of
        replicas is not the reason. A broker without a rack counts as one, because nothing says that
        it shares one."""
        state = self.state
        before = {state.rack_of[b] for b in state.cluster.replicas_of(p)} - {UNRACKED}
        racks = [state.rack_of[state.broker_of[slot]] for slot in range(state.first[p], state.first[p + 1])]
        after = len(set(racks) - {UNRACKED}) + racks.count(UNRACKED)
        return max(0, min(len(before), len(racks)) - after)

    def lost_racks_if_kept(self, p: int) -> int:
        """Returns `lost_racks` if the request has no use for a loss.

        A plan for balance may spread a partition over fewer racks, within the limit.
        """
        return self.lost_racks(p) if self._keeps_racks else 0

    # -- bands

    def _find_kinds(self) -> tuple[list[Kind], array[int]]:
        """Returns the kinds of partitions, and the kind of each."""
        state = self.state
        numbers: dict[Kind, int] = {}
        kind_of = array("i")
        for p in range(len(state.sizes)):
            kind = self._kind(state.broker_of[state.first[p] : state.first[p + 1]])
            kind_of.append(numbers.setdefault(kind, len(numbers)))
        return list(numbers), kind_of

    def _kind(self, brokers: Sequence[int]) -> Kind:
        """Returns the kind of a partition with replicas on some brokers."""
        if not self._any_fixed:
            return len(brokers), ()
        there = [self.state.rack_of[b] for b in brokers if b != NONE and self._fixed[b]]
        return len(brokers), tuple(sorted(there))

    def _band(
        self,
        weights: Sequence[int],
        loads: Sequence[int],
        *,
        racks: bool,
        limits: Sequence[float] | None = None,
    ) -> Band:
        """`weights` are the loads of single replicas, and `limits` the most that brokers can have.

        A broker that is not eligible keeps its load.
        """
        state = self.state
        count = len(loads)
        fixed = [b for b in range(count) if self._fixed[b]]
        by_kind = [0] * len(self._kinds)
        for kind, weight in zip(self._kind_of, weights, strict=True):
            by_kind[kind] += weight
        totals = dict(zip(self._kinds, by_kind, strict=True))
        if racks:
            total = sum(weight * (factor - len(there)) for (factor, there), weight in totals.items())
        else:
            total = sum(by_kind) - sum(loads[b] for b in fixed)
        share = [0.0] * count
        limits = [math.inf] * count if limits is None else limits
        by_rack: dict[int, list[int]] = {}
        for b in state.eligible:
            by_rack.setdefault(state.rack_of[b], []).append(b)
        sizes = {rack: len(by_rack[rack]) for rack in sorted(by_rack)}
        ranges = dict.fromkeys(sizes, (0.0, math.inf))
        if racks:
            ranges = {rack: self._rack_range(rack, totals, sizes) for rack in sizes}
        room = {
            rack: (least, min(most, sum(limits[b] for b in by_rack[rack])))
            for rack, (least, most) in ranges.items()
        }
        for rack, load in _divide(total, sizes, room).items():
            brokers = by_rack[rack]
            parts = _divide(load, dict.fromkeys(brokers, 1), {b: (0.0, limits[b]) for b in brokers})
            for b, part in parts.items():
                share[b] = part
        # The nearest integers are always accepted: a share of 10.5 replicas is met by 10 and by 11.
        least = [min(math.floor(s), math.ceil(s * (1 - self.tolerance))) for s in share]
        most = [max(math.ceil(s), math.floor(s * (1 + self.tolerance))) for s in share]
        for b in fixed:
            share[b], least[b], most[b] = loads[b], 0, 1 << 62
        return Band(share, least, most)

    def _rack_range(
        self, rack: int, totals: Mapping[Kind, int], sizes: Mapping[int, int]
    ) -> tuple[float, float]:
        """Returns the least and most load that the eligible brokers of a rack have in an assignment
        that keeps the rule of racks."""
        least = most = 0
        for kind, weight in totals.items():
            free, limit = kind[0] - len(kind[1]), self.rack_limit(kind)
            places = {other: self._places(other, kind, limit, sizes) for other in sizes}
            here = places.pop(rack)
            least += weight * max(0, free - sum(places.values()))
            most += weight * min(free, here)
        return least, most

    def topic_most(self, topic: int, b: int) -> int:
        """Returns the most replicas of a topic that a broker should have."""
        weight = self._weight[b]
        found = self._topic_most.get((topic, weight))
        if found is None:
            mean = self._topic_totals[topic] * weight / max(1, len(self.state.eligible))
            gap = min(mean * (TOPIC_FACTOR - 1), TOPIC_MOST_GAP)
            found = self._topic_most[topic, weight] = math.ceil(mean + max(TOPIC_LEAST_GAP, gap))
        return found

    # -- moves

    def obstacle(self, slot: int, b: int, *, freed: int = 0) -> Obstacle | None:
        """Returns the hard goal that forbids a move, if any.

        `freed` bytes leave the broker at the same time.
        """
        state = self.state
        p = state.partition_of[slot]
        broker_of = state.broker_of
        for other in range(state.first[p], state.first[p + 1]):
            if broker_of[other] == b:
                return Obstacle.REPLICA
        rack, old = state.rack_of[b], state.rack_of[broker_of[slot]]
        if rack not in (UNRACKED, old):
            there = state.in_rack(p, rack, slot)
            if there >= self.limit_of(p):
                return Obstacle.RACK
            if there and self._keeps_racks and old != UNRACKED and not state.in_rack(p, old, slot):
                return Obstacle.RACK
        size = state.sizes[p]
        return None if self.admits(b, size) and self.fits(b, size - freed) else Obstacle.ROOM

    # -- measures

    def fits(self, b: int, more: int) -> bool:
        """Whether a broker has room for more bytes."""
        capacity = self.state.capacity[b]
        return capacity is None or self.state.bytes[b] + more <= capacity

    def admits(self, b: int, size: int) -> bool:
        """Whether a broker has a disk with room for a replica of this size."""
        largest = self.state.largest[b]
        return largest is None or size <= largest

    def overflow(self, b: int, load: int) -> int:
        capacity = self.state.capacity[b]
        return 0 if capacity is None else max(0, load - capacity)

    def topic_excess(self, topic: int, b: int) -> int:
        count = self.state.topic_counts[topic * len(self.state.replicas) + b]
        return max(0, count - self.topic_most(topic, b))


def _divide(
    total: float, sizes: Mapping[int, int], ranges: Mapping[int, tuple[float, float]]
) -> dict[int, float]:
    """Divides a total in proportion to sizes, but within the range of each part."""

    def part(key: int, level: float) -> float:
        least, most = ranges[key]
        return min(max(level * sizes[key], least), most)

    if all(
        least <= total * sizes[key] / sum(sizes.values()) <= most for key, (least, most) in ranges.items()
    ):
        return {key: total * size / sum(sizes.values()) for key, size in sizes.items()}
    low, high = 0.0, float(max(total, 1))
    for _ in range(100):
        level = (low + high) / 2
        if sum(part(key, level) for key in sizes) < total:
            low = level
        else:
            high = level
    return {key: round(part(key, high), 6) for key in sizes}  # the bisection leaves 12 at 12.000000001
