"""Other brokers for the replicas of a broker that leaves, as `quorate.planner` chooses them for a drain.

Its goals hold: no two replicas on a broker, as many racks as before, no more bytes than a broker has room
for, and then even loads. Here its input is made from the description of the cluster, and its errors become
refusals. A replica lies in one directory, so what a broker gets must also fit into its volumes one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from quorate.admin.types import TopicPartition
from quorate.dataclass import dataclass
from quorate.planner import cluster as planner
from quorate.planner.plan import ReassignmentPlan, make_plan
from quorate.planner.request import Request
from quorate.tools.operations.description import Broker, Cluster, Partition, counted, ids, some
from quorate.tools.operations.plan import Refusal

Replicas = tuple[int, ...]

MOST_PLANS = 20
"""How often a plan is made anew, with less room where the replicas did not fit into single volumes."""


@dataclass(frozen=True, slots=True)
class Moves:
    """The replicas of each partition before and after it has left the broker, or why it cannot."""

    before: Mapping[TopicPartition, Replicas] = field(default_factory=dict)
    after: Mapping[TopicPartition, Replicas] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()

    def still_hold(self, cluster: Cluster, partitions: Iterable[Partition]) -> bool:
        """Whether the moves of some partitions are possible as they were planned: the partitions have not
        changed, and their new brokers can still get replicas."""
        return not self.refusals and all(
            self.before.get(p.tp) == p.target
            and all(_is_usable(cluster.brokers.get(b)) for b in set(self.after[p.tp]) - set(p.target))
            for p in partitions
        )

    def received(self, partitions: Iterable[Partition]) -> dict[int, tuple[int, int]]:
        """Returns how many replicas of some partitions, and as far as sizes are known bytes, each broker
        gets."""
        found: dict[int, tuple[int, int]] = {}
        for p in partitions:
            for broker in set(self.after[p.tp]) - set(p.target):
                replicas, size = found.get(broker, (0, 0))
                found[broker] = replicas + 1, size + p.size
        return found

    def beyond_a_volume(self, cluster: Cluster, partitions: Iterable[Partition]) -> dict[int, int]:
        """Returns the brokers not all of whose volumes have room for each replica that comes, and the bytes
        of the largest that has none in one of them."""
        found: dict[int, int] = {}
        for p in partitions:
            for b in set(self.after[p.tp]) - set(p.target):
                rooms = cluster.brokers[b].rooms
                if rooms and p.size > min(rooms):
                    found[b] = max(p.size, found.get(b, 0))
        return found


_MORE_ROOM = (
    "add disks or brokers, delete data (kafka-topics --delete, kafka-delete-records), or give a higher "
    "--disk-limit"
)


def _is_usable(broker: Broker | None) -> bool:
    return broker is not None and broker.active and not broker.cordoned


def plan_moves(cluster: Cluster, broker_id: int, *, rack_aware: bool) -> Moves:
    """Plans the moves of all replicas from a broker. A reassignment in progress counts as completed."""
    leaving = [p for p in cluster.partitions.on(broker_id) if broker_id in p.target]
    if not any(_is_usable(b) for b in cluster.brokers.values() if b.id != broker_id):
        return Moves(refusals=(_no_broker(broker_id, leaving, []),))
    capacity = {b.id: b.capacity for b in cluster.brokers.values()}
    for _ in range(MOST_PLANS):
        try:
            plan = make_plan(
                _planner_cluster(cluster, capacity, rack_aware=rack_aware),
                Request(drain=frozenset({broker_id})),
            )
        except planner.NoPlaceError as error:
            return Moves(refusals=tuple(_no_place(cluster, broker_id, error)))
        found = {TopicPartition(*plan.name(p)): tuple(plan.replicas(p)) for p in plan.moves}
        before = {tp: cluster.partitions[tp].target for tp in found}
        moves = Moves(before, found, tuple(_fewer_racks(cluster, broker_id, plan)))
        too_much = _without_volume(cluster, moves)
        if not too_much:
            return moves
        for b, fitting in too_much.items():
            capacity[b] = _held(cluster, b) + fitting
    rooms = ", ".join(_room(cluster, b) for b in sorted(too_much))
    return Moves(refusals=(Refusal(f"the replicas do not fit into single directories: {rooms}", _MORE_ROOM),))


def _planner_cluster(
    cluster: Cluster, capacity: Mapping[int, int | None], *, rack_aware: bool
) -> planner.Cluster:
    builder = planner.ClusterBuilder(
        planner.Broker(
            b.id,
            b.rack if rack_aware else None,
            _is_usable(b),
            capacity[b.id],
            max(b.rooms or (), default=None),
        )
        for b in cluster.brokers.values()
    )
    for p in cluster.partitions:
        builder.add(p.tp.topic, p.tp.partition, p.target, p.leader, p.size)
    return builder.build()


def _without_volume(cluster: Cluster, moves: Moves) -> dict[int, int]:
    """Returns the brokers whose new replicas do not fit into their volumes one by one, and how many bytes
    do."""
    coming: dict[int, list[int]] = {}
    for tp, after in moves.after.items():
        for b in set(after) - set(moves.before[tp]):
            coming.setdefault(b, []).append(cluster.partitions[tp].size)
    found = {}
    for b, sizes in coming.items():
        rooms = cluster.brokers[b].rooms
        if rooms is not None and (fitting := _fitting(sizes, rooms)) < sum(sizes):
            found[b] = fitting
    return found


def _fitting(sizes: Iterable[int], rooms: Iterable[int]) -> int:
    """The bytes of those replicas that have a place, the largest first, each in the fullest volume with
    room."""
    left, placed = list(rooms), 0
    for size in sorted(sizes, reverse=True):
        with_room = [n for n, room in enumerate(left) if room >= size]
        if with_room:
            left[min(with_room, key=left.__getitem__)] -= size
            placed += size
    return placed


def _no_place(cluster: Cluster, broker_id: int, error: planner.NoPlaceError) -> Iterable[Refusal]:
    """Why replicas have no place: all other brokers have one already, or none has room."""
    unplaced = [(cluster.partitions[TopicPartition(u.topic, u.partition)], u) for u in error.unplaced]
    homeless = [p for p, u in unplaced if not u.brokers]
    if homeless:
        yield _no_broker(broker_id, homeless, error.brokers)
    without_room = [(p, u) for p, u in unplaced if u.brokers]
    if without_room:
        brokers = sorted({b for _, u in without_room for b in u.brokers})
        size = sum(u.size for _, u in without_room)
        names = some(p.tp for p, _ in without_room)
        rooms = ", ".join(_room(cluster, b) for b in brokers)
        yield Refusal(
            f"no other broker has room for the replica of {names} with {size:,} bytes: {rooms}",
            _MORE_ROOM,
        )


def _room(cluster: Cluster, broker_id: int) -> str:
    broker = cluster.brokers[broker_id]
    if broker.rooms and len(broker.rooms) > 1:
        return (
            f"broker {broker_id} has directories with room for "
            f"{', '.join(f'{room:,}' for room in broker.rooms)}"
        )
    assert broker.capacity is not None  # or it would have room
    return f"broker {broker_id} has room for {max(0, broker.capacity - _held(cluster, broker_id)):,}"


def _held(cluster: Cluster, broker_id: int) -> int:
    """The bytes of the replicas of a broker, after the reassignments in progress."""
    return sum(p.size for p in cluster.partitions.on(broker_id) if broker_id in p.target)


def _no_broker(broker_id: int, partitions: Sequence[Partition], usable: Sequence[int]) -> Refusal:
    most = max(len(p.target) for p in partitions)
    return Refusal(
        f"no other broker can take the replica of {some(p.tp for p in partitions)}: with "
        f"{counted(most, 'replica')} they need {counted(most, 'broker')} beside {broker_id}; "
        + (f"available: broker {ids(usable)}" if usable else "no other is available"),
        "start another broker, or give these partitions fewer replicas (kafka-reassign-partitions --execute)",
    )


def _fewer_racks(cluster: Cluster, broker_id: int, plan: ReassignmentPlan) -> Iterable[Refusal]:
    fewer = [TopicPartition(*plan.name(p)) for p in plan.moves if plan.lost_racks(p)]
    if fewer:
        rack = cluster.brokers[broker_id].rack
        yield Refusal(
            f"{some(fewer)} would be in fewer racks: no other broker in rack {rack} can take the replica",
            f"start another broker in rack {rack}, or give --disable-rack-aware",
        )
