"""Chooses other brokers for the replicas of a broker that leaves.

Each replica goes to the broker with the fewest replicas that does not have the partition. With racks, a partition
keeps its number of racks. The leaving broker's place in the list of replicas is kept, because its first replica is
the preferred leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from quorate.admin.types import TopicPartition
from quorate.dataclass import dataclass
from quorate.tools.operations.description import Cluster, Partition, ids, some
from quorate.tools.operations.plan import Refusal


@dataclass(slots=True)
class Moves:
    """The new replicas of each partition, and why others cannot move."""

    targets: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    no_broker: list[Partition] = field(default_factory=list)
    """Every other broker has a replica already."""
    no_rack: list[Partition] = field(default_factory=list)
    """Every broker that is left would reduce the number of racks."""
    bytes_to: dict[int, int] = field(default_factory=dict)
    """What each broker gets, as far as sizes are known."""


def choose_moves(
    cluster: Cluster, broker_id: int, partitions: Iterable[Partition], *, rack_aware: bool
) -> Moves:
    """Chooses the new replicas of partitions, in the order of their names."""
    usable = {b.id: b for b in cluster.brokers.values() if b.active and not b.cordoned and b.id != broker_id}
    load = dict.fromkeys(usable, 0)
    for partition in cluster.partitions:
        for replica in partition.target:
            if replica in load:
                load[replica] += 1
    racks = {b.id: b.rack for b in cluster.brokers.values()}
    moves = Moves()
    for partition in sorted(partitions, key=lambda p: p.tp):
        others = [replica for replica in partition.target if replica != broker_id]
        free = [b for b in usable if b not in partition.replicas]
        if not free:
            moves.no_broker.append(partition)
            continue
        if rack_aware:
            taken = {racks.get(replica) for replica in others}
            if racks.get(broker_id) not in {None, *taken}:  # the partition would lose a rack
                free = [b for b in free if racks[b] not in taken]
                if not free:
                    moves.no_rack.append(partition)
                    continue
        chosen = min(free, key=lambda b: (load[b], b))
        load[chosen] += 1
        moves.bytes_to[chosen] = moves.bytes_to.get(chosen, 0) + partition.size
        moves.targets[partition.tp] = tuple(chosen if r == broker_id else r for r in partition.target)
    return moves


def move_refusals(cluster: Cluster, broker_id: int, moves: Moves) -> list[Refusal]:
    """Returns why some replicas cannot leave the broker."""
    found = []
    if moves.no_broker:
        most = max(len(p.target) for p in moves.no_broker)
        usable = [b.id for b in cluster.brokers.values() if b.active and not b.cordoned and b.id != broker_id]
        found.append(
            Refusal(
                f"no other broker can take the replica of {some(p.tp for p in moves.no_broker)}: with {most} "
                f"replicas they need {most} brokers beside {broker_id}, and there "
                + (f"are {ids(sorted(usable))}" if usable else "is no other"),
                "start another broker, or give these partitions fewer replicas (kafka-reassign-partitions "
                "--execute)",
            )
        )
    if moves.no_rack:
        rack = cluster.brokers[broker_id].rack if broker_id in cluster.brokers else None
        found.append(
            Refusal(
                f"{some(p.tp for p in moves.no_rack)} would be in fewer racks: no other broker in rack {rack} can "
                "take the replica",
                f"start another broker in rack {rack}, or give --disable-rack-aware",
            )
        )
    for broker, needed in sorted(moves.bytes_to.items()):
        usable_bytes = cluster.brokers[broker].usable_bytes
        if usable_bytes is not None and needed > usable_bytes:
            found.append(
                Refusal(
                    f"broker {broker} would get {needed:,} bytes, and {usable_bytes:,} are free on its largest "
                    "log directory",
                    "add disks or brokers, or delete data (kafka-topics --delete, kafka-delete-records)",
                )
            )
    return found
