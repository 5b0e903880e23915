"""/metrics and /health of a node: what they say, and what the endpoint puts up with."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from quorate.config.definitions import ConfigError
from quorate.config.kafka_config import KafkaConfig
from quorate.net.sockets import bind_sockets
from quorate.node.http.server import MAX_REQUEST_BYTES, HttpServer
from quorate.node.main import new_event_loop
from quorate.node.monitoring.metrics import MetricsCollector


class Metric(NamedTuple):
    name: str
    help: str
    value: float | str | Mapping[str, float]
    states: tuple[str, ...] = ()
    label: str = ""


def metrics() -> Iterable[Metric]:
    yield Metric("current-epoch", "The epoch.", 7)
    yield Metric("current-state", "The state.", "leader", ("leader", "follower"))
    yield Metric("current-vote-directory-id", "For whom.", "abc")
    yield Metric("commit-latency-avg", "Not known.", float("nan"))
    yield Metric("Cordoned", "Of a directory.", {"/a": 1.0, "/b": 0.0}, label="logDirectory")


def broken() -> Iterable[Metric]:
    raise RuntimeError("no metrics today")


@asynccontextmanager
async def serving(*, host: str = "127.0.0.1", ready: bool = True) -> AsyncIterator[int]:
    """A server on a free port, which it yields."""
    collector = MetricsCollector()
    collector.add("kafka_server_raft_metrics", metrics)
    collector.add("broken", broken)

    def health() -> tuple[bool, dict[str, object]]:
        return ready, {"ready": ready, "phase": "testing"}

    def readiness() -> tuple[bool, dict[str, object]]:
        return ready, {"ready": ready, "reason": "testing"}

    http = HttpServer(collector, health, readiness)
    [sock] = bind_sockets(host, 0, "HTTP")
    await http.start(sock)
    yield sock.getsockname()[1]
    await http.close()


T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a test on the event loop of a node, whose transports differ from asyncio's."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def ask(*requests: bytes, ready: bool = True, cut: bool = True) -> list[bytes]:
    """The whole answers, each over a connection of its own."""

    async def main() -> list[bytes]:
        answers = []
        async with serving(ready=ready) as port:
            for request in requests:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                if cut and not request.endswith(b"\r\n\r\n"):
                    writer.write_eof()
                answers.append(await asyncio.wait_for(reader.read(), 10))
                writer.close()
        return answers

    return run(main())


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".encode()


def test_metrics_are_named_after_kafkas_and_a_broken_source_is_left_out() -> None:
    [answer] = ask(get("/metrics"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=")
    lines = body.decode().splitlines()
    assert "kafka_server_raft_metrics_current_epoch 7.0" in lines
    assert (
        'kafka_server_raft_metrics_current_state{kafka_server_raft_metrics_current_state="leader"} 1.0'
        in lines
    )
    assert (
        'kafka_server_raft_metrics_current_state{kafka_server_raft_metrics_current_state="follower"} 0.0'
        in lines
    )
    assert (
        'kafka_server_raft_metrics_current_vote_directory_id_info{current_vote_directory_id="abc"} 1.0'
        in lines
    )
    assert "kafka_server_raft_metrics_commit_latency_avg NaN" in lines
    assert 'kafka_server_raft_metrics_Cordoned{logDirectory="/a"} 1.0' in lines
    assert 'kafka_server_raft_metrics_Cordoned{logDirectory="/b"} 0.0' in lines
    assert f"Content-Length: {len(body)}".encode() in head


@pytest.mark.parametrize(("ready", "status"), [(True, b"200 OK"), (False, b"503 Service Unavailable")])
def test_health_tells_the_phase_and_by_its_status_whether_the_node_is_ready(
    ready: bool, status: bytes
) -> None:
    [answer] = ask(get("/health?verbose"), ready=ready)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"ready": ready, "phase": "testing"}


@pytest.mark.parametrize(("ready", "status"), [(True, b"200 OK"), (False, b"503 Service Unavailable")])
def test_a_probe_of_readiness_gets_the_reason_why_not(ready: bool, status: bytes) -> None:
    [answer] = ask(get("/ready"), ready=ready)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"ready": ready, "reason": "testing"}


def test_a_node_that_answers_is_live_even_if_it_is_not_ready() -> None:
    [answer] = ask(get("/live"), ready=False)
    assert answer.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/"), b"404"),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (b"DELETE /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /metrics SPDY/3\r\n\r\n", b"400"),
        (b"\xff\xfe\r\n\r\n", b"400"),
    ],
)
def test_what_is_no_such_request_is_told_so(request_: bytes, status: bytes) -> None:
    [answer] = ask(request_)
    assert answer.split(b" ")[1] == status
    assert (status == b"405") == (b"\r\nAllow: GET,HEAD\r\n" in answer)


def test_an_unknown_page_names_the_pages() -> None:
    [answer] = ask(get("/"))
    assert b"/metrics" in answer
    assert b"/health" in answer


def test_requests_that_are_not_http_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        ask(
            b"nonsense\r\n\r\n",
            b"GET /metrics SPDY/3\r\n\r\n",
            b"\xff\xfe\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
            get("/health"),
        )
    assert caplog.text == ""


def test_a_page_that_fails_is_answered_with_500_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def health() -> tuple[bool, dict[str, object]]:
        raise RuntimeError("no health today")

    async def main() -> bytes:
        http = HttpServer(MetricsCollector(), health, health)
        [sock] = bind_sockets("127.0.0.1", 0, "HTTP")
        await http.start(sock)
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        writer.write(get("/health"))
        answer = await reader.read()
        writer.close()
        await http.close()
        return answer

    assert run(main()).startswith(b"HTTP/1.1 500 ")
    assert "no health today" in caplog.text


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", b"text/plain; version=0.0.4; charset=utf-8"),
        (
            "application/openmetrics-text; version=1.0.0",
            b"application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    ],
)
def test_a_scraper_chooses_the_format_of_the_metrics(accept: str, content_type: bytes) -> None:
    [answer] = ask(get("/metrics").replace(b"*/*", accept.encode()))
    assert b"\r\nContent-Type: " + content_type in answer


def test_head_gives_the_same_without_a_body() -> None:
    [answer] = ask(b"HEAD /health HTTP/1.0\r\n\r\n")
    assert answer.split(b" ")[1] == b"200"
    assert b"\r\nContent-Length: 0\r\n" not in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "request_", [b"GET /health HT", b"GET /" + b"x" * (MAX_REQUEST_BYTES + 100) + b"\r\n\r\n"]
)
def test_cut_and_endless_requests_are_dropped_and_the_next_one_is_served(request_: bytes) -> None:
    dropped, served = ask(request_, get("/health"))
    assert dropped == b""
    assert served.startswith(b"HTTP/1.1 200")


def test_a_client_that_says_nothing_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.node.http.server.CONNECTION_S", 0.3)
    dropped, served = ask(b"GET /metrics HTTP/1.1\r\nX: y", get("/health"), cut=False)
    assert dropped == b""
    assert served.startswith(b"HTTP/1.1 200")


def test_a_connection_above_the_limit_is_closed_and_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.node.http.server.MAX_CONNECTIONS", 2)

    async def main() -> None:
        async with serving() as port:
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with contextlib.suppress(ConnectionError):  # a reset, as it is not read from
                    assert await asyncio.wait_for(reader.read(), 10) == b""
                writer.close()
            for reader, writer in idle:
                writer.write(get("/health"))
                assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 200")
                writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/health"))
            assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 200")
            writer.close()

    run(main())


@pytest.mark.slow
def test_a_client_that_does_not_read_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.node.http.server.CONNECTION_S", 0.3)
    monkeypatch.setattr("quorate.node.http.server.MAX_CONNECTIONS", 1)
    many = [Metric(f"metric-{i}", "x" * 30_000, 1) for i in range(300)]  # more than the sockets' buffers hold

    async def main() -> None:
        collector = MetricsCollector()
        collector.add("group", lambda: many)
        http = HttpServer(collector, lambda: (True, {}), lambda: (True, {}))
        [sock] = bind_sockets("127.0.0.1", 0, "HTTP")
        await http.start(sock)
        deaf_reader, deaf = await asyncio.open_connection(*sock.getsockname(), limit=1)
        deaf.write(get("/metrics"))
        answer = b""
        async with asyncio.timeout(20):
            while not answer:  # refused as long as the other connection is open
                with contextlib.suppress(ConnectionError):
                    reader, writer = await asyncio.open_connection(*sock.getsockname())
                    writer.write(get("/health"))
                    answer = await reader.read()
                    writer.close()
        assert answer.startswith(b"HTTP/1.1 200")
        received = b""
        with contextlib.suppress(ConnectionError):
            received = await deaf_reader.read()
        assert len(received) < 9_000_000
        deaf.close()
        await http.close()

    run(main())


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_it_serves_on_ipv6() -> None:
    async def main() -> bytes:
        async with serving(host="::1") as port:
            reader, writer = await asyncio.open_connection("::1", port)
            writer.write(get("/health"))
            answer = await reader.read()
            writer.close()
            return answer

    assert run(main()).startswith(b"HTTP/1.1 200")


def test_closing_ends_idle_connections_and_frees_the_port() -> None:
    async def main() -> None:
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        for sock in bind_sockets("127.0.0.1", port, "HTTP"):
            sock.close()

    run(main())


@pytest.mark.parametrize(
    ("text", "parsed"), [("", None), ("127.0.0.1:9100", ("127.0.0.1", 9100)), ("[::1]:1", ("::1", 1))]
)
def test_where_it_listens_is_configured(tmp_path: Path, text: str, parsed: tuple[str, int] | None) -> None:
    assert config(tmp_path, text).http_listen == parsed


def test_a_wrong_place_to_listen_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"quorate\.http\.listen"):
        _ = config(tmp_path, "nowhere").http_listen


def config(path: Path, listen: str) -> KafkaConfig:
    return KafkaConfig(
        {
            "process.roles": "controller",
            "node.id": "1",
            "listeners": "CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": str(path),
            "quorate.http.listen": listen,
        }
    )


def test_a_node_without_the_endpoint_loads_nothing_of_it() -> None:
    code = (
        "import sys, quorate.node.server\n"
        "assert not {'prometheus_client', 'aiohttp', 'quorate.node.http.server'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
