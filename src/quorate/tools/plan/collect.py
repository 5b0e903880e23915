"""Partitions, their bytes and the brokers of a running cluster, as the input of a plan."""

from __future__ import annotations

from quorate.admin.client import AdminClient
from quorate.admin.errors import UnsupportedVersion
from quorate.admin.types import ClusterDescription
from quorate.planner.cluster import Broker, Cluster, ClusterBuilder
from quorate.tools.command_line import ToolError
from quorate.tools.plan.log_dirs import LogDirs, capacity_of, describe_log_dirs, replica_sizes


async def collect(admin: AdminClient, disk_limit: float) -> Cluster:
    """Asks for all partitions and, broker by broker, for the bytes of replicas.

    `disk_limit` is how full the disks of a broker may be, as a fraction. Raises ToolError if partitions are
    being reassigned, because their replicas and bytes are about to change.
    """
    ongoing = await admin.list_partition_reassignments()
    if ongoing:
        raise ToolError(
            f"Partitions in a reassignment: {len(ongoing)}, among them {min(ongoing)}. Wait until that is "
            "done (kafka-reassign-partitions --list), then plan."
        )
    described = await describe_brokers(admin)
    log_dirs = await describe_log_dirs(admin, [node.id for node in described.nodes if not node.fenced])
    brokers = []
    for node in described.nodes:
        directories = log_dirs.get(node.id, [])
        usable = any(directory.error is None and not directory.cordoned for directory in directories)
        brokers.append(Broker(node.id, node.rack, usable, capacity_of(directories, disk_limit)))
    sizes = replica_sizes(log_dirs)
    builder = ClusterBuilder(brokers)
    for name, topic in (await admin.describe_all_topics()).items():
        for p in topic.partitions:
            builder.add(name, p.partition, p.replicas, p.leader, sizes.of(name, p.partition, p.leader) or 0)
    return builder.build()


async def running_log_dirs(admin: AdminClient) -> tuple[str, LogDirs]:
    """Returns the id of a cluster, and the log directories of its brokers that run."""
    described = await describe_brokers(admin)
    return described.cluster_id, await describe_log_dirs(
        admin, [node.id for node in described.nodes if not node.fenced]
    )


async def describe_brokers(admin: AdminClient) -> ClusterDescription:
    """Returns the registered brokers, or the available ones from a cluster before 4.0."""
    try:
        return await admin.describe_cluster(fenced=True)
    except UnsupportedVersion:
        return await admin.describe_cluster()
