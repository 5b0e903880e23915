"""The commands: from their options to an operation."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from quorate.admin.errors import KafkaError, NetError, java_text
from quorate.metadata.features import KRAFT_VERSION
from quorate.tools.command_line import ToolError
from quorate.tools.operations.description import Cluster
from quorate.tools.operations.node_command import check_command
from quorate.tools.operations.observer import Observer
from quorate.tools.operations.plans.decommission import Decommission
from quorate.tools.operations.plans.dynamic_quorum import DynamicQuorum
from quorate.tools.operations.plans.replace_disk import ReplaceDisk, single_directory
from quorate.tools.operations.plans.rolling_restart import RollingRestart
from quorate.tools.operations.plans.upgrade import Upgrade, common_release, parse_release, update_features
from quorate.tools.operations.runner import Operation, run_operation

Preparation = Callable[[argparse.Namespace, Observer, Cluster], Awaitable[Operation]]


def run(name: str, args: argparse.Namespace) -> int:
    """Runs a command and returns its exit status. Raises ToolError."""
    for option in ("stop", "replace", "restart"):
        check_command(f"--{option}-command", getattr(args, f"{option}_command", None))
    prepare = _PREPARATIONS[name]
    try:
        return asyncio.run(run_operation(args, lambda observer, cluster: prepare(args, observer, cluster)))
    except (KafkaError, NetError) as error:
        raise ToolError(java_text(error)) from error


async def _rolling_restart(args: argparse.Namespace, observer: Observer, cluster: Cluster) -> Operation:
    if args.since is not None:
        await observer.read_registrations(args.since)
    return RollingRestart(
        since_ms=cluster.now_ms if args.since is None else args.since,
        nodes=args.nodes,
        brokers=not args.controllers,
        controllers=not args.brokers,
        allow_unavailable=args.allow_unavailable,
        command=args.restart_command,
        command_timeout_s=args.timeout,
    )


async def _decommission(args: argparse.Namespace, _observer: Observer, _cluster: Cluster) -> Operation:
    return Decommission(
        broker=args.broker,
        rack_aware=not args.disable_rack_aware,
        max_moves=args.max_moves,
        throttle=args.throttle,
        stop_command=args.stop_command,
        command_timeout_s=args.timeout,
    )


async def _replace_disk(args: argparse.Namespace, _observer: Observer, cluster: Cluster) -> Operation:
    return ReplaceDisk(
        node=args.node,
        directory_id=single_directory(cluster, args.node, args.directory_id, unattended=args.yes),
        allow_unavailable=args.allow_unavailable,
        stop_command=args.stop_command,
        replace_command=args.replace_command,
        command_timeout_s=args.timeout,
    )


async def _dynamic_quorum(_args: argparse.Namespace, observer: Observer, cluster: Cluster) -> Operation:
    verdict = None
    if cluster.kraft_version < 1:
        verdict = await update_features(observer, {KRAFT_VERSION: 1}, validate_only=True)
    return DynamicQuorum(await observer.static_voters(cluster), verdict)


async def _upgrade(args: argparse.Namespace, observer: Observer, cluster: Cluster) -> Operation:
    release = common_release(cluster) if args.release_version is None else parse_release(args.release_version)
    changes = Upgrade(release).changes(cluster)
    return Upgrade(release, await update_features(observer, changes, validate_only=True))


_PREPARATIONS: dict[str, Preparation] = {
    "rolling_restart": _rolling_restart,
    "decommission": _decommission,
    "replace_disk": _replace_disk,
    "dynamic_quorum": _dynamic_quorum,
    "upgrade": _upgrade,
}
