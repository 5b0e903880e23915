"""kafka-cluster: prints the cluster id, the endpoints and the API versions, and unregisters nodes."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError, NetError, UnsupportedVersion, java_text
from quorate.admin.types import Node
from quorate.tools.client.admin_client import with_admin
from quorate.tools.client.options import tool_parser
from quorate.tools.cluster.broker_api_versions import print_versions
from quorate.tools.command_line import Parser, ToolError, run

_NOT_REGISTERED = (ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.CONTROLLER_ID_NOT_REGISTERED)


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _parser() -> Parser:
    parser = tool_parser("kafka-cluster", "The Kafka cluster tool.")
    commands = parser.add_subparsers(
        dest="command",
        metavar="{cluster-id,unregister,unregister-controller,list-endpoints,api-versions}",
    )
    cluster_id = commands.add_parser(
        "cluster-id", aliases=["id"], help="Get information about the ID of a cluster."
    )
    unregister = commands.add_parser("unregister", help="Unregister a broker.")
    unregister_controller = commands.add_parser("unregister-controller", help="Unregister a controller.")
    endpoints = commands.add_parser("list-endpoints", help="List endpoints")
    versions = commands.add_parser(
        "api-versions", help="Get information about the api versions of the brokers or controllers."
    )
    for command in (cluster_id, unregister, unregister_controller, endpoints, versions):
        command.add_argument("--bootstrap-server", "-b", help="Brokers to connect to, host:port,host:port.")
        command.add_argument(
            "--bootstrap-controller", "-C", help="Controllers to connect to, host:port,host:port."
        )
        command.add_argument("--command-config", "-c", help="Properties of the admin client.")
        command.add_argument("--config", help="(DEPRECATED) The same.")
    unregister.add_argument("--id", "-i", type=int, required=True, help="The ID of the broker to unregister.")
    unregister_controller.add_argument(
        "--id", "-i", type=int, required=True, help="The ID of the controller to unregister."
    )
    endpoints.add_argument("--include-fenced-brokers", action="store_true", help="List fenced brokers too.")
    endpoints.add_argument(
        "--start-time", action="store_true", help="When each node started, where the cluster reports it."
    )
    return parser


def _main(argv: Sequence[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.error("too few arguments")
    if args.config is not None:
        if args.command_config is not None:
            parser.error("--config and --command-config cannot be specified together.")
        print(
            "Option --config has been deprecated and will be removed in a future version. Use "
            "--command-config instead."
        )
        args.command_config = args.config
    work = {
        "unregister": _unregister,
        "unregister-controller": _unregister_controller,
        "list-endpoints": _endpoints,
        "api-versions": print_versions,
    }.get(args.command, _cluster_id)
    try:
        return with_admin(args, lambda admin: work(admin, args))
    except (KafkaError, NetError) as error:
        raise ToolError(java_text(error)) from error


async def _cluster_id(admin: AdminClient, args: argparse.Namespace) -> int:
    cluster = await admin.describe_cluster()
    print(
        f"Cluster ID: {cluster.cluster_id}"
        if cluster.cluster_id
        else "No cluster ID found. The Kafka version is probably too old."
    )
    return 0


async def _unregister(admin: AdminClient, args: argparse.Namespace) -> int:
    return await _remove("broker", args.id, admin.unregister_broker)


async def _unregister_controller(admin: AdminClient, args: argparse.Namespace) -> int:
    return await _remove("controller", args.id, admin.unregister_controller)


async def _remove(kind: str, node_id: int, unregister: Callable[[int], Awaitable[None]]) -> int:
    """Removes a registration. One that does not exist is no error, so that a command may be repeated."""
    try:
        await unregister(node_id)
    except UnsupportedVersion:
        print(f"The target cluster does not support the {kind} unregistration API.")
        return 0
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            print(f"The target cluster does not support the {kind} unregistration API.")
            return 0
        if error.code not in _NOT_REGISTERED:
            raise
        print(f"{kind.capitalize()} {node_id} is already unregistered.")
        return 0
    print(f"{kind.capitalize()} {node_id} is no longer registered.")
    return 0


async def _endpoints(admin: AdminClient, args: argparse.Namespace) -> int:
    controllers = args.bootstrap_controller is not None
    if controllers and args.include_fenced_brokers:
        raise ToolError(
            "The option --include-fenced-brokers is only supported with --bootstrap-server option"
        )
    nodes = (await admin.describe_cluster(fenced=args.include_fenced_brokers)).nodes
    host = max((len(node.host) for node in nodes), default=100)
    rack = max((len(node.rack) for node in nodes if node.rack), default=10)

    def line(
        id_: object, host_: str, port: object, rack_: str, state: str, kind: str, started: object
    ) -> str:
        text = f"{id_!s:<10} {host_:<{host}} {port!s:<10} {rack_:<{rack}} "
        text += f"{kind:<15}" if controllers else f"{state:<10} {kind:<15}"
        return f"{text} {started!s:<15}" if args.start_time else text

    def row(node: Node) -> str:
        state, kind = "fenced" if node.fenced else "unfenced", "controller" if controllers else "broker"
        return line(node.id, node.host, node.port, node.rack or "null", state, kind, node.start_time_ms)

    print(line("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE", "START_TIME_MS"))
    for node in nodes:
        print(row(node))
    return 0
