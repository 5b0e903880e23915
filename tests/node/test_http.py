"""/metrics and /health of a node: what they say, and what the endpoint puts up with."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from quorate.config.definitions import ConfigError
from quorate.config.kafka_config import KafkaConfig
from quorate.node.exposition import Exposition
from quorate.node.http import MAX_HEAD_BYTES, HttpEndpoint


class Metric(NamedTuple):
    name: str
    help: str
    value: float | str
    states: tuple[str, ...] = ()


def metrics() -> Iterable[Metric]:
    yield Metric("current-epoch", "The epoch.", 7)
    yield Metric("current-state", "The state.", "leader", ("leader", "follower"))
    yield Metric("current-vote-directory-id", "For whom.", "abc")
    yield Metric("commit-latency-avg", "Not known.", float("nan"))


def broken() -> Iterable[Metric]:
    raise RuntimeError("no metrics today")


def ask(*requests: bytes, ready: bool = True, cut: bool = True) -> list[bytes]:
    """The whole answers, each over a connection of its own."""

    async def main() -> list[bytes]:
        exposition = Exposition()
        exposition.add("kafka_server_raft_metrics", metrics)
        exposition.add("broken", broken)
        http = HttpEndpoint(exposition, lambda: (ready, {"ready": ready, "phase": "testing"}))
        await http.start("127.0.0.1", 0)
        answers = []
        for request in requests:
            reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
            writer.write(request)
            if cut and not request.endswith(b"\r\n\r\n"):
                writer.write_eof()
            answers.append(await asyncio.wait_for(reader.read(), 10))
            writer.close()
        await http.close()
        return answers

    return asyncio.run(main())


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".encode()


def test_metrics_are_named_after_kafkas_and_a_broken_source_is_left_out() -> None:
    [answer] = ask(get("/metrics"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=")
    lines = body.decode().splitlines()
    assert "kafka_server_raft_metrics_current_epoch 7.0" in lines
    assert 'kafka_server_raft_metrics_current_state{kafka_server_raft_metrics_current_state="leader"} 1.0' in lines
    assert 'kafka_server_raft_metrics_current_state{kafka_server_raft_metrics_current_state="follower"} 0.0' in lines
    assert 'kafka_server_raft_metrics_current_vote_directory_id_info{current_vote_directory_id="abc"} 1.0' in lines
    assert "kafka_server_raft_metrics_commit_latency_avg NaN" in lines
    assert f"Content-Length: {len(body)}".encode() in head


@pytest.mark.parametrize(("ready", "status"), [(True, b"200 OK"), (False, b"503 Service Unavailable")])
def test_health_tells_the_phase_and_by_its_status_whether_the_node_is_ready(ready: bool, status: bytes) -> None:
    [answer] = ask(get("/health?verbose"), ready=ready)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"ready": ready, "phase": "testing"}


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/"), b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /metrics SPDY/3\r\n\r\n", b"400"),
        (b"\xff\xfe\r\n\r\n", b"400"),
    ],
)
def test_what_is_no_such_request_is_told_so(request_: bytes, status: bytes) -> None:
    [answer] = ask(request_)
    assert answer.split(b" ")[1] == status


def test_head_gives_the_same_without_a_body() -> None:
    [answer] = ask(b"HEAD /health HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("request_", [b"GET /health HT", b"GET /" + b"x" * (MAX_HEAD_BYTES + 100) + b"\r\n\r\n"])
def test_cut_and_endless_requests_are_dropped_and_the_next_one_is_served(request_: bytes) -> None:
    dropped, served = ask(request_, get("/health"))
    assert dropped == b""
    assert served.startswith(b"HTTP/1.1 200")


def test_a_client_that_says_nothing_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.node.http.REQUEST_WITHIN_S", 0.05)
    dropped, served = ask(b"GET /metrics HTTP/1.1\r\nX: y", get("/health"), cut=False)
    assert dropped == b""
    assert served.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(("text", "parsed"), [("", None), ("127.0.0.1:9100", ("127.0.0.1", 9100)), ("[::1]:1", ("::1", 1))])
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
    code = "import sys, quorate.node.server; assert not {'prometheus_client', 'quorate.node.http'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
