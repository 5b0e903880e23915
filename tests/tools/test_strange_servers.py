"""Every tool, with a bootstrap server that is an HTTP server: one line, soon."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.shell import Shell


class Web(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(4096)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def shell(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(None, capfdbinary, monkeypatch)  # type: ignore[arg-type]


TOOLS = {
    "topics": ["--list"],
    "acls": ["--list"],
    "configs": ["--describe", "--topic", "t"],
    "consumer_groups": ["--list"],
    "get_offsets": ["--topic", "t"],
    "broker_api_versions": [],
    "log_dirs": ["--describe"],
    "leader_election": ["--election-type", "preferred", "--all-topic-partitions"],
    "delete_records": ["--offset-json-file", "OFFSETS"],
    "console_producer": ["--topic", "t"],
    "console_consumer": ["--topic", "t"],
}


@pytest.mark.parametrize("tool", [*TOOLS, "cluster", "features", "metadata_quorum"])
def test_a_web_server_is_told_in_one_line(shell: Shell, web: str, tool: str, tmp_path: Path) -> None:
    offsets = tmp_path / "offsets.json"
    offsets.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": 1}]}')
    where = ["--bootstrap-server", web]
    match tool:
        case "cluster":
            words = ["cluster-id", *where]
        case "features":
            words = [*where, "describe"]
        case "metadata_quorum":
            words = [*where, "describe", "--status"]
        case _:
            words = [*where, *(str(offsets) if w == "OFFSETS" else w for w in TOOLS[tool])]
    began = time.monotonic()
    done = shell.plain(tool, *words, stdin="one\ntwo\n")
    assert time.monotonic() - began < 10
    assert done.status == 1
    besides = ("Processed a total of", "WARNING: kafka-broker-api-versions is deprecated")
    told = [line for line in done.err.splitlines() if not line.startswith(besides)]
    assert len(told) == 1, done
    assert f"{web} cannot be used: it is an HTTP server (HTTP/1.1 400 Bad Request" in told[0]
