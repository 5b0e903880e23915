"""`kafka-metadata-quorum add-controller`: adds a voter to the quorum (KIP-853)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from quorate.admin.client import AdminClient
from quorate.admin.errors import NetError
from quorate.admin.types import QuorumInfo
from quorate.net.client import Connection
from quorate.protocol.uuids import ZERO_UUID, parse_uuid, uuid_text
from quorate.tools.client.admin_client import with_admin
from quorate.tools.client.options import read_properties
from quorate.tools.command_line import ToolError
from quorate.tools.quorum.controller_config import controller_endpoints, controller_id, read_meta_properties
from quorate.tools.quorum.endpoints import Endpoint, endpoint_text
from quorate.tools.quorum.leader_wait import with_leader


def add_controller(args: argparse.Namespace) -> int:
    """Runs the command and returns the exit status. Raises ToolError."""
    if args.controller_config is not None:
        args.command_config = args.controller_config
    if args.controller_id is not None:
        return with_admin(args, lambda admin: _add_observer(admin, args))
    if args.command_config is None:
        raise ToolError(
            "You must supply the configuration file of the controller you are adding when using "
            "add-controller, or its --controller-id if it is running."
        )
    properties = read_properties(args.command_config)
    node_id, (path, found) = controller_id(properties), read_meta_properties(properties)
    directory_id, cluster_id = parse_uuid(found["directory.id"]), found.get("cluster.id", "").strip()
    endpoints = controller_endpoints(properties)

    async def add(admin: AdminClient) -> None:
        await with_leader(admin, args, admin.describe_quorum())
        running_id = (await admin.describe_cluster()).cluster_id
        if cluster_id != running_id:
            raise ToolError(
                f"{path} belongs to cluster {cluster_id}, and this is cluster {running_id}: ask a node of "
                "the controller's own cluster, or reformat its directories with --cluster-id "
                f"{running_id} --no-initial-controllers"
            )
        await _add_voter(admin, node_id, directory_id, endpoints)

    if not args.dry_run:
        with_admin(args, add)
    _print_added(args, node_id, directory_id, endpoints)
    return 0


CONNECT_TIMEOUT_S = 3.0


async def _add_voter(
    admin: AdminClient, node_id: int, directory_id: bytes, endpoints: Sequence[Endpoint]
) -> None:
    """Adds the voter, and warns before if its endpoint refuses connections.

    The leader sends ApiVersions to that endpoint and retries for half a minute before it answers.
    """
    where = endpoint_text(*endpoints[0])
    try:
        connection = await Connection.connect(
            *endpoints[0][1:], client_id="kafka-metadata-quorum", timeout_s=CONNECT_TIMEOUT_S
        )
        connection.close()
    except NetError as error:
        await _check_kraft_version(admin)
        print(
            f"Warning: {error}. The leader asks controller {node_id} at {where}, for up to 30 s: start "
            "it, or correct its listeners (advertised.listeners, if other hosts know it by another name)",
            file=sys.stderr,
        )
    await admin.add_raft_voter(node_id, directory_id, endpoints)


async def _check_kraft_version(admin: AdminClient) -> None:
    """Raises ToolError if kraft.version is 0, at which voters cannot be changed."""
    if (await admin.describe_features()).finalized.get("kraft.version", 0) < 1:
        raise ToolError(
            "org.apache.kafka.common.errors.UnsupportedVersionException: Cluster doesn't support "
            "adding voter because the kraft.version feature is 0. Upgrade it first: "
            "kafka-features upgrade --feature kraft.version=1"
        )


def _print_added(
    args: argparse.Namespace, node_id: int, directory_id: bytes, endpoints: Sequence[Endpoint]
) -> None:
    shown = ", ".join(endpoint_text(*endpoint) for endpoint in endpoints)
    verb = "DRY RUN of adding" if args.dry_run else "Added"
    print(f"{verb} controller {node_id} with directory id {uuid_text(directory_id)} and endpoints: {shown}")


async def _add_observer(admin: AdminClient, args: argparse.Namespace) -> int:
    """Adds a controller that already fetches from the leader.

    The leader knows its directory id, and its registration has its endpoint.
    """
    node_id = args.controller_id
    quorum = await with_leader(admin, args, admin.describe_quorum())
    if any(voter.replica_id == node_id for voter in quorum.voters):
        raise ToolError(f"Controller {node_id} is a voter already.")
    fetching = [o for o in quorum.observers if o.replica_id == node_id and o.directory_id != ZERO_UUID]
    if not fetching:
        await _check_kraft_version(admin)
        raise ToolError(
            f"No controller {node_id} is fetching from the leader. Start it, or supply its --command-config."
        )
    newest = max(fetching, key=lambda replica: replica.last_fetch_ms)
    endpoints = await _registered_endpoints(admin, args, quorum, node_id)
    if not args.dry_run:
        await _add_voter(admin, node_id, newest.directory_id, endpoints)
    _print_added(args, node_id, newest.directory_id, endpoints)
    return 0


async def _registered_endpoints(
    admin: AdminClient, args: argparse.Namespace, quorum: QuorumInfo, node_id: int
) -> list[Endpoint]:
    """Returns the endpoint of a registered controller, with the listener name that the voters use.

    Raises ToolError.
    """
    if not args.bootstrap_controller:
        raise ToolError(
            "Brokers do not report where controllers listen: use --bootstrap-controller, or supply "
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
