"""Log directories of a running broker are cordoned and opened again (KIP-1066), by our node and by Apache
Kafka 4.4."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from quorate.protocol.api import decode_response, encode_request
from quorate.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from quorate.protocol.schema import Request
from tests.support import java
from tests.support.cluster import Node, running, wait_for

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(params=["quorate", pytest.param("java", marks=pytest.mark.java)])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    if request.param == "java":
        java.require_java(java.LATEST_VERSION)
    extra = {"log.dirs": f"{tmp_path}/a,{tmp_path}/b", "metadata.log.dir": f"{tmp_path}/m"}
    made = Node(tmp_path / "node", impl=request.param, kafka=java.LATEST_VERSION, extra=extra)
    with running(made):
        yield made


def ask(node: Node, request: Request) -> Any:
    """The response to one request in its newest version."""
    data = encode_request(1, "test", request, request.MAX_VERSION)
    with socket.create_connection(("127.0.0.1", node.broker_port), 30) as s:
        s.sendall(struct.pack(">i", len(data)) + data)
        with s.makefile("rb") as file:
            (size,) = struct.unpack(">i", file.read(4))
            return decode_response(file.read(size), request.KEY, request.MAX_VERSION)[1]


def set_cordoned(node: Node, value: str) -> str:
    """The name of the error, or "" if there is none."""
    entry = ConfigEntry("cordoned.log.dirs", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = node.admin()  # it must live until the answer has come
    try:
        admin.incremental_alter_configs([resource])[resource].result(30)
    except KafkaException as e:
        return str(e.args[0].name())
    return ""


def described(node: Node) -> dict[str, tuple[bool, set[str]]]:
    """Whether each directory is cordoned, and its topics."""
    return {
        Path(result.log_dir).name: (result.is_cordoned, {topic.name for topic in result.topics})
        for result in ask(node, DescribeLogDirsRequest(topics=None)).results
    }


def create(node: Node, name: str, partitions: int) -> str:
    admin = node.admin()
    try:
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    except KafkaException as e:
        return str(e.args[0].name())
    return ""


def test_cordoned_directories_get_no_new_replicas_until_they_are_opened(node: Node) -> None:
    first, second = node.data.parent.parent / "a", node.data.parent.parent / "b"
    assert set_cordoned(node, f"{first},/no/such") == "INVALID_REQUEST"
    assert set_cordoned(node, f"*,{first}") == "INVALID_REQUEST"

    assert set_cordoned(node, str(first)) == ""
    wait_for("the directory to be cordoned", lambda: described(node)["a"][0])
    assert create(node, "t", 4) == ""
    wait_for("the replicas", lambda: "t" in described(node)["b"][1])
    assert "t" not in described(node)["a"][1]

    assert set_cordoned(node, "*") == ""
    names = (f"refused-{number}" for number in count())  # the controller may create the first ones
    wait_for("the controller to know", lambda: create(node, next(names), 1) == "INVALID_REPLICATION_FACTOR")

    assert set_cordoned(node, str(second)) == ""
    wait_for("the controller to know", lambda: create(node, "u", 2) == "")
    wait_for("the replicas", lambda: "u" in described(node)["a"][1])
    assert "u" not in described(node)["b"][1]
