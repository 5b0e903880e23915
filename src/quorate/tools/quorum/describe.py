"""`kafka-metadata-quorum describe`: the status of the quorum and the replication of the metadata log."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence

from quorate.admin.client import AdminClient
from quorate.admin.types import QuorumInfo, QuorumReplica
from quorate.protocol.uuids import ZERO_UUID, uuid_text
from quorate.tools.client.admin_client import with_admin
from quorate.tools.command_line import ToolError
from quorate.tools.quorum.endpoints import endpoint_text
from quorate.tools.quorum.leader_wait import with_leader

COLUMNS = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)


def describe(args: argparse.Namespace) -> int:
    """Runs the command and returns the exit status. Raises ToolError."""
    if args.status and args.replication:
        raise ToolError("Only one of --status or --replication should be specified with describe sub-command")
    if not args.status and not args.replication:
        raise ToolError("One of --status or --replication must be specified with describe sub-command")
    if args.human_readable and not args.replication:
        raise ToolError("The option --human-readable is only supported along with --replication")
    show = _print_status if args.status else _print_replication
    return with_admin(args, lambda admin: with_leader(admin, args, show(admin, args)))


def _leader(quorum: QuorumInfo) -> QuorumReplica:
    """Returns the leader. One that removes itself is listed as an observer until the change is committed."""
    for replica in (*quorum.voters, *quorum.observers):
        if replica.replica_id == quorum.leader_id:
            return replica
    raise ToolError(f"The leader {quorum.leader_id} is neither among the voters nor among the observers.")


def _lag(quorum: QuorumInfo) -> tuple[int, int]:
    """Returns the lag of the slowest voter in records and in milliseconds. Unknown milliseconds are -1."""
    leader = _leader(quorum)
    slowest = min(quorum.voters, key=lambda replica: replica.log_end_offset)
    behind_ms = 0
    if slowest is not leader and slowest.log_end_offset != leader.log_end_offset:
        known = leader.last_caught_up_ms >= 0 and slowest.last_caught_up_ms >= 0
        behind_ms = leader.last_caught_up_ms - slowest.last_caught_up_ms if known else -1
    return leader.log_end_offset - slowest.log_end_offset, behind_ms


def _replica(quorum: QuorumInfo, replica: QuorumReplica) -> dict[str, object]:
    shown: dict[str, object] = {"id": replica.replica_id}
    if replica.directory_id != ZERO_UUID:
        shown["directoryId"] = uuid_text(replica.directory_id)
    endpoints = quorum.endpoints.get(replica.replica_id, ())
    if endpoints:
        shown["endpoints"] = [endpoint_text(*endpoint) for endpoint in endpoints]
    return shown


def _replicas(quorum: QuorumInfo, replicas: Iterable[QuorumReplica]) -> str:
    return f"[{', '.join(json.dumps(_replica(quorum, replica)) for replica in replicas)}]"


async def _print_status(admin: AdminClient, args: argparse.Namespace) -> int:
    cluster = await admin.describe_cluster()
    quorum = await admin.describe_quorum()
    lag, lag_ms = _lag(quorum)
    if args.json:
        print(
            json.dumps(
                {
                    "clusterId": cluster.cluster_id,
                    "leaderId": quorum.leader_id,
                    "leaderEpoch": quorum.leader_epoch,
                    "highWatermark": quorum.high_watermark,
                    "maxFollowerLag": lag,
                    "maxFollowerLagTimeMs": lag_ms,
                    "currentVoters": [_replica(quorum, replica) for replica in quorum.voters],
                    "currentObservers": [_replica(quorum, replica) for replica in quorum.observers],
                    "uncommittedAddedVoters": _uncommitted(quorum, quorum.adding),
                    "uncommittedRemovedVoters": _uncommitted(quorum, quorum.removing),
                }
            )
        )
        return 0
    for label, value in (
        ("ClusterId:", cluster.cluster_id),
        ("LeaderId:", quorum.leader_id),
        ("LeaderEpoch:", quorum.leader_epoch),
        ("HighWatermark:", quorum.high_watermark),
        ("MaxFollowerLag:", lag),
        ("MaxFollowerLagTimeMs:", lag_ms),
        ("CurrentVoters:", _replicas(quorum, quorum.voters)),
        ("CurrentObservers:", _replicas(quorum, quorum.observers)),
    ):
        print(f"{label:<24}{value}")
    for label, keys in (
        ("UncommittedAddedVoter:", quorum.adding),
        ("UncommittedRemovedVoter:", quorum.removing),
    ):
        for voter in _uncommitted(quorum, keys) or ():
            print(f"{label:<26}{json.dumps(voter)}")
    return 0


def _uncommitted(
    quorum: QuorumInfo, keys: Iterable[tuple[int, bytes]] | None
) -> list[dict[str, object]] | None:
    """Returns the voters of an uncommitted change, or None if the leader does not report them."""
    return None if keys is None else [_replica(quorum, QuorumReplica(i, d, -1)) for i, d in keys]


async def _print_replication(admin: AdminClient, args: argparse.Namespace) -> int:
    quorum = await admin.describe_quorum()
    leader = _leader(quorum)
    now_ms = time.time_ns() // 1_000_000
    ordered = [(leader, "Leader")]
    ordered += [(replica, "Follower") for replica in quorum.voters if replica is not leader]
    ordered += [(replica, "Observer") for replica in quorum.observers if replica is not leader]

    def shown(timestamp_ms: int, what: str) -> object:
        if timestamp_ms < 0 or not args.human_readable:
            return timestamp_ms
        if not 0 < timestamp_ms <= now_ms:
            raise ToolError(
                "Error while computing relative time, possible drift in system clock. "
                f"Current timestamp is {now_ms}, {what} timestamp is {timestamp_ms}"
            )
        return f"{now_ms - timestamp_ms} ms ago"

    rows = [
        [
            replica.replica_id, uuid_text(replica.directory_id), replica.log_end_offset,
            leader.log_end_offset - replica.log_end_offset, shown(replica.last_fetch_ms, "last fetch"),
            shown(replica.last_caught_up_ms, "last caught up"), status,
        ]
        for replica, status in ordered
    ]  # fmt: skip
    if args.json:
        keys = [column[0].lower() + column[1:] for column in COLUMNS]
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows]))
    else:
        print(_table(COLUMNS, rows))
    return 0


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Pads each cell to the width of its column and appends a tab, as Kafka's tool does."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return "\n".join(
        "".join(cell.ljust(width) + "\t" for cell, width in zip(row, widths, strict=True)) for row in cells
    )
