"""Ctrl-C, Ctrl-D and answers at the question whether a plan is performed."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from textwrap import dedent

import pytest

ASK = """
    import asyncio, fcntl, signal, sys, termios
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from quorate.tools.command_line import run
    from quorate.tools.confirmation import confirm
    async def ask():
        confirm()
        print("confirmed")
        return 0
    sys.exit(run(lambda argv: asyncio.run(ask()), []))
"""


def shown_until(terminal: int, text: bytes) -> bytes:
    """What the terminal shows up to a text, or to the end of the process if it is empty."""
    shown = b""
    while not text or text not in shown:
        ready, _, _ = select.select([terminal], [], [], 30)
        assert ready, f"only {shown!r} was shown"
        try:
            shown += os.read(terminal, 1000)
        except OSError:  # the process has closed it
            assert not text, f"only {shown!r} was shown"
            break
    return shown


@pytest.mark.process
@pytest.mark.parametrize(
    ("keys", "status", "answer"),
    [
        (b"y\n", 0, b"confirmed"),
        (b"no\n", 1, b"Nothing was done."),
        (b"\x04", 1, b"Nothing was done."),
        (b"\x03", 130, b""),
    ],
    ids=["yes", "no", "Ctrl-D", "Ctrl-C"],
)
def test_the_question_can_be_answered_and_left(keys: bytes, status: int, answer: bytes) -> None:
    terminal, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", dedent(ASK)], stdin=other, stdout=other, stderr=other, start_new_session=True
    )
    os.close(other)
    try:
        shown_until(terminal, b"[y/N]")
        os.write(terminal, keys)
        shown = shown_until(terminal, b"")
        assert process.wait(30) == status
    finally:
        process.kill()
        os.close(terminal)
    assert answer in shown
    assert b"Traceback" not in shown
