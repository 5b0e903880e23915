"""What the tools share that talk to a running cluster: connection options, client properties, the admin
client, padded tables."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from quorate.admin.client import AdminClient
from quorate.tools.client_options import INTERNAL_TOPICS, key_values, read_properties, tool_parser
from quorate.tools.common import ToolError

__all__ = [
    "INTERNAL_TOPICS", "add_connection", "admin_client", "key_values", "name_filter", "read_properties", "table", "tool_parser",
    "with_admin",
]  # fmt: skip

T = TypeVar("T")


def add_connection(
    parser: argparse.ArgumentParser, *, controllers: bool = False, config_option: str = "--command-config"
) -> None:
    """--bootstrap-server, --command-config and, where a controller can be asked too,
    --bootstrap-controller."""
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
    """The client that the connection options ask for. Raises ToolError."""
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
    """Runs `work` with a client that is closed at its end."""

    async def go() -> T:
        async with admin_client(args) as admin:
            return await work(admin)

    return asyncio.run(go())


def name_filter(pattern: str | None) -> Callable[[str], bool]:
    """Names that Kafka's include list lets through: a regular expression of the whole name, commas for
    alternatives."""
    if pattern is None:
        return lambda _: True
    text = pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        compiled = re.compile(text)
    except re.error as error:
        raise ToolError(f"{text} is an invalid regex: {error}") from error
    return lambda name: compiled.fullmatch(name) is not None


def table(header: Sequence[str], rows: Sequence[Sequence[object]], *, end: str = "") -> str:
    """Cells padded to the widest of their column and followed by a tab, as Kafka's quorum tool prints
    them."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = (
        "".join(cell.ljust(width) + "\t" for cell, width in zip(row, widths, strict=True)) for row in cells
    )
    return "\n".join(lines) + end
