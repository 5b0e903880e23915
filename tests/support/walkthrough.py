"""Runs the commands of a document in a shell, on nodes of their own, and writes their output into
the document.

    python -m tests.support.walkthrough docs/operating.md

A fenced block that contains lines with a `$ ` is a transcript: its commands run in order, in one
folder and one shell. A fenced block that begins with `# FILE NAME` is written to that file.
Comments of the document act in between:

    <!-- wait: COMMAND -->      repeats a command until its status is 0
    <!-- run: COMMAND -->       runs a command that readers need not see
    <!-- statuses: 0 1 -->      the statuses of the commands of the next transcript that are not all 0

The nodes run on 127.0.0.1, 127.0.0.2, ... at free ports, in a folder that is removed afterwards. In
the document they have the ports and the folder that it names.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quorate.tools.server_stop import running_nodes
from tests.support.cluster import BIN, free_ports
from tests.support.java import ROOT

FOLDER = "/srv/kafka"
"""The folder of the walk-through in the document."""

PORTS = ("9092", "9093", "9404")
"""The ports in the document."""

CACHE = ROOT / ".cache"
"""Where the folder is. `quorate doctor` warns of one in /tmp."""

COMMAND_TIMEOUT_S = 150.0
_FENCE, _PROMPT, _FILE = "```", "$ ", "# FILE "
_ACTION = re.compile(r"<!-- (wait|run|statuses): (.*) -->")


@dataclass
class Shell:
    """A bash in a folder, which runs one command after the other."""

    folder: Path
    bytecode: Path
    """Where the tools and nodes keep their compiled modules, as an installed package has them
    beside its sources."""
    names: dict[str, str] = field(default_factory=dict)
    """Texts of the document, and what stands for them in this run."""

    def __post_init__(self) -> None:
        ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        self.names = {f":{documented}": f":{port}" for documented, port in ports.items()}
        self.names[FOLDER] = str(self.folder)
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PATH"] = f"{BIN}{os.pathsep}{environment['PATH']}"
        environment["PYTHONPYCACHEPREFIX"] = str(self.bytecode)
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def real(self, text: str) -> str:
        """The text as it is in this run."""
        for documented, real in self.names.items():
            text = text.replace(documented, real)
        return text

    def documented(self, text: str) -> str:
        """The text as it is in the document."""
        for documented, real in self.names.items():
            text = text.replace(real, documented)
        return text

    def run(self, command: str) -> tuple[int, str]:
        """Runs a command of the document. Returns its status and its output, as in the document."""
        assert self._process.stdin is not None and self._process.stdout is not None
        mark = f"--- end of command {time.monotonic_ns()} "
        self._process.stdin.write(
            f"{{ {self.real(command)}\n}} </dev/null\nprintf '\\n{mark}%d\\n' $?\n".encode()
        )
        self._process.stdin.flush()
        output, deadline = b"", time.monotonic() + COMMAND_TIMEOUT_S
        while not (found := re.search(rb"\n" + mark.encode() + rb"(\d+)\n", output)):
            ready, _, _ = select.select([self._process.stdout], [], [], deadline - time.monotonic())
            if not ready:
                raise AssertionError(f"no end within {COMMAND_TIMEOUT_S} s: {command}\n{output.decode()}")
            part = os.read(self._process.stdout.fileno(), 65536)
            assert part, f"the shell has ended: {command}\n{output.decode()}"
            output += part
        text = output[: found.start()].decode(errors="replace").rstrip("\n")
        return int(found[1]), self.documented(text)

    def close(self) -> None:
        """Kills the nodes that were started in the folder, and ends the shell."""
        self._process.kill()
        self._process.communicate()
        for node in running_nodes():
            if self.folder in node.config.parents:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(node.pid, 9)


@dataclass(frozen=True)
class Step:
    """A command that ran, with its output in this run and in the document."""

    command: str
    output: str
    documented: str


def blocks(lines: Sequence[str]) -> Iterator[tuple[bool, list[str]]]:
    """The parts of a document: whether each is the content of a fenced block, and its lines."""
    part: list[str] = []
    inside = False
    for line in lines:
        if line.startswith(_FENCE):
            if inside:
                yield True, part
                part = [line]
            else:
                yield False, [*part, line]
                part = []
            inside = not inside
        else:
            part.append(line)
    yield False, part


def commands(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The commands of a transcript with their continuation lines, and their outputs."""
    for part in re.split(r"^\$ ", "\n".join(lines), flags=re.MULTILINE)[1:]:
        command, _, output = re.sub(r"\\\n", "\\\0", part).partition("\n")
        yield command.replace("\\\0", "\\\n"), output.rstrip("\n")


class Walkthrough:
    """A document whose commands run. `text` is the document with the output of this run."""

    def __init__(self, document: Path) -> None:
        self.steps: list[Step] = []
        self.text = ""
        self._document = document
        CACHE.mkdir(exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(dir=CACHE, prefix="walkthrough-")
        base = Path(self._folder.name).resolve()  # as the nodes name it, whatever links lead there
        (base / "kafka").mkdir()
        self._shell = Shell(base / "kafka", base / "bytecode")
        self._statuses: list[int] = []

    def run(self, progress: bool = False) -> None:
        """Runs all commands. Raises AssertionError if the status of one is not as it should be."""
        lines: list[str] = []
        for is_block, part in blocks(self._document.read_text().splitlines()):
            if not is_block:
                for action in map(_ACTION.fullmatch, part):
                    if action is not None:
                        self._act(action[1], action[2])
                lines += part
            elif part and part[0].startswith(_FILE):
                file = self._shell.folder / part[0].removeprefix(_FILE)
                file.write_text(self._shell.real("\n".join(part[1:])) + "\n")
                lines += part
            elif any(line.startswith(_PROMPT) for line in part):
                lines += self._transcript(part, progress)
            else:
                lines += part
        self.text = "\n".join(lines) + "\n"

    def _transcript(self, part: Sequence[str], progress: bool) -> Iterator[str]:
        for command, documented in commands(part):
            status, output = self._shell.run(command)
            expected = self._statuses.pop(0) if self._statuses else 0
            if progress:
                print(f"$ {command}\n{output}", flush=True)
            assert status == expected, f"status {status} of: {command}\n{output}"
            self.steps.append(Step(command, output, documented))
            yield from (_PROMPT + command).split("\n")
            yield from output.splitlines()
        assert not self._statuses, "more statuses than commands"

    def _act(self, kind: str, argument: str) -> None:
        if kind == "statuses":
            self._statuses = [int(word) for word in argument.split()]
        elif kind == "run":
            status, output = self._shell.run(argument)
            assert status == 0, f"status {status} of: {argument}\n{output}"
        else:
            deadline = time.monotonic() + COMMAND_TIMEOUT_S
            while (found := self._shell.run(argument))[0]:
                assert time.monotonic() < deadline, f"{argument}: {found}"
                time.sleep(0.1)  # polls other processes, which have no way to call us

    def close(self) -> None:
        self._shell.close()
        self._folder.cleanup()


def main(argv: Sequence[str]) -> int:
    """Runs a document and writes it with its output."""
    (name,) = argv
    document = Path(name)
    walkthrough = Walkthrough(document)
    try:
        walkthrough.run(progress=True)
    finally:
        walkthrough.close()
    document.write_text(walkthrough.text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
