"""kafka-broker-api-versions: prints the APIs and versions of every broker. Since Kafka 4.4 it is called
`kafka-cluster api-versions`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from quorate.admin.client import AdminClient
from quorate.admin.errors import KafkaError, NetError, error_text
from quorate.protocol.api import REGISTRY
from quorate.tools.client.admin_client import add_connection, with_admin
from quorate.tools.client.options import tool_parser
from quorate.tools.command_line import ToolError, run


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    parser = tool_parser(
        "kafka-broker-api-versions", "This tool helps to retrieve broker version information."
    )
    add_connection(parser, controllers=True)
    args = parser.parse_args(argv)
    print(
        "WARNING: kafka-broker-api-versions is deprecated and will be removed in the next major release. "
        "Use 'kafka-cluster api-versions' instead.",
        file=sys.stderr,
    )
    try:
        return with_admin(args, lambda admin: print_versions(admin, args))
    except (KafkaError, NetError) as error:
        raise ToolError(error_text(error)) from error


async def print_versions(admin: AdminClient, args: argparse.Namespace) -> int:
    """Prints what each node serves, by node id. Returns 1 if a node did not answer."""
    listener = "controller" if args.bootstrap_controller else "broker"
    status = 0
    for node in sorted((await admin.describe_cluster()).nodes, key=lambda node: node.id):
        try:
            print(f"{node} -> {describe(await admin.api_versions(node), listener)}")
        except NetError as error:
            print(f"{node} -> ERROR: {error_text(error)}")
            status = 1
    return status


def describe(versions: Mapping[int, tuple[int, int]], listener: str = "broker") -> str:
    """Returns a line for each API that the node serves or that this client knows."""
    lines: dict[int, str] = {
        key: f"{spec.name}({key}): UNSUPPORTED"
        for key, spec in REGISTRY.items()
        if listener in spec.listeners
    }
    for key, (low, high) in versions.items():
        spec = REGISTRY.get(key)
        shown = str(low) if low == high else f"{low} to {high}"
        if spec is None:
            lines[key] = f"UNKNOWN({key}): {shown}"
            continue
        if spec.max_version < low:
            usable = "unusable: node too new"
        elif high < spec.min_version:
            usable = "unusable: node too old"
        else:
            usable = f"usable: {min(spec.max_version, high)}"
        lines[key] = f"{spec.name}({key}): {shown} [{usable}]"
    return "(\n\t" + ",\n\t".join(lines[key] for key in sorted(lines)) + "\n)"
