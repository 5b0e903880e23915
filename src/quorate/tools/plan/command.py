"""`quorate plan`: makes a plan, shows it and writes it, or carries one out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from quorate.admin.client import AdminClient
from quorate.admin.errors import KafkaError, NetError, error_text
from quorate.planner import report
from quorate.planner.cluster import Cluster, PlanError
from quorate.planner.plan import make_plan
from quorate.planner.request import Request
from quorate.tools.client.admin_client import with_admin
from quorate.tools.client.options import name_filter
from quorate.tools.command_line import ToolError
from quorate.tools.plan import execute, files, from_lake
from quorate.tools.plan.collect import collect


def run(args: argparse.Namespace) -> int:
    """Runs the command. Raises ToolError."""
    if (args.replication_factor is None) != (args.topic is None):
        raise ToolError("--replication-factor and --topic belong together")
    folder = args.execute or args.pause or args.cancel
    if folder is not None and (args.out or args.json or _purposes(args) or args.exclude or args.lake):
        raise ToolError("--execute, --pause and --cancel take an existing plan and no purpose")
    if args.lake is None and (args.cluster or args.at or args.log_dirs):
        raise ToolError("--cluster, --at and --log-dirs belong to --lake")
    if args.log_dirs and args.bootstrap_server:
        raise ToolError("Only one of --log-dirs and --bootstrap-server may tell the bytes of replicas")
    if args.pause is not None:
        files.read(folder).pause()
        print(f"Paused: no further wave of {folder} is started. To continue: quorate plan --execute {folder}")
        return 0
    try:
        if args.execute is not None:
            return execute.run(args, files.read(folder))
        if args.cancel is not None:
            return with_admin(args, lambda admin: execute.cancel(admin, files.read(folder)))
        if args.lake is not None:
            return _plan_from_lake(args)
        return with_admin(args, lambda admin: _plan(admin, args))
    except (KafkaError, NetError) as error:
        raise ToolError(error_text(error)) from error
    except PlanError as error:
        raise ToolError(f"No plan: {error}") from error


def _purposes(args: argparse.Namespace) -> bool:
    return bool(
        args.balance
        or args.drain
        or args.drain_rack
        or args.add is not None
        or args.replication_factor is not None
    )


async def _plan(admin: AdminClient, args: argparse.Namespace) -> int:
    cluster = await collect(admin, args.disk_limit)
    return _show(args, cluster, (await admin.describe_cluster()).cluster_id)


def _plan_from_lake(args: argparse.Namespace) -> int:
    found = from_lake.read(args)
    if args.out is not None and found.cluster_id is None:
        raise ToolError(
            f"The lake does not know the id of cluster {found.name}, without which nothing would keep the "
            "plan from another cluster: give --bootstrap-server, or no --out"
        )
    if not args.json:
        print(f"{found.where}\n")
    return _show(args, found.cluster, found.cluster_id, {"offset": found.offset})


def _show(
    args: argparse.Namespace,
    cluster: Cluster,
    cluster_id: str | None,
    members: Mapping[str, object] = MappingProxyType({}),
) -> int:
    """Makes the plan, writes it, and prints it. `members` are those of the JSON object beside the summary."""
    plan = make_plan(cluster, request_of(args, cluster))
    summary = report.summary(plan)
    if args.out is not None:
        assert cluster_id is not None
        files.write(plan, summary, cluster_id, Path(args.out))
    if args.json:
        print(json.dumps({"clusterId": cluster_id, **members, **summary}))
        return 0
    print(report.text(plan, summary))
    if args.out is not None:
        servers = args.bootstrap_server or "HOST:PORT"
        print(
            f"\nWritten to {args.out}. To carry it out: quorate plan --bootstrap-server {servers} "
            f"--execute {args.out}"
        )
    return 0


def request_of(args: argparse.Namespace, cluster: Cluster) -> Request:
    """Returns what the options ask for. Raises ToolError for racks and topics that do not exist."""
    racks = sorted({broker.rack for broker in cluster.brokers if broker.rack is not None})
    missing = [rack for rack in args.drain_rack if rack not in racks]
    if missing:
        raise ToolError(f"There is no rack {missing[0]}. The racks are: {', '.join(racks) or 'none'}")
    drain = set(args.drain or ()) | {b.id for b in cluster.brokers if b.rack in args.drain_rack}
    add = args.add
    if add is not None and not add:
        used = set(cluster.replicas)
        add = frozenset(
            b.id for at, b in enumerate(cluster.brokers) if b.active and at not in used and b.id not in drain
        )
        if not add:
            raise ToolError("--add: every active broker has replicas already. Name the brokers: --add 4,5")
    replication = {}
    if args.replication_factor is not None:
        matches = name_filter(args.topic)
        replication = {name: args.replication_factor for name in cluster.topics if matches(name)}
        if not replication:
            raise ToolError(f"No topic has a name like {args.topic}")
    excluded: frozenset[str] = frozenset()
    if args.exclude is not None:
        excluded = frozenset(filter(name_filter(args.exclude), cluster.topics))
        if not excluded:
            raise ToolError(f"--exclude: no topic has a name like {args.exclude}")
    return Request(
        balance=args.balance or not _purposes(args),
        drain=frozenset(drain),
        add=add or frozenset(),
        replication=replication,
        exclude=excluded,
        tolerance=args.tolerance,
        wave_bytes=args.wave_bytes,
        wave_moves=args.wave_moves,
    )
