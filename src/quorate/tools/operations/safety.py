"""What would be lost or unavailable while a node is stopped.

A block is lasting if it is there while all nodes are well, so waiting does not help. Otherwise another node
is behind or away now.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorate.admin.types import TopicPartition
from quorate.dataclass import dataclass
from quorate.tools.operations.description import Cluster, Partition, counted, ids, some
from quorate.tools.operations.plan import Refusal


@dataclass(frozen=True, slots=True)
class Block:
    """A reason why a node must not be stopped now."""

    reason: str
    remedy: str
    lasting: bool

    @property
    def refusal(self) -> Refusal:
        return Refusal(self.reason, self.remedy)


def in_sync_without(cluster: Cluster, partition: Partition, broker_id: int) -> list[int]:
    """The in-sync replicas that remain when a broker stops, on brokers that are active."""
    return [r for r in partition.isr if r != broker_id and cluster.is_active(r)]


def stop_blocks(cluster: Cluster, node_id: int) -> list[Block]:
    """Returns what speaks against stopping a node for a while. Its disk keeps its data.

    Nothing does where the node is fenced, or does not follow the quorum: it has stopped already.
    """
    broker, voter = cluster.brokers.get(node_id), cluster.voter(node_id)
    found = _broker_blocks(cluster, node_id) if broker is not None and not broker.fenced else []
    return found + (voter_blocks(cluster, node_id) if voter is not None and voter.follows else [])


def _broker_blocks(cluster: Cluster, broker_id: int) -> list[Block]:
    only: list[TopicPartition] = []
    last: list[TopicPartition] = []
    never_enough: list[TopicPartition] = []
    not_enough: list[TopicPartition] = []
    missing: set[int] = set()
    for partition in cluster.partitions.on(broker_id):
        if broker_id not in partition.isr:
            continue
        remaining = in_sync_without(cluster, partition, broker_id)
        if len(partition.replicas) == 1:
            only.append(partition.tp)
        elif not remaining:
            last.append(partition.tp)
            missing.update(set(partition.replicas) - {broker_id})
        elif len(remaining) < partition.min_isr:
            (never_enough if len(partition.replicas) - 1 < partition.min_isr else not_enough).append(
                partition.tp
            )
            missing.update(set(partition.replicas) - set(remaining) - {broker_id})
    found = []
    if only:
        found.append(
            Block(
                f"broker {broker_id} has the only replica of {some(only)}: no leader while it is stopped",
                "add replicas (kafka-reassign-partitions --execute), or accept it by --allow-unavailable",
                lasting=True,
            )
        )
    if last:
        found.append(
            Block(
                f"broker {broker_id} is the only one in the ISR of {some(last)}: no leader while it is "
                "stopped",
                _start_or_wait(cluster, missing),
                lasting=False,
            )
        )
    if never_enough:
        found.append(
            Block(
                f"{some(never_enough)} would have fewer replicas in sync than min.insync.replicas while "
                f"broker {broker_id} is stopped: producers with acks=all get NOT_ENOUGH_REPLICAS",
                "add a replica (kafka-reassign-partitions --execute), lower min.insync.replicas of the topic "
                "(kafka-configs --alter), or accept it by --allow-unavailable",
                lasting=True,
            )
        )
    if not_enough:
        found.append(
            Block(
                f"{some(not_enough)} would have fewer replicas in sync than min.insync.replicas",
                _start_or_wait(cluster, missing),
                lasting=False,
            )
        )
    return found


def _start_or_wait(cluster: Cluster, missing: Iterable[int]) -> str:
    away = sorted(broker for broker in missing if not cluster.is_active(broker))
    behind = sorted(broker for broker in missing if cluster.is_active(broker))
    parts = [f"start broker {ids(away)}"] if away else []
    parts += [f"wait until broker {ids(behind)} has caught up"] if behind else []
    return " and ".join(parts) or "wait until the ISR is complete"


def voter_blocks(cluster: Cluster, node_id: int) -> list[Block]:
    """Returns what speaks against stopping a voter: the others must be a majority."""
    majority = len(cluster.voters) // 2 + 1
    others = [voter for voter in cluster.voters if voter.id != node_id]
    following = [voter.id for voter in others if voter.follows]
    if len(following) >= majority:
        return []
    away = ids(voter.id for voter in others if not voter.follows)
    if len(others) < majority:
        return [
            Block(
                f"the metadata quorum has {counted(len(cluster.voters), 'voter')}: without controller "
                f"{node_id} it has no majority, and the metadata cannot change",
                "add controllers (kafka-metadata-quorum add-controller), or accept it by --allow-unavailable",
                lasting=True,
            )
        ]
    return [
        Block(
            f"without controller {node_id} the metadata quorum would have no majority: voter {away} does not "
            "follow the leader",
            f"start controller {away}, or wait until it has caught up (kafka-metadata-quorum describe "
            "--replication)",
            lasting=False,
        )
    ]


def split(
    blocks: Iterable[Block], *, allow_unavailable: bool
) -> tuple[tuple[Refusal, ...], tuple[str, ...], tuple[Block, ...]]:
    """Returns what is refused, what is a note because the user accepts it, and what to wait for."""
    all_blocks = list(blocks)
    refused = tuple(b.refusal for b in all_blocks if b.lasting and not allow_unavailable)
    notes = tuple(b.reason for b in all_blocks if b.lasting and allow_unavailable)
    return refused, notes, tuple(b for b in all_blocks if not b.lasting)
