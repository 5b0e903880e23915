"""The console tools against a secured listener of Apache Kafka, with the properties that Java's clients
take."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import java
from tests.support.cluster import BIN, Node, free_ports, running

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="{}";'


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a SASL_SSL listener, and the certificate that its clients trust."""
    java.require_java()
    base = tmp_path_factory.mktemp("secured")
    key, certificate, both = base / "key.pem", base / "ca.pem", base / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    both.write_text(key.read_text() + certificate.read_text())
    (port,) = free_ports(1)
    node = Node(base / "node", impl="java")
    node.extra = {
        "listeners": f"PLAINTEXT://127.0.0.1:{node.broker_port},CONTROLLER://127.0.0.1:{node.controller_port},"
        f"SASL_SSL://127.0.0.1:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config":
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": both,
    }  # fmt: skip
    node.write_properties()
    with running(node):
        yield f"127.0.0.1:{port}", certificate


def console(
    tool: str, servers: str, config: Path, *args: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    command = [
        str(BIN / f"kafka-console-{tool}"),
        "--bootstrap-server",
        servers,
        "--topic",
        "t",
        "--command-config",
        str(config),
        *args,
    ]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def properties(path: Path, certificate: Path, password: str) -> Path:
    path.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={LOGIN.format(password)}\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={certificate}\n"
    )
    return path


def test_records_go_through_a_secured_listener(secured: tuple[str, Path], tmp_path: Path) -> None:
    servers, certificate = secured
    config = properties(tmp_path / "client.properties", certificate, "secret")
    sent = console("producer", servers, config, stdin="one\ntwo\n")
    assert (sent.returncode, sent.stderr) == (0, "")
    read = console("consumer", servers, config, "--from-beginning", "--max-messages", "2")
    assert (read.returncode, read.stdout) == (0, "one\ntwo\n")


@pytest.mark.parametrize("tool", ["producer", "consumer"])
def test_a_wrong_password_ends_the_tool_at_once(secured: tuple[str, Path], tmp_path: Path, tool: str) -> None:
    servers, certificate = secured
    done = console(
        tool, servers, properties(tmp_path / "client.properties", certificate, "wrong"), stdin="one\n"
    )
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if not line.startswith("Processed a total of")]
    assert len(told) == 1 and "Authentication failed" in told[0], done.stderr


def test_the_error_of_a_plaintext_client_mentions_tls(secured: tuple[str, Path], tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("")
    done = console("producer", secured[0], config, stdin="one\n")
    assert done.returncode == 1
    assert "it speaks TLS: set security.protocol" in done.stderr and done.stderr.count("\n") == 1, done.stderr
