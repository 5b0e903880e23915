"""The goals of a plan: for each broker a band of every load, and the limit of replicas in a rack.

The order is that of Cruise Control's default goals. The hard ones: racks, then capacity. No two replicas of a
partition are on one broker; no step of a plan ever does that. The soft ones: number of replicas, bytes, number
of leaders, spread of topics, bytes of leaders. A later goal is never met at the expense of an earlier one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from quorate.dataclass import dataclass
from quorate.planner.request import Request
from quorate.planner.state import UNRACKED, State

TOPIC_FACTOR, TOPIC_LEAST_GAP, TOPIC_MOST_GAP = 3.0, 2, 40
"""A broker may have three times the average number of replicas of a topic, and at least 2 and at most 40 more
than the average (the defaults of Cruise Control's TopicReplicaDistributionGoal)."""


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


class Goals:
    """The bands and limits of one request. They depend on totals only, which no move changes."""

    def __init__(self, state: State, request: Request) -> None:
        self.tolerance = request.tolerance
        self.state = state
        self._factors = Counter(state.factor(p) for p in range(len(state.sizes)))
        first = state.cluster.first
        factors = set(self._factors) | {first[p + 1] - first[p] for p in range(len(state.cluster))}
        self.rack_limit = {factor: self._rack_limit(factor) for factor in factors}
        """The most replicas of a partition in one rack, by its number of replicas."""
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

    def _rack_limit(self, factor: int) -> int:
        """Returns the lowest limit with which all replicas of a partition have a place."""
        sizes = self._rack_sizes()
        free = sizes.pop(UNRACKED, 0)
        for limit in range(1, factor + 1):
            if free + sum(min(limit, size) for size in sizes.values()) >= factor:
                return limit
        return factor

    def crowded(self, p: int) -> int:
        """Returns how many replicas of a partition are in racks beyond the limit."""
        state = self.state
        factor = state.first[p + 1] - state.first[p]
        limit = self.rack_limit[factor]
        if limit >= factor:
            return 0
        racks = [state.rack_of[state.broker_of[slot]] for slot in range(state.first[p], state.first[p + 1])]
        return sum([max(0, racks.count(rack) - limit) for rack in set(racks) if rack != UNRACKED])

    # -- bands

    def _band(
        self,
        weights: Sequence[int],
        loads: Sequence[int],
        *,
        racks: bool,
        limits: Sequence[float] | None = None,
    ) -> Band:
        """`weights` are the loads of single replicas, and `limits` the most that brokers can have. A broker that is
        not eligible keeps its load.
        """
        state = self.state
        count = len(loads)
        fixed = set(range(count)) - set(state.eligible) - {b for b in range(count) if state.drained[b]}
        totals: Counter[int] = Counter()
        for p, weight in enumerate(weights):
            totals[state.factor(p)] += weight
        if racks:
            total = sum(factor * weight for factor, weight in totals.items())
        else:
            total = sum(totals.values())
        total -= sum(loads[b] for b in fixed)
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

    def _rack_range(self, rack: int, totals: Counter[int], sizes: dict[int, int]) -> tuple[float, float]:
        """Returns the least and most load that a rack has in an assignment that keeps the rule of racks."""

        def places(other: int, factor: int) -> int:
            if other == UNRACKED:
                return min(factor, sizes[other])
            return min(self.rack_limit[factor], sizes[other])

        least = most = 0
        for factor, weight in totals.items():
            elsewhere = sum(places(other, factor) for other in sizes if other != rack)
            least += weight * max(0, factor - elsewhere)
            most += weight * min(factor, places(rack, factor))
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

    # -- measures

    def fits(self, b: int, more: int) -> bool:
        """Whether a broker has room for more bytes."""
        capacity = self.state.capacity[b]
        return capacity is None or self.state.bytes[b] + more <= capacity

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
