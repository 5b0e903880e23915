"""`kafka-configs --entity-type ips`: nodes limit the rate at which an address connects as those of
Apache Kafka do, and each other's tools set the limit."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import java
from tests.support.cluster import BIN, Node, free_ports, running, wait_for
from tests.support.java_tools import JavaTools, Said

pytestmark = [pytest.mark.java, pytest.mark.timeout(200)]

MAIN = "kafka.admin.ConfigCommand"
RATE = 2
BURST = 10 * RATE
"""Connections that the rate admits at once: those of all windows but one."""
FEW = 100_000
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


@pytest.fixture(scope="module")
def tools() -> Iterator[JavaTools]:
    java.require_tools(java.LATEST_VERSION)
    with JavaTools(java.LATEST_VERSION) as tools:
        yield tools


def configs(tools: JavaTools, whose: str, where: tuple[str, str], words: str) -> Said:
    """Runs kafka-configs of ours or Java's for IP addresses."""
    line = (*where, "--entity-type", "ips", *words.split(" "))
    if whose == "java":
        return tools.run(MAIN, *line)
    done = subprocess.run([str(BIN / "kafka-configs"), *line], capture_output=True, text=True, check=False)
    return Said(done.returncode, done.stdout, done.stderr)


def connect(port: int) -> socket.socket:
    """A connection from 127.0.0.2, which no other client uses."""
    connection = socket.create_connection(("127.0.0.1", port), 20, ("127.0.0.2", 0))
    connection.sendall(API_VERSIONS)
    return connection


def is_answered(connection: socket.socket) -> bool:
    """Whether a connection is answered, and not closed."""
    try:
        return len(connection.recv(1)) == 1
    except ConnectionResetError:
        return False


def admitted(port: int, count: int) -> tuple[int, float]:
    """How many of so many connections are answered, and for how many seconds the last one was open."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(contextlib.closing(connect(port))) for _ in range(count)]
        return sum(is_answered(each) for each in opened), time.monotonic() - began


@pytest.mark.parametrize("impl", ["quorate", "java"])
@pytest.mark.parametrize("entity", ["--entity-name 127.0.0.2", "--entity-default"])
@pytest.mark.parametrize(("setter", "remover"), [("quorate", "java"), ("java", "quorate")])
def test_the_rate_of_an_address_acts_until_it_is_removed(
    tmp_path: Path, tools: JavaTools, impl: str, entity: str, setter: str, remover: str
) -> None:
    with running(Node(tmp_path / "n", impl=impl, kafka=java.LATEST_VERSION)) as node:
        where = ("--bootstrap-server", node.bootstrap)
        if "default" in entity:  # the tools themselves come from another address
            unlimited = f"--entity-name 127.0.0.1 --alter --add-config connection_creation_rate={FEW}"
            assert configs(tools, setter, where, unlimited).status == 0
        limit = f"{entity} --alter --add-config connection_creation_rate={RATE}"
        said = configs(tools, setter, where, limit)
        assert said.status == 0, said
        described = configs(tools, remover, where, f"{entity} --describe")
        assert f"connection_creation_rate={RATE}.0" in described.out

        def is_limited() -> bool:
            with contextlib.closing(connect(node.broker_port)) as one:
                return not is_answered(one)

        wait_for("the limit", is_limited, 30, 0.0)
        found, open_s = admitted(node.broker_port, 10)
        assert found <= 10 - 5, (found, open_s)
        assert 0.4 < open_s < 6

        said = configs(tools, remover, where, f"{entity} --alter --delete-config connection_creation_rate")
        assert said.status == 0, said
        wait_for("the end of the limit", lambda: admitted(node.broker_port, 40)[0] == 40, 30, 0.0)


@pytest.mark.parametrize("impl", ["quorate", "java"])
def test_a_burst_of_ten_seconds_is_admitted_at_once(tmp_path: Path, tools: JavaTools, impl: str) -> None:
    with running(Node(tmp_path / "n", impl=impl, kafka=java.LATEST_VERSION)) as node:
        where = ("--bootstrap-server", node.bootstrap)
        limit = f"--entity-name 127.0.0.2 --alter --add-config connection_creation_rate={RATE}"
        assert configs(tools, "quorate", where, limit).status == 0
        shown = "--entity-name 127.0.0.2 --describe"
        wait_for("the quota", lambda: "rate=2" in configs(tools, "quorate", where, shown).out, 30, 0.05)
        found, _ = admitted(node.broker_port, BURST + 10)
        assert BURST <= found <= BURST + RATE, found


def test_a_controller_limits_the_addresses_of_its_own_listener(tmp_path: Path, tools: JavaTools) -> None:
    node = Node(tmp_path / "n", roles="controller", controller_port=free_ports(1)[0])
    with running(node):
        where = ("--bootstrap-controller", f"127.0.0.1:{node.controller_port}")
        limit = f"--entity-name 127.0.0.2 --alter --add-config connection_creation_rate={RATE}"
        said = configs(tools, "quorate", where, limit)
        assert said.status == 0, said
        found, _ = admitted(node.controller_port, BURST + 10)
        assert BURST <= found <= BURST + RATE, found


def test_quotas_of_users_are_still_refused(tmp_path: Path) -> None:
    with running(Node(tmp_path / "n")) as node:
        words = "--entity-type users --entity-name u --alter --add-config producer_byte_rate=1"
        done = subprocess.run(
            [str(BIN / "kafka-configs"), "--bootstrap-server", node.bootstrap, *words.split(" ")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert "Client quotas of users and client ids are not enforced here" in done.stderr
