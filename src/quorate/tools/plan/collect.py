"""Partitions, their bytes and the brokers of a running cluster, as the input of a plan."""

from __future__ import annotations

from quorate.admin.client import AdminClient
from quorate.admin.errors import UnsupportedVersion
from quorate.admin.types import ClusterDescription, LogDirDescription, TopicPartition
from quorate.planner.cluster import Broker, Cluster, ClusterBuilder
from quorate.tools.command_line import ToolError


async def collect(admin: AdminClient, disk_limit: float) -> Cluster:
    """Asks for all partitions and, broker by broker, for the bytes of replicas.

    `disk_limit` is how full the disks of a broker may be, as a fraction. Raises ToolError if partitions are being
    reassigned, because their replicas and bytes are about to change.
    """
    ongoing = await admin.list_partition_reassignments()
    if ongoing:
        raise ToolError(
            f"Partitions in a reassignment: {len(ongoing)}, among them {min(ongoing)}. Wait until that is done "
            "(kafka-reassign-partitions --list), then plan."
        )
    described = await describe_brokers(admin)
    topics = await admin.describe_all_topics()
    leaders = {
        TopicPartition(name, p.partition): p.leader
        for name, topic in topics.items()
        for p in topic.partitions
    }
    sizes: dict[TopicPartition, int] = {}
    brokers = []
    for node in described.nodes:
        if node.fenced:
            brokers.append(Broker(node.id, node.rack, active=False))
            continue
        directories = (await admin.describe_log_dirs([node.id]))[node.id]
        for directory in directories:
            for tp, replica in directory.replicas.items():
                if leaders.get(tp) == node.id:
                    sizes[tp] = replica.size
                else:  # used if the leader has no answer
                    sizes.setdefault(tp, replica.size)
        usable = any(directory.error is None and not directory.cordoned for directory in directories)
        brokers.append(Broker(node.id, node.rack, usable, capacity_of(directories, disk_limit)))
    builder = ClusterBuilder(brokers)
    for name, topic in topics.items():
        for p in topic.partitions:
            bytes_of = sizes.get(TopicPartition(name, p.partition), 0)
            builder.add(name, p.partition, p.replicas, p.leader, bytes_of)
    return builder.build()


async def describe_brokers(admin: AdminClient) -> ClusterDescription:
    """Returns the registered brokers, or the available ones from a cluster before 4.0."""
    try:
        return await admin.describe_cluster(fenced=True)
    except UnsupportedVersion:
        return await admin.describe_cluster()


def capacity_of(directories: list[LogDirDescription], disk_limit: float) -> int | None:
    """Returns how many bytes the replicas of a broker may have, or None if it does not tell.

    Directories with equal figures are taken for directories of one volume. What others than replicas have
    written to it counts.
    """
    healthy = [directory for directory in directories if directory.error is None]
    if not healthy or any(directory.total_bytes < 0 for directory in healthy):
        return None
    volumes = {(directory.total_bytes, directory.usable_bytes) for directory in healthy}
    held = sum(replica.size for directory in healthy for replica in directory.replicas.values())
    room = sum(usable - round(total * (1 - disk_limit)) for total, usable in volumes)
    return max(0, held + room)
