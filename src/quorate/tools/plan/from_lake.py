"""A cluster from the tables of a lake, as the input of a plan.

The metadata has no bytes. Those of the replicas come from a file, or from the brokers of the running cluster.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module, lazy_modules
from quorate.planner.cluster import Cluster
from quorate.tools.client.admin_client import with_admin
from quorate.tools.command_line import ToolError
from quorate.tools.lake.lake_session import lake_session
from quorate.tools.plan.collect import running_log_dirs
from quorate.tools.plan.log_dirs import LogDirs, capacities, read_log_dirs, replica_sizes

if TYPE_CHECKING:
    from quorate.pipeline import planning
    from quorate.pipeline.questions import moments
    from quorate.pipeline.tables import lake as lakes
else:
    planning = lazy_module("quorate.pipeline.planning")
    moments = lazy_module("quorate.pipeline.questions.moments")
    (lakes,) = lazy_modules("quorate.pipeline.tables", "lake")


@dataclass(frozen=True, slots=True)
class LakeCluster:
    """A cluster as it was at an offset of its metadata log. Its id is None if the lake does not know it."""

    cluster: Cluster
    cluster_id: str | None
    name: str
    offset: int

    @property
    def where(self) -> str:
        return f"Cluster {self.name} at offset {self.offset}"


def read(args: argparse.Namespace) -> LakeCluster:
    """Reads the cluster that the options name. Raises ToolError, KafkaError, NetError and LakeError."""
    running_id, log_dirs = _log_dirs(args)
    with lake_session("quorate plan") as spark:
        lake = lakes.Lake(spark, args.lake)
        name = moments.cluster_of(lake, args.cluster)
        cluster_id = planning.cluster_id_of(lake, name)
        if running_id is not None and cluster_id not in (None, running_id):
            raise ToolError(
                f"Cluster {name} in {args.lake} has the id {cluster_id}, but the brokers at "
                f"{args.bootstrap_server} belong to {running_id}"
            )
        offset = planning.planned_offset(lake, name, moments.parse_moment(args.at))
        cluster = planning.planned_cluster(
            lake,
            name,
            offset,
            sizes=replica_sizes(log_dirs),
            capacities=capacities(log_dirs, args.disk_limit),
        )
    _warn(args, cluster, log_dirs)
    return LakeCluster(cluster, cluster_id or running_id, name, offset)


def _log_dirs(args: argparse.Namespace) -> tuple[str | None, LogDirs]:
    """Returns the id of the running cluster, if one is named, and the log directories of brokers."""
    found: LogDirs = {}
    cluster_id = None
    if args.bootstrap_server is not None:
        cluster_id, found = with_admin(args, running_log_dirs)
    if args.log_dirs is not None:
        found = read_log_dirs(args.log_dirs)
    return cluster_id, found


def _warn(args: argparse.Namespace, cluster: Cluster, log_dirs: LogDirs) -> None:
    """Says on stderr which bytes are not known."""
    if not log_dirs:
        print(
            "Note: the tables have no bytes, so replicas and leaders are balanced, but not bytes. Give "
            "--log-dirs or --bootstrap-server.",
            file=sys.stderr,
        )
        return
    sizes = replica_sizes(log_dirs)
    unknown = sum(
        sizes.of(cluster.topics[topic], index, -1) is None
        for topic, index in zip(cluster.topic_of, cluster.index_of, strict=True)
    )
    if unknown:
        source = args.log_dirs or "the running brokers"
        print(
            f"Note: {unknown:,} partitions count as empty, because {source} has none of their replicas.",
            file=sys.stderr,
        )
    if args.log_dirs is not None:
        print(
            "Note: kafka-log-dirs does not tell how full disks are, so --disk-limit has no effect.",
            file=sys.stderr,
        )
