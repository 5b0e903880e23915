"""Asks on a terminal whether a plan is to be performed."""

from __future__ import annotations

import signal
import sys

from quorate.tools.command_line import ToolError

NOBODY_ASKED = "Nothing was done: give --yes to perform the plan, or --dry-run to show it only."


def confirm() -> None:
    """Returns if the answer is yes. Called in the main thread.

    Raises ToolError if the answer is no, the input ends, or nobody can be asked; KeyboardInterrupt at Ctrl-C.
    """
    sys.stdout.flush()
    if not sys.stdin.isatty():
        raise ToolError(NOBODY_ASKED)
    # The handler of asyncio.run only cancels the task, which this call does not notice.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        answer = input("Proceed? [y/N] ")
    except EOFError:
        print()
        answer = ""
    finally:
        signal.signal(signal.SIGINT, handler)
    if answer.strip().lower() not in ("y", "yes"):
        raise ToolError("Nothing was done.")
