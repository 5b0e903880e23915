"""quorate: the commands that Apache Kafka has no tool for.

Each package of commands has a function that adds its options without importing what the commands need.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from quorate.lazy import lazy_module
from quorate.tools.changes.options import add_metadata_log
from quorate.tools.command_line import Parser, run
from quorate.tools.doctor.options import add_doctor
from quorate.tools.operations.options import add_operations
from quorate.tools.plan.options import add_plan
from quorate.tools.quorum.status_options import add_status
from quorate.tools.up import add_up

if TYPE_CHECKING:
    from quorate.tools import shell_completion
else:
    shell_completion = lazy_module("quorate.tools.shell_completion")

_COMPLETION = """Prints a script for bash or zsh, to be sourced by the shell's start-up file."""


def _add_completion(commands: Any) -> None:
    completion = commands.add_parser(
        "completion", help="print the completion of all tools for a shell", description=_COMPLETION
    )
    completion.add_argument("shell", choices=("bash", "zsh"), help="the shell")
    completion.set_defaults(run=lambda args: shell_completion.print_script(args.shell))


_ADD: Final[tuple[Callable[[Any], None], ...]] = (
    add_up, _add_completion, add_status, add_doctor, add_metadata_log, add_plan, add_operations,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    parser = Parser("quorate", "A Kafka cluster in Python, and what makes it pleasant to run.")
    parser.add_version()
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in _ADD:
        add(commands)
    args = parser.parse_args(argv)
    args.argv = list(argv)
    status: int = args.run(args)
    return status


if __name__ == "__main__":
    sys.exit(main())
