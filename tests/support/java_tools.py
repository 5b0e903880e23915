"""Apache Kafka's tools in one process, which starts each of them in milliseconds."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import NamedTuple, Self

from tests.support import java

PROGRAM = Path(__file__).parents[1] / "interop" / "Tools.java"


class Said(NamedTuple):
    """How a tool ended, and what it printed."""

    status: int
    out: str
    err: str


class JavaTools:
    """The tools of one release. As a context manager it ends the process."""

    def __init__(self, version: str) -> None:
        self.version = version
        folder = java.require_tools(version)
        self._process = subprocess.Popen(
            [
                "java",
                java.HEAP,
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                *java.archive_options(folder / java.TOOLS_ARCHIVE),
                "-cp",
                f"{folder}/*",
                str(PROGRAM),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, main: str, *args: str) -> Said:
        """Runs a tool, named by its main class in 4.1, to its end."""
        if self.version != java.KAFKA_VERSION:
            main = java.MOVED.get(main, main)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\t".join((main, *args)) + "\n")
        self._process.stdin.flush()
        status, out, err = self._process.stdout.readline().rstrip("\n").split(" ")
        return Said(int(status), base64.b64decode(out).decode(), base64.b64decode(err).decode())
