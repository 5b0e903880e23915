"""kafka-metadata-quorum: describes the metadata quorum, and adds and removes its voters (KIP-595,
KIP-853).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quorate.admin.errors import KafkaError, NetError, java_text
from quorate.lazy import lazy_modules
from quorate.tools.client.admin_client import add_connection
from quorate.tools.client.options import tool_parser
from quorate.tools.command_line import Parser, ToolError, run

if TYPE_CHECKING:
    from quorate.tools.quorum import add_controller, describe, remove_controller
else:
    add_controller, describe, remove_controller = lazy_modules(
        "quorate.tools.quorum", "add_controller", "describe", "remove_controller"
    )


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _parser() -> Parser:
    parser = tool_parser("kafka-metadata-quorum", "This tool describes kraft metadata quorum status.")
    add_connection(parser, controllers=True)
    commands = parser.add_subparsers(dest="command", metavar="{describe,add-controller,remove-controller}")
    describing = commands.add_parser("describe", help="Describe the metadata quorum info")
    describing.add_argument("--status", action="store_true", help="A short summary of the quorum.")
    describing.add_argument("--replication", action="store_true", help="How far each replica has got.")
    describing.add_argument("--human-readable", action="store_true", help="Times as ages.")
    describing.add_argument("--json", action="store_true", help="The same as one JSON object.")
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
    remove.add_argument(
        "--unregister",
        action="store_true",
        help="Also unregister the controller after it has been removed from the voter set.",
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
        match args.command:
            case "describe":
                return describe.describe(args)
            case "add-controller":
                return add_controller.add_controller(args)
            case _:
                return remove_controller.remove_controller(args)
    except (KafkaError, NetError) as error:
        raise ToolError(java_text(error)) from error
