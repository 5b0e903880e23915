"""Asks on a terminal, for example whether a plan is to be performed."""

from __future__ import annotations

import signal
import sys

from quorate.tools.command_line import ToolError

NOBODY_ASKED = "Nothing was done: give --yes to perform the plan, or --dry-run to show it only."


def confirm() -> None:
    """Returns if the answer is yes. Called in the main thread.

    Raises ToolError if the answer is no, the input ends, or nobody can be asked; KeyboardInterrupt at Ctrl-C.
    """
    if not sys.stdin.isatty():
        raise ToolError(NOBODY_ASKED)
    answer = typed_line("Proceed? [y/N] ")
    if answer is None:
        print()
    if answer is None or answer.strip().lower() not in ("y", "yes"):
        raise ToolError("Nothing was done.")


def typed_line(prompt: str) -> str | None:
    """Returns the line that is typed after a prompt, or None if the input ends or is not a terminal.

    Called in the main thread.

    Raises KeyboardInterrupt at Ctrl-C.
    """
    sys.stdout.flush()
    if not sys.stdin.isatty():
        return None
    # The handler of asyncio.run only cancels the task, which this call does not notice.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input(prompt)
    except EOFError:
        return None
    finally:
        signal.signal(signal.SIGINT, handler)
