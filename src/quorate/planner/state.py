"""The assignment that a plan works on, and the loads of brokers in it.

A *slot* is the place of one replica of a partition. Slots are numbered in the order of partitions,
thus by their bytes. A replica moves when its slot gets another broker. The slot that leads a
partition becomes the first of its replicas.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort

from quorate.planner.cluster import NONE, Cluster, PlanError
from quorate.planner.request import Request

UNRACKED = -1
"""The rack of a broker without `broker.rack`. The rule of racks does not concern it."""


class State:
    """An assignment of slots to brokers with its loads. Changed by `place`, `move` and `lead` only."""

    def __init__(self, cluster: Cluster, request: Request) -> None:
        """Raises PlanError for a replication factor below 1."""
        brokers = cluster.brokers
        self.cluster = cluster
        self.sizes = cluster.sizes
        self.topic_of = cluster.topic_of
        self.drained = [broker.id in request.drain for broker in brokers]
        self.eligible = [b for b, broker in enumerate(brokers) if broker.active and not self.drained[b]]
        """The brokers over which load is spread."""
        added_only = bool(request.add) and not request.balance
        self.receives = [
            b in set(self.eligible) and (not added_only or brokers[b].id in request.add)
            for b in range(len(brokers))
        ]
        """Whether a replica may move to a broker for the sake of balance."""
        names = sorted({broker.rack for broker in brokers if broker.rack is not None})
        self.racks = names
        self.rack_of = [UNRACKED if b.rack is None else names.index(b.rack) for b in brokers]
        self.capacity = [b.capacity for b in brokers]
        self.largest = [b.largest for b in brokers]
        count = len(brokers)
        self.replicas = [0] * count
        self.bytes = [0] * count
        self.leaders = [0] * count
        self.leader_bytes = [0] * count
        self.topic_counts = array("i", bytes(4 * len(cluster.topics) * count))
        """The replicas of each topic on each broker: at `topic * number of brokers + broker`."""
        self.moved_bytes = 0
        """The bytes of replicas on brokers that did not have them before."""
        self._create_slots(request)
        self.slots_on: list[list[int]] = [[] for _ in brokers]
        """The slots on each broker that may move, in ascending order, thus by bytes. See `index`."""
        self._indexed = False

    def _create_slots(self, request: Request) -> None:
        cluster = self.cluster
        factors = array("i", [request.replication.get(name, 0) for name in cluster.topics])
        wrong = [name for name, factor in request.replication.items() if factor < 1]
        if wrong:
            raise PlanError(f"topic {wrong[0]}: a partition needs at least one replica")
        for b in cluster.replicas:
            self.replicas[b] += 1  # which replicas a lower replication factor removes depends on the loads
        first, slots, partition_of = array("i", [0]), array("i"), array("i")
        for p in range(len(cluster)):
            old = cluster.replicas_of(p)
            wanted = factors[cluster.topic_of[p]] or len(old)
            kept = old if wanted >= len(old) else array("i", self._kept(p, old, wanted))
            slots.extend(kept)
            slots.extend([NONE] * (wanted - len(kept)))
            partition_of.extend([p] * wanted)
            first.append(len(slots))
        self.first = first
        self.broker_of = slots
        self.partition_of = partition_of
        self.home = array("i", slots)
        """The broker from which a slot has its data, or NONE. Its bytes move if it is on another one."""
        self.leader_slot = array("i", first[:-1])
        self.replicas = [0] * len(cluster.brokers)
        for slot, b in enumerate(slots):
            if b != NONE:
                self._load(slot, b, 1)

    def _kept(self, partition: int, old: array[int], wanted: int) -> list[int]:
        """Returns the replicas that a lower replication factor keeps, in their order.

        Those go first that must leave anyway, then those in a crowded rack, then those of the fullest broker.
        """
        kept = list(old)
        brokers = self.cluster.brokers
        while len(kept) > wanted:
            racks = [self.rack_of[b] for b in kept]
            gone = max(
                range(len(kept)),
                key=lambda i: (
                    self.drained[kept[i]],
                    not brokers[kept[i]].active,
                    0 if racks[i] == UNRACKED else racks.count(racks[i]),
                    self.replicas[kept[i]],
                    i,
                ),
            )
            self.replicas[kept.pop(gone)] -= 1
        return kept

    # -- changes

    def _load(self, slot: int, b: int, sign: int) -> None:
        p = self.partition_of[slot]
        size = self.sizes[p] * sign
        self.replicas[b] += sign
        self.bytes[b] += size
        self.topic_counts[self.topic_of[p] * len(self.replicas) + b] += sign
        if self.leader_slot[p] == slot:
            self.leaders[b] += sign
            self.leader_bytes[b] += size

    def move(self, slot: int, b: int) -> None:
        """Moves the replica of a slot to a broker that has no replica of the partition."""
        p = self.partition_of[slot]
        old = self.broker_of[slot]
        size = self.sizes[p]
        if old != NONE:
            self._load(slot, old, -1)
            if self._indexed:
                there = self.slots_on[old]
                del there[bisect_left(there, slot)]
        before = self._moved(p)
        self.broker_of[slot] = b
        self._load(slot, b, 1)
        if self._indexed:
            insort(self.slots_on[b], slot)
        if b != self.home[slot] and b in self.cluster.replicas_of(p):
            self._take_home(slot, p, b)
        self.moved_bytes += size * (self._moved(p) - before)

    def _moved(self, p: int) -> int:
        """Returns how many slots of a partition are away from the broker that has their data."""
        return sum(
            [self.broker_of[slot] != self.home[slot] for slot in range(self.first[p], self.first[p + 1])]
        )

    def _take_home(self, slot: int, p: int, b: int) -> None:
        """Lets a slot use the data on broker `b`, which was a replica of the partition before."""
        for other in range(self.first[p], self.first[p + 1]):
            if self.home[other] == b:
                self.home[other] = self.home[slot]
        self.home[slot] = b

    def lead(self, slot: int) -> None:
        """Lets a slot lead its partition."""
        p = self.partition_of[slot]
        before, size = self.broker_of[self.leader_slot[p]], self.sizes[p]
        after = self.broker_of[slot]
        self.leader_slot[p] = slot
        self.leaders[before] -= 1
        self.leader_bytes[before] -= size
        self.leaders[after] += 1
        self.leader_bytes[after] += size

    def index(self, movable: bytearray | None) -> None:
        """Fills `slots_on` with the slots on eligible brokers: all, or those with an entry in `movable`."""
        there: list[list[int] | None] = [None] * len(self.replicas)
        for b in self.eligible:
            there[b] = self.slots_on[b]
        for slot, b in enumerate(self.broker_of):
            slots = there[b]
            if slots is not None and (movable is None or movable[slot]):
                slots.append(slot)
        self._indexed = True

    # -- questions

    def slot_on(self, p: int, b: int) -> int:
        """Returns the slot of a partition that is on a broker, or NONE."""
        for slot in range(self.first[p], self.first[p + 1]):
            if self.broker_of[slot] == b:
                return slot
        return NONE

    def in_rack(self, p: int, rack: int, but: int) -> int:
        """Returns how many replicas of a partition are in a rack, without the slot `but` and those
        that are yet to leave a drained broker."""
        broker_of, rack_of, drained = self.broker_of, self.rack_of, self.drained
        found = 0
        for slot in range(self.first[p], self.first[p + 1]):
            b = broker_of[slot]
            if slot != but and b != NONE and rack_of[b] == rack and not drained[b]:
                found += 1
        return found

    def factor(self, p: int) -> int:
        """Returns the number of replicas that a partition is to have."""
        return self.first[p + 1] - self.first[p]

    def first_slot_of_size(self, size: float) -> int:
        """Returns the first slot whose partition has at least `size` bytes."""
        return self.first[bisect_left(self.sizes, size)]
