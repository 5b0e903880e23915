"""kafka-metadata-shell: shows the metadata of a cluster as a tree of directories and files."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module, lazy_modules
from quorate.tools.command_line import Parser, run

if TYPE_CHECKING:
    from quorate.tools.client import admin_client
    from quorate.tools.shell import commands, follower, interactive, nodes, source
else:
    admin_client = lazy_module("quorate.tools.client.admin_client")
    commands, follower, interactive, nodes, source = lazy_modules(
        "quorate.tools.shell", "commands", "follower", "interactive", "nodes", "source"
    )


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


class _Printer:
    """Prints the results of one command on standard output and its errors on standard error."""

    def __init__(self) -> None:
        self.failed = False

    def line(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")

    def error(self, text: str) -> None:
        self.failed = True
        print(text, file=sys.stderr)


def _main(argv: Sequence[str]) -> int:
    parser = Parser(
        "kafka-metadata-shell",
        "The Apache Kafka metadata shell: shows the metadata of a cluster as a tree of directories and "
        "files. Without a command it is interactive.",
    )
    parser.add_version()
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--snapshot", "-s", type=Path, metavar="FILE", help="The metadata snapshot file, or segment, to read."
    )
    where.add_argument(
        "--directory", "-d", type=Path, metavar="DIR",
        help="The metadata log directory to read: __cluster_metadata-0 or the directory that holds it. Its "
        "node may run.",
    )  # fmt: skip
    where.add_argument(
        "--controllers", "--bootstrap-controller", dest="bootstrap_controller", metavar="HOST:PORT,...",
        help="The controllers of a running quorum. The shell shows each change of its metadata.",
    )  # fmt: skip
    parser.add_argument(
        "--command-config", metavar="FILE", help="Properties of the client, for --controllers."
    )
    parser.add_argument(
        "command", nargs="*", metavar="command", help="The command to run: cat, find, ls or tree."
    )
    args = parser.parse_args(argv)
    if not args.command:
        print("Loading...")
    if args.bootstrap_controller is not None:
        args.bootstrap_server = None
        live = follower.Follower(lambda: admin_client.admin_client(args))
        try:
            return _serve(args, lambda: nodes.root(*live.metadata), live.notice)
        finally:
            live.close()
    # Nothing that a load creates becomes garbage, and to look for it takes a quarter of the time.
    gc.disable()
    metadata = (
        source.from_file(args.snapshot)
        if args.snapshot is not None
        else source.from_directory(args.directory)
    )
    gc.freeze()
    gc.enable()
    root = nodes.root(*metadata)
    return _serve(args, lambda: root, lambda: None)


def _serve(
    args: argparse.Namespace, tree: Callable[[], nodes.Directory], notice: Callable[[], str | None]
) -> int:
    """Runs the command of the command line, or the interactive shell."""
    if not args.command:
        interactive.run_shell(commands.State(tree, interactive.Terminal(), notice=notice))
        return 0
    printer = _Printer()
    commands.execute(commands.State(tree, printer), args.command, in_shell=False)
    sys.stdout.flush()
    return int(printer.failed)
