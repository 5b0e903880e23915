"""Asks on a terminal, for example whether a plan is to be performed."""

from __future__ import annotations

import os
import select
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
    """Returns the line that is typed after a prompt, without its end, or None if the input ends or is not a terminal.

    Called in the main thread.

    Raises KeyboardInterrupt at Ctrl-C.
    """
    if not sys.stdin.isatty():
        return None
    # A signal that arrives just before a blocking read is handled only after the next key. With the pipe,
    # `select` returns at once.
    interrupted, writing = os.pipe()
    os.set_blocking(writing, False)
    wakeup = signal.set_wakeup_fd(writing)
    # The handler of asyncio.run only cancels the task, which this call does not notice.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(prompt, end="", flush=True)
        while sys.stdin not in select.select([sys.stdin, interrupted], [], [])[0]:
            os.read(interrupted, 1)  # a signal without effect here, such as SIGWINCH
        line = sys.stdin.readline()
        return line.removesuffix("\n") if line else None
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(interrupted)
        os.close(writing)
