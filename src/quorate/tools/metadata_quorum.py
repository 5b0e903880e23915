"""kafka-metadata-quorum: describes the quorum of the metadata log, adds and removes its controllers."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError, NetError, java_text
from quorate.admin.types import QuorumInfo, QuorumReplica
from quorate.protocol.uuids import ZERO_UUID, parse_uuid, uuid_text
from quorate.tools.client_common import add_connection, read_properties, table, tool_parser, with_admin
from quorate.tools.common import Parser, ToolError, run

T = TypeVar("T")

COLUMNS = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _parser() -> Parser:
    parser = tool_parser("kafka-metadata-quorum", "This tool describes kraft metadata quorum status.")
    add_connection(parser, controllers=True)
    commands = parser.add_subparsers(dest="command", metavar="{describe,add-controller,remove-controller}")
    describe = commands.add_parser("describe", help="Describe the metadata quorum info")
    describe.add_argument("--status", action="store_true", help="A short summary of the quorum.")
    describe.add_argument("--replication", action="store_true", help="How far each replica has got.")
    describe.add_argument("--human-readable", action="store_true", help="Times as ages.")
    describe.add_argument("--json", action="store_true", help="The same as one JSON object.")
    add = commands.add_parser("add-controller", help="Add a controller to the KRaft controller cluster")
    add.add_argument(
        "--config", dest="controller_config", help="The controller's properties, instead of --command-config."
    )
    add.add_argument(
        "--controller-id",
        "-i",
        type=int,
        help="Instead of properties: a controller that runs and is known as an observer.",
    )
    remove = commands.add_parser(
        "remove-controller", help="Remove a controller from the KRaft controller cluster"
    )
    remove.add_argument(
        "--controller-id", "-i", type=int, required=True, help="The id of the controller to remove."
    )
    remove.add_argument(
        "--controller-directory-id",
        "--controller-uuid",
        "-d",
        help="The directory ID of the controller to remove; by default that of the voter with this id.",
    )
    for command in (add, remove):
        command.add_argument(
            "--dry-run", action="store_true", help="Print what would be done, but do not do it."
        )
    return parser


def _main(argv: Sequence[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.error("too few arguments")
    try:
        return _RUN[args.command](args)
    except (KafkaError, NetError) as error:
        raise ToolError(java_text(error)) from error


# -- describe
# --------------------------------------------------------------------------------------------------


def _describe(args: argparse.Namespace) -> int:
    if args.status and args.replication:
        raise ToolError("Only one of --status or --replication should be specified with describe sub-command")
    if not args.status and not args.replication:
        raise ToolError("One of --status or --replication must be specified with describe sub-command")
    if args.human_readable and not args.replication:
        raise ToolError("The option --human-readable is only supported along with --replication")
    print_it = _print_status if args.status else _print_replication
    return with_admin(args, lambda admin: _unless_leaderless(admin, args, print_it(admin, args)))


LEADER_S = 4.0
"""How long a leader is waited for: an election takes one or two seconds."""

PROBE_S = 2.0
"""How long each bootstrap server is then asked."""


async def _unless_leaderless(admin: AdminClient, args: argparse.Namespace, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which must be a question that can be broken off. Raises ToolError with the
    answer of each bootstrap server when it takes longer than a leader should take to be elected, and
    some of them answer but none of them leads."""
    if "default.api.timeout.ms" in read_properties(args.command_config):  # who sets it wants to wait so long
        return await work
    task = asyncio.ensure_future(work)
    try:
        while True:
            await asyncio.wait([task], timeout=LEADER_S)
            if task.done():
                return task.result()
            said = await admin.probe_quorum(PROBE_S)
            if (
                task.done()
                or None in said.values()
                or not any(isinstance(e, KafkaError) for e in said.values())
            ):
                continue
            lines = [f"  {where}: {_plain(error)}" for where, error in said.items() if error is not None]
            raise ToolError(
                f"No leader of the metadata quorum has answered within {LEADER_S:g} s. What was asked said:\n"
                + "\n".join(lines)
            )
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


def _plain(error: KafkaError | NetError) -> str:
    return (error.message if isinstance(error, KafkaError) else None) or java_text(error)


def _leader(quorum: QuorumInfo) -> QuorumReplica:
    """A leader that removes itself is an observer until that is committed."""
    for replica in (*quorum.voters, *quorum.observers):
        if replica.replica_id == quorum.leader_id:
            return replica
    raise ToolError(f"The leader {quorum.leader_id} is neither among the voters nor among the observers.")


def _lag(quorum: QuorumInfo) -> tuple[int, int]:
    """(records, milliseconds) by which the slowest voter is behind; -1 ms where not known."""
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
        shown["endpoints"] = [address(*endpoint) for endpoint in endpoints]
    return shown


def address(listener: str, host: str, port: int) -> str:
    """ "CONTROLLER://[::1]:9093"."""
    return f"{listener}://{f'[{host}]' if ':' in host else host}:{port}"


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
    """None where the leader does not say."""
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
        print(table(COLUMNS, rows))
    return 0


# -- membership
# --------------------------------------------------------------------------------------------------


def controller_id(properties: Mapping[str, str]) -> int:
    """node.id of a controller's configuration. Raises ToolError."""
    suspicion = "Is this a valid controller configuration file?"
    text = properties.get("node.id")
    if text is None:
        raise ToolError(f"node.id not found in configuration file. {suspicion}")
    if not text.strip().isdigit():
        raise ToolError(f"node.id was negative in configuration file. {suspicion}")
    if "controller" not in properties.get("process.roles", ""):
        raise ToolError(f"process.roles did not contain 'controller' in configuration file. {suspicion}")
    return int(text)


def metadata_directory(properties: Mapping[str, str]) -> tuple[Path, dict[str, str]]:
    """meta.properties of the formatted metadata directory that a configuration names: where it is, and
    what it says. Raises ToolError, also when it is another node's."""
    directory = (
        properties.get("metadata.log.dir")
        or properties.get("log.dirs", properties.get("log.dir", "")).split(",")[0].strip()
    )
    if not directory:
        raise ToolError(
            "Neither metadata.log.dir nor log.dirs were found. Is this a valid controller configuration file?"
        )
    path = Path(directory) / "meta.properties"
    found = read_properties(str(path))
    if "directory.id" not in found:
        raise ToolError(f"No directory id found in {directory}")
    own, configured = found.get("node.id", "").strip(), properties.get("node.id", "").strip()
    if own != configured:
        raise ToolError(
            f"{path} belongs to node.id {own or '(none)'}, the configuration to node.id {configured}: "
            "name the configuration with which this directory was formatted"
        )
    return path, found


def controller_endpoints(properties: Mapping[str, str]) -> list[tuple[str, str, int]]:
    """(listener, host, port) of the controller listeners, as advertised where that is said. Raises
    ToolError."""
    from quorate.config.listeners import parse_listeners

    known: dict[str, tuple[str, str, int]] = {}
    for key in ("listeners", "advertised.listeners"):
        text = properties.get(key, "")
        protocols = dict.fromkeys(
            (part.split("://")[0].strip().upper() for part in text.split(",")), 0
        )  # any will do here
        for endpoint in parse_listeners(key, text, protocols, distinct_ports=False):
            known[endpoint.name] = (endpoint.name, endpoint.host or "localhost", endpoint.port)
    names = properties.get("controller.listener.names")
    if not names:
        raise ToolError(
            "controller.listener.names was not found. Is this a valid controller configuration file?"
        )
    found = []
    for name in (name.strip().upper() for name in names.split(",")):
        if name not in known:
            raise ToolError(f"Cannot find information about controller listener name: {name}")
        found.append(known[name])
    return found


def _add(args: argparse.Namespace) -> int:
    if args.controller_config is not None:
        args.command_config = args.controller_config
    if args.controller_id is not None:
        return with_admin(args, lambda admin: _add_known(admin, args))
    if args.command_config is None:
        raise ToolError(
            "You must supply the configuration file of the controller you are adding when using "
            "add-controller, "
            "or its --controller-id if it is running."
        )
    properties = read_properties(args.command_config)
    node_id, (path, found) = controller_id(properties), metadata_directory(properties)
    directory_id, cluster_id = parse_uuid(found["directory.id"]), found.get("cluster.id", "").strip()
    endpoints = controller_endpoints(properties)

    async def add(admin: AdminClient) -> None:
        await _unless_leaderless(admin, args, admin.describe_quorum())
        theirs = (await admin.describe_cluster()).cluster_id
        if cluster_id != theirs:
            raise ToolError(
                f"{path} belongs to cluster {cluster_id}, and this is cluster {theirs}: ask a node of the "
                "controller's own "
                f"cluster, or format its directories anew with --cluster-id {theirs} --no-initial-controllers"
            )
        await _add_voter(admin, node_id, directory_id, endpoints)

    if not args.dry_run:
        with_admin(args, add)
    _say_added(args, node_id, directory_id, endpoints)
    return 0


LISTENS_WITHIN_S = 3.0


async def _add_voter(
    admin: AdminClient, node_id: int, directory_id: bytes, endpoints: Sequence[tuple[str, str, int]]
) -> None:
    """Warns at once when nobody answers where the leader is going to ask: it would go on trying for
    half a minute."""
    from quorate.net.client import Connection

    where = address(*endpoints[0])
    try:
        connection = await Connection.connect(
            *endpoints[0][1:], client_id="kafka-metadata-quorum", timeout_s=LISTENS_WITHIN_S
        )
        connection.close()
    except NetError as error:
        await _refuse_static(admin)
        print(
            f"Warning: {error}. The leader asks controller {node_id} at {where}, for up to 30 s: start it, "
            "or correct its "
            "listeners (advertised.listeners, if other hosts know it by another name)",
            file=sys.stderr,
        )
    await admin.add_raft_voter(node_id, directory_id, endpoints)


async def _refuse_static(admin: AdminClient) -> None:
    """Raises ToolError where no voter can be added at all: whether the new controller runs does not
    matter then."""
    if (await admin.describe_features()).finalized.get("kraft.version", 0) < 1:
        raise ToolError(
            "org.apache.kafka.common.errors.UnsupportedVersionException: voters can be changed from "
            "kraft.version 1 on, it is 0; "
            "kafka-features upgrade --feature kraft.version=1"
        )


def _say_added(
    args: argparse.Namespace, node_id: int, directory_id: bytes, endpoints: Sequence[tuple[str, str, int]]
) -> None:
    shown = ", ".join(address(*endpoint) for endpoint in endpoints)
    verb = "DRY RUN of adding" if args.dry_run else "Added"
    print(f"{verb} controller {node_id} with directory id {uuid_text(directory_id)} and endpoints: {shown}")


async def _add_known(admin: AdminClient, args: argparse.Namespace) -> int:
    """A controller that fetches already: the cluster knows its directory id, and its registration where
    it listens."""
    node_id = args.controller_id
    quorum = await _unless_leaderless(admin, args, admin.describe_quorum())
    if any(voter.replica_id == node_id for voter in quorum.voters):
        raise ToolError(f"Controller {node_id} is a voter already.")
    living = [o for o in quorum.observers if o.replica_id == node_id and o.directory_id != ZERO_UUID]
    if not living:
        await _refuse_static(admin)
        raise ToolError(
            f"No controller {node_id} is fetching from the leader. Start it, or supply its --command-config."
        )
    newest = max(living, key=lambda replica: replica.last_fetch_ms)
    endpoints = [
        (listener, host, port) for listener, host, port in await _registered(admin, args, quorum, node_id)
    ]
    if not args.dry_run:
        await _add_voter(admin, node_id, newest.directory_id, endpoints)
    _say_added(args, node_id, newest.directory_id, endpoints)
    return 0


async def _registered(
    admin: AdminClient, args: argparse.Namespace, quorum: QuorumInfo, node_id: int
) -> list[tuple[str, str, int]]:
    """Where a registered controller listens, under the name by which the voters reach one another.
    Raises ToolError."""
    if not args.bootstrap_controller:
        raise ToolError(
            "Brokers do not tell where controllers listen: use --bootstrap-controller, or supply "
            "--command-config."
        )
    cluster = await admin.describe_cluster()
    names = [endpoints[0][0] for endpoints in quorum.endpoints.values() if endpoints]
    for node in cluster.nodes:
        if node.id == node_id and names:
            return [(names[0], node.host, node.port)]
    raise ToolError(
        f"Controller {node_id} has not registered yet: try again in a moment, or supply its --command-config."
    )


@contextmanager
def _telling_what_is_open(args: argparse.Namespace, what: str) -> Iterator[None]:
    """An error after which nobody knows whether the change is in the log, and will be committed, ends
    with how to look."""
    try:
        yield
    except (KafkaError, NetError) as error:
        if isinstance(error, KafkaError) and not _leaves_open(error):
            raise
        option = "--bootstrap-controller" if args.bootstrap_controller else "--bootstrap-server"
        where = args.bootstrap_controller or args.bootstrap_server
        raise ToolError(
            f"{java_text(error).rstrip('.')}. This leaves open what becomes of it: {what}, as soon as a "
            "majority of the voters "
            f"runs. To look: kafka-metadata-quorum {option} {where} describe --status "
            "(UncommittedRemovedVoter: not yet)"
        ) from error


def _leaves_open(error: KafkaError) -> bool:
    match error.code:
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.NOT_CONTROLLER:
            return True  # the leader was lost, perhaps when it had written the change
        case (
            ErrorCode.REQUEST_TIMED_OUT
        ):  # is also a leader's answer when it will not even begin, with the reason
            return not error.message or error.message.endswith("to be committed")
    return False


RUNS_MS = 2000  # a controller that runs fetches every half second at the latest


def _remove(args: argparse.Namespace) -> int:
    if args.controller_id < 0:
        raise ToolError(f"Invalid negative --controller-id: {args.controller_id}")
    directory_id = None
    if args.controller_directory_id is not None:
        try:
            directory_id = parse_uuid(args.controller_directory_id)
        except ValueError as error:
            raise ToolError(f"Failed to parse --controller-directory-id: {error}") from error
    if directory_id is not None and args.dry_run:
        _say_removed(args, directory_id)
        return 0
    return with_admin(args, lambda admin: _remove_voter(admin, args, directory_id))


def _say_removed(args: argparse.Namespace, directory_id: bytes) -> None:
    verb = "DRY RUN of removing " if args.dry_run else "Removed "
    print(f"{verb} KRaft controller {args.controller_id} with directory id {uuid_text(directory_id)}")


async def _remove_voter(admin: AdminClient, args: argparse.Namespace, directory_id: bytes | None) -> int:
    quorum = await _unless_leaderless(admin, args, admin.describe_quorum())
    voter = next((v for v in quorum.voters if v.replica_id == args.controller_id), None)
    if directory_id is None:
        if voter is None:
            ids = sorted(v.replica_id for v in quorum.voters)
            raise ToolError(f"Controller {args.controller_id} is not among the voters {ids}.")
        directory_id = voter.directory_id
    if not args.dry_run:
        with _telling_what_is_open(args, f"controller {args.controller_id} may still be removed"):
            await admin.remove_raft_voter(args.controller_id, directory_id)
    _say_removed(args, directory_id)
    if voter is None or voter.directory_id != directory_id:
        return 0
    ago_ms = (
        max(v.last_fetch_ms for v in quorum.voters) - voter.last_fetch_ms
    )  # the leader's own is the time of its answer
    if ago_ms < RUNS_MS:
        print(
            f"Warning: controller {args.controller_id} fetched {ago_ms / 1000:.1f} s before it was removed. "
            "If it runs on and is "
            "one of Apache Kafka with controller.quorum.auto.join.enable, it joins again by itself "
            "(Quorate's remember that they "
            "were removed): stop it, or turn that off.",
            file=sys.stderr,
        )
    return 0


_RUN = {"describe": _describe, "add-controller": _add, "remove-controller": _remove}
