"""The tools run in this process, against a node that the tests of a file share."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from quorate.tools import scripts
from tests.support.cluster import Node, running


class Done(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with running(Node(tmp_path_factory.mktemp("tools"))) as started:
        yield started


class Shell:
    """Runs tools with the node's address, and captures what they say."""

    def __init__(
        self, node: Node, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.node = node
        self._captured = capfdbinary
        self._monkeypatch = monkeypatch

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
        done = self.plain(tool, *args, "--bootstrap-server", self.node.bootstrap, stdin=stdin)
        assert done.status == status, done
        assert "Traceback" not in done.err
        return done.out

    def refused(self, tool: str, *args: object) -> str:
        """The one line that a run which fails says on stderr."""
        done = self.plain(tool, *args, "--bootstrap-server", self.node.bootstrap)
        assert done.status == 1, done
        (line,) = [text for text in done.err.splitlines() if text]
        return line


@pytest.fixture
def sh(node: Node, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(node, capfdbinary, monkeypatch)
