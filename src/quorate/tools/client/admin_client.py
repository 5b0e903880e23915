"""Connection options of the tools, and the admin client that they describe."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from quorate.admin.client import AdminClient
from quorate.tools.client.options import read_properties
from quorate.tools.command_line import ToolError

T = TypeVar("T")


def add_connection(
    parser: argparse.ArgumentParser, *, controllers: bool = False, config_option: str = "--command-config"
) -> None:
    """Adds `--bootstrap-server` and `--command-config`, and with `controllers` also
    `--bootstrap-controller`.
    """
    parser.add_argument(
        "--bootstrap-server",
        metavar="<String: server to connect to>",
        help="REQUIRED%s: the Kafka server to connect to, host:port, several separated by commas."
        % (" unless --bootstrap-controller is given" if controllers else ""),
    )
    if controllers:
        parser.add_argument(
            "--bootstrap-controller",
            metavar="<String: controller to connect to>",
            help="The KRaft controllers to connect to, host:port, instead of brokers.",
        )
    parser.add_argument(
        config_option,
        dest="command_config",
        metavar="<String: property file>",
        help="Property file with configurations for the client.",
    )


def admin_client(args: argparse.Namespace) -> AdminClient:
    """Creates the client that the connection options describe. Raises ToolError."""
    controllers = getattr(args, "bootstrap_controller", None)
    servers = args.bootstrap_server
    if servers and controllers:
        raise ToolError("Only one of --bootstrap-server and --bootstrap-controller may be given.")
    if not servers and not controllers:
        if hasattr(args, "bootstrap_controller"):
            raise ToolError("You must specify either --bootstrap-controller or --bootstrap-server.")
        raise ToolError("--bootstrap-server must be specified")
    try:
        return AdminClient.from_properties(
            read_properties(args.command_config), bootstrap_servers=servers, bootstrap_controllers=controllers
        )
    except ValueError as error:
        raise ToolError(str(error)) from error


def with_admin(args: argparse.Namespace, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Runs `work` on an event loop with an admin client, and closes the client afterwards."""

    async def run() -> T:
        async with admin_client(args) as admin:
            return await work(admin)

    return asyncio.run(run())
