"""The interactive shell: reads lines with completion and history, and runs their commands."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module
from quorate.tools.shell.commands import COMMANDS, State, execute
from quorate.tools.shell.paths import completions

if TYPE_CHECKING:
    import readline
else:
    readline = lazy_module("readline")

PROMPT = ">> "
_DELIMITERS = " \t\n"


class Terminal:
    """Prints results and errors on standard output, as a terminal shows both."""

    def line(self, text: str) -> None:
        print(text)

    def error(self, text: str) -> None:
        print(text)


def run_shell(state: State) -> None:
    """Reads and runs commands until `exit` or the end of the input."""
    lines: list[str] = []
    state.history = lambda: lines
    with suppress(ImportError):  # Python may be built without readline: no completion then
        readline.set_completer_delims(_DELIMITERS)
        readline.set_completer(completer(state, readline.get_line_buffer, readline.get_begidx))
        readline.parse_and_bind("tab: complete")
    print("[ Kafka Metadata Shell ]")
    while not state.ended:
        try:
            line = input(PROMPT)
        except KeyboardInterrupt:
            print("^C")
            continue
        except EOFError:
            return
        if not line.strip():
            continue
        lines.append(line)
        if sys.stdout.isatty():
            state.width = shutil.get_terminal_size().columns
        try:
            words = shlex.split(line)
        except ValueError as error:
            print(f"{line}: {error}")
            continue
        notice = state.notice()
        if notice is not None:
            print(notice)
        try:
            execute(state, words, in_shell=True)
        except KeyboardInterrupt:
            print("^C")


def completer(
    state: State, line: Callable[[], str], begin: Callable[[], int]
) -> Callable[[str, int], str | None]:
    """Returns a function that returns the n-th completion of a word, as readline wants it."""

    def complete(text: str, number: int) -> str | None:
        before = line()[: begin()].split()
        if not before:
            found = [f"{name} " for name in COMMANDS if name.startswith(text)]
        elif before[0] == "man" and len(before) == 1:
            found = [name for name in COMMANDS if name.startswith(text)]
        elif before[0] in COMMANDS and COMMANDS[before[0]].takes_paths:
            found = completions(state.tree(), text, state.working_directory)
        else:
            found = []
        return found[number] if number < len(found) else None

    return complete
