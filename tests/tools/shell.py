"""The tools run in this process, against the cluster that all tests of a session share."""

from __future__ import annotations

import importlib
import io
import sys
from typing import NamedTuple

import pytest

from quorate.testing import KafkaCluster
from quorate.tools import scripts


class Done(NamedTuple):
    status: int
    out: str
    err: str


class Shell:
    """Runs tools with the address of the cluster's node, and captures what they say."""

    def __init__(
        self,
        cluster: KafkaCluster,
        capfdbinary: pytest.CaptureFixture[bytes],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.cluster = cluster
        self._captured = capfdbinary
        self._monkeypatch = monkeypatch

    @property
    def servers(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def controllers(self) -> str:
        return self.cluster.bootstrap_controllers

    def plain(self, tool: str, *args: object, stdin: str = "") -> Done:
        self._captured.readouterr()
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        main = importlib.import_module(f"quorate.tools.{scripts.MODULES[tool]}").main
        try:
            status = main([str(a) for a in args])
        except SystemExit as end:
            status = end.code
        sys.stdout.flush()
        out, err = self._captured.readouterr()
        return Done(status, out.decode(), err.decode())

    def __call__(self, tool: str, *args: object, stdin: str = "", status: int = 0) -> str:
        """Standard output of a run that ends with `status`."""
        done = self.plain(tool, *args, "--bootstrap-server", self.servers, stdin=stdin)
        assert done.status == status, done
        assert "Traceback" not in done.err
        return done.out

    def refused(self, tool: str, *args: object) -> str:
        """The one line that a run which fails says on stderr."""
        done = self.plain(tool, *args, "--bootstrap-server", self.servers)
        assert done.status == 1, done
        (line,) = [text for text in done.err.splitlines() if text]
        return line


@pytest.fixture
def sh(
    kafka_cluster: KafkaCluster, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    return Shell(kafka_cluster, capfdbinary, monkeypatch)
