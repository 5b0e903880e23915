"""The stream and the pipeline read a quorum of Java controllers through listeners with TLS and SASL."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.admin.errors import ErrorCode, KafkaError
from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.net.errors import NetError, TlsError
from quorate.pipeline.live.offsets import Start
from quorate.pipeline.live.tail import QuorumTail
from tests.pipeline.conftest import DELTA_JARS, all_rows
from tests.pipeline.test_live import step
from tests.support import java
from tests.support.certificates import Authority
from tests.support.cluster import BIN, CLUSTER_ID, Node, free_ports, running

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

LOGIN = 'org.apache.kafka.common.security.{}.{}LoginModule required username="ann" password="{}";'
LISTENERS = {"TLS": "SSL", "MUTUAL": "SSL", "SASL_TLS": "SASL_SSL", "SASL": "SASL_PLAINTEXT"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SERVER: dict[str, object] = {
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "listener.name.mutual.ssl.client.auth": "required",
    **{
        f"listener.name.{name}.{key}": value
        for name in ("sasl", "sasl_tls")
        for key, value in {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "plain.sasl.jaas.config":
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="plain";',
            "scram-sha-256.sasl.jaas.config": SCRAM,
            "scram-sha-512.sasl.jaas.config": SCRAM,
        }.items()
    },
    "listener.name.sasl.connections.max.reauth.ms": 1500,
}  # fmt: skip
CREDENTIALS = [f"SCRAM-SHA-{n}=[name=ann,iterations=4096,password=scram={n}]" for n in (256, 512)]


class Secured:
    """A Java controller and broker with a topic, the address of each controller listener, and the authorities."""

    def __init__(self, base: Path, kafka: str) -> None:
        self.authority = Authority(base / "ca", "the cluster's authority")
        self.other = Authority(base / "other", "another authority")
        self.server = self.authority.issue("localhost", "DNS:localhost,IP:127.0.0.1")
        self.client = self.authority.issue("ann")
        self.node = Node(base / "node", impl="java", kafka=kafka)
        self.ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        listeners = {
            "PLAINTEXT": self.node.broker_port,
            "CONTROLLER": self.node.controller_port,
            **self.ports,
        }
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS}
        self.node.extra = SERVER | {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
            "controller.listener.names": ",".join(["CONTROLLER", *LISTENERS]),
            "listener.security.protocol.map": ",".join(f"{name}:{p}" for name, p in protocols.items()),
            "ssl.keystore.location": self.server,
            "ssl.truststore.location": self.authority.certificate,
        }
        self.node.write_properties()

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def trusting(self, protocol: str) -> dict[str, str]:
        return {
            "security.protocol": protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
        }


@pytest.fixture(scope="module", params=java.VERSIONS)
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    java.require_java(request.param)
    made = Secured(tmp_path_factory.mktemp("secured"), request.param)
    with running(made.node, *[word for given in CREDENTIALS for word in ("--add-scram", given)]):
        with AdminClient(made.node.bootstrap) as admin:
            assert admin.create_topics([NewTopic("orders", 3, 1)]) == {"orders": None}
        yield made


def plain(password: str = "plain") -> dict[str, str]:
    return {"sasl.mechanism": "PLAIN", "sasl.jaas.config": LOGIN.format("plain", "Plain", password)}


def scram(bits: int, password: str | None = None) -> dict[str, str]:
    login = LOGIN.format("scram", "Scram", password or f"scram={bits}")
    return {"sasl.mechanism": f"SCRAM-SHA-{bits}", "sasl.jaas.config": login}


@pytest.mark.parametrize("way", ["TLS", "MUTUAL", "SASL_TLS 256", "SASL_TLS PLAIN", "SASL 512"])
def test_the_stream_has_the_rows_of_the_directory(secured: Secured, way: str) -> None:
    listener, _, mechanism = way.partition(" ")
    properties = {"security.protocol": LISTENERS[listener]}
    if LISTENERS[listener].endswith("SSL"):
        properties |= secured.trusting(LISTENERS[listener])
    if listener == "MUTUAL":
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(secured.client)}
    if mechanism:
        properties |= plain() if mechanism == "PLAIN" else scram(int(mechanism))
    controllers = secured.address(listener)
    with closing(QuorumTail(controllers, properties, 10)) as tail:
        options = {f"kafka.{name}": value for name, value in properties.items()}
        position, rows = step(tail, tail.first(Start.EARLIEST), controllers=controllers, **options)
    log = secured.node.data / "__cluster_metadata-0"
    on_disk = [row | {"committed": True} for row in all_rows(log) if row["snapshot"] is None]
    assert rows == on_disk[rows[0]["offset"] : position.offset]
    assert sum(row["type"] == "PARTITION_RECORD" for row in rows) == 3


def refused(secured: Secured, listener: str, properties: dict[str, str]) -> NetError | KafkaError:
    """The error of a connection, which must come at once and not after the timeout of 60 s."""
    begin = time.monotonic()
    with pytest.raises((NetError, KafkaError)) as caught:
        QuorumTail(secured.address(listener), properties, 10)
    assert time.monotonic() - begin < 10
    assert isinstance(caught.value, NetError | KafkaError)
    return caught.value


def test_a_certificate_of_another_authority_is_refused(secured: Secured) -> None:
    properties = secured.trusting("SSL") | {"ssl.truststore.location": str(secured.other.certificate)}
    error = refused(secured, "TLS", properties)
    assert isinstance(error, TlsError)
    assert f"no TLS with {secured.address('TLS')}: its certificate is not trusted" in str(error)


def test_a_client_without_its_certificate_is_refused(secured: Secured) -> None:
    error = refused(secured, "MUTUAL", secured.trusting("SSL"))
    assert isinstance(error, TlsError)
    assert "certificate" in str(error)


@pytest.mark.parametrize("login", [plain("wrong"), scram(256, "wrong"), scram(512, "wrong")])
def test_a_wrong_password_is_refused(secured: Secured, login: dict[str, str]) -> None:
    error = refused(secured, "SASL_TLS", secured.trusting("SASL_SSL") | login)
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Authentication failed" in str(error) and "wrong" not in str(error)


@pytest.mark.parametrize(
    ("listener", "protocol", "says"),
    [
        ("TLS", "PLAINTEXT", "it speaks TLS: set security.protocol to SSL or SASL_SSL"),
        ("SASL", "SSL", "it does not speak TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT"),
        ("TLS", "SASL_SSL", "does not use SASL"),
    ],
)
def test_a_wrong_protocol_is_named(secured: Secured, listener: str, protocol: str, says: str) -> None:
    properties = secured.trusting(protocol) | scram(256)
    assert says in str(refused(secured, listener, properties))


def test_a_stream_outlives_its_sessions(secured: Secured) -> None:
    """The listener closes connections that are used 1.5 s after their authentication."""
    properties = {"security.protocol": "SASL_PLAINTEXT", **scram(256)}
    end = time.monotonic() + 4
    with closing(QuorumTail(secured.address("SASL"), properties, 10)) as tail:
        position = tail.first(Start.LATEST)
        first = position.offset
        while time.monotonic() < end:
            position = tail.advance(position)
    assert position.offset > first


def test_the_command_reads_a_secured_quorum_and_names_a_wrong_password(
    secured: Secured, tmp_path: Path
) -> None:
    if not DELTA_JARS.is_dir():
        pytest.skip("the jars of Delta are missing (run: make setup)")

    def run(properties: dict[str, str]) -> subprocess.CompletedProcess[str]:
        config = tmp_path / "client.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return subprocess.run(
            [BIN / "quorate-pipeline", "run", "--source", f"controllers://{secured.address('SASL_TLS')}",
             "--lake", tmp_path / "lake", "--command-config", config],
            capture_output=True, text=True, check=False, timeout=120,
            env={**os.environ, "QUORATE_DELTA_JARS": str(DELTA_JARS)},
        )  # fmt: skip

    done = run(secured.trusting("SASL_SSL") | scram(512))
    assert done.returncode == 0, done.stderr
    assert f"{CLUSTER_ID}: applied up to offset " in done.stdout
    done = run(secured.trusting("SASL_SSL") | scram(512, "wrong"))
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if "Authentication failed" in line]
    assert line.startswith("Error: ")
