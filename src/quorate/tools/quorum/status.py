"""`quorate status`: all nodes of a cluster in one table."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from quorate.admin.errors import KafkaError, NetError, java_text
from quorate.admin.types import FETCHING_MS
from quorate.dataclass import dataclass
from quorate.protocol.uuids import ZERO_UUID, uuid_text
from quorate.tools.client.admin_client import with_admin
from quorate.tools.command_line import ToolError
from quorate.tools.quorum.leader_wait import with_leader

if TYPE_CHECKING:
    from quorate.admin.client import AdminClient
    from quorate.admin.types import ClusterDescription, QuorumInfo, QuorumReplica


_NOT_FOLLOWING = "not following"


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What the cluster reports about one node. A value is None if it does not report it: Apache Kafka reports
    neither snapshots nor start times."""

    id: int
    role: str
    """broker, controller or both. "unknown" for an observer that is no registered broker: it may be a
    controller that is no voter. "former" for a node that was removed, or a directory that its node no longer
    uses: the leader forgets it five minutes after its last Fetch."""
    state: str
    """The state in the quorum, and for a broker whether it is active or fenced. "not following" if the
    replica does not fetch."""
    directory_id: str | None
    lag: int | None
    """Offsets behind the end of the leader's metadata log."""
    snapshot_end_offset: int | None
    """The end offset of its newest snapshot of the metadata."""
    start_time_ms: int | None
    uptime_s: int | None


def node_statuses(cluster: ClusterDescription, quorum: QuorumInfo, now_ms: int) -> list[NodeStatus]:
    """The nodes by id. A node id that several replicas use is there once for each of them."""
    voters = {(replica.replica_id, replica.directory_id) for replica in quorum.voters}
    described = {node.id: node for node in cluster.nodes}
    of_controllers = cluster.endpoint_type == 2
    end = max((r.log_end_offset for r in quorum.voters if r.replica_id == quorum.leader_id), default=-1)
    found = []
    replicas = [*quorum.voters, *quorum.observers]
    following = {r.replica_id for r in replicas if _quorum_state(quorum, r, is_voter=True) != _NOT_FOLLOWING}
    for replica in replicas:
        node = described.get(replica.replica_id)
        is_voter = (replica.replica_id, replica.directory_id) in voters
        roles = [] if node is None else ["controller" if of_controllers else "broker"]
        if is_voter and "controller" not in roles:
            roles.append("controller")
        state = _quorum_state(quorum, replica, is_voter=is_voter)
        registered = of_controllers or node is not None  # a controller that is asked does not name brokers
        if state == _NOT_FOLLOWING and not is_voter and (replica.replica_id in following or not registered):
            roles = ["former"]
        elif node is not None and not of_controllers:
            state += ", fenced" if node.fenced else ", active"
        found.append(
            _status(
                replica.replica_id,
                "+".join(roles) or "unknown",
                state,
                None if replica.directory_id == ZERO_UUID else uuid_text(replica.directory_id),
                end - replica.log_end_offset if min(end, replica.log_end_offset) >= 0 else None,
                replica.snapshot_end_offset if replica.snapshot_end_offset >= 0 else None,
                replica.start_time_ms or (0 if node is None else node.start_time_ms),
                now_ms,
            )
        )
    for node in cluster.nodes:  # the leader forgets an observer that has not fetched for minutes
        if all(replica.replica_id != node.id for replica in replicas):
            state = f"{_NOT_FOLLOWING}, " + ("fenced" if node.fenced else "active")
            role = "controller" if of_controllers else "broker"
            found.append(_status(node.id, role, state, None, None, None, node.start_time_ms, now_ms))
    return sorted(found, key=lambda status: status.id)


def _quorum_state(quorum: QuorumInfo, replica: QuorumReplica, *, is_voter: bool) -> str:
    if is_voter and replica.replica_id == quorum.leader_id:
        return "leader"
    silent_ms = quorum.silent_ms(replica)
    if silent_ms is not None and silent_ms > FETCHING_MS:
        return _NOT_FOLLOWING
    return "follower" if is_voter else "observer"


def _status(
    node_id: int,
    role: str,
    state: str,
    directory: str | None,
    lag: int | None,
    snapshot: int | None,
    start_ms: int,
    now_ms: int,
) -> NodeStatus:
    uptime_s = max(0, now_ms - start_ms) // 1000 if start_ms > 0 else None
    started = start_ms if start_ms > 0 else None
    return NodeStatus(node_id, role, state, directory, lag, snapshot, started, uptime_s)


HEADER = ("NODE", "ROLE", "STATE", "DIRECTORY ID", "LAG", "SNAPSHOT", "STARTED", "UPTIME")


def table(statuses: Iterable[NodeStatus]) -> str:
    """The statuses as lines of text. "-" stands for what is not known."""
    rows: list[Sequence[str]] = [HEADER]
    for status in statuses:
        started = status.start_time_ms
        rows.append(
            (
                str(status.id),
                status.role,
                status.state,
                status.directory_id or "-",
                "-" if status.lag is None else str(status.lag),
                "-" if status.snapshot_end_offset is None else str(status.snapshot_end_offset),
                "-"
                if started is None
                else f"{datetime.fromtimestamp(started / 1000, UTC):%Y-%m-%d %H:%M:%SZ}",
                "-" if status.uptime_s is None else _duration(status.uptime_s),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _duration(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    clock = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
    return f"{days} d {clock}" if days else clock


def status(args: argparse.Namespace) -> int:
    """Runs the command. Raises ToolError."""
    try:
        return with_admin(args, lambda admin: _show(admin, args))
    except (KafkaError, NetError) as error:
        raise ToolError(java_text(error)) from error


def _members(status: NodeStatus) -> dict[str, object]:
    return {
        "nodeId": status.id,
        "role": status.role,
        "state": status.state,
        "directoryId": status.directory_id,
        "lag": status.lag,
        "snapshotEndOffset": status.snapshot_end_offset,
        "startTimeMs": status.start_time_ms,
        "uptimeSeconds": status.uptime_s,
    }


async def _show(admin: AdminClient, args: argparse.Namespace) -> int:
    """Shows the status once, or again and again. A watch does not end because the quorum has no leader."""
    while True:
        try:
            await with_leader(admin, args, _show_once(admin, args))
        except (ToolError, KafkaError, NetError) as error:
            if args.watch is None:
                raise
            print(error if isinstance(error, ToolError) else java_text(error), file=sys.stderr, flush=True)
        if args.watch is None:
            return 0
        await asyncio.sleep(args.watch)
        if not args.json:
            print()


async def _show_once(admin: AdminClient, args: argparse.Namespace) -> None:
    cluster = await admin.describe_cluster(fenced=args.bootstrap_server is not None)
    quorum = await admin.describe_quorum()
    statuses = node_statuses(cluster, quorum, time.time_ns() // 1_000_000)
    if args.json:
        document = {
            "clusterId": cluster.cluster_id,
            "leaderId": quorum.leader_id,
            "leaderEpoch": quorum.leader_epoch,
            "highWatermark": quorum.high_watermark,
            "nodes": [_members(one) for one in statuses],
        }
        print(json.dumps(document), flush=True)
        return
    print(
        f"Cluster {cluster.cluster_id}, leader {quorum.leader_id} of epoch {quorum.leader_epoch}, "
        f"high watermark {quorum.high_watermark}\n{table(statuses)}",
        flush=True,
    )
