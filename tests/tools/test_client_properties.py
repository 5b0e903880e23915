"""Java's client properties in librdkafka's words."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from quorate.security.jaas import parse_jaas
from quorate.tools.command_line import ToolError
from quorate.tools.console.librdkafka_client import ConnectionErrors, open_handle
from quorate.tools.console.librdkafka_properties import for_consumer, for_producer

BOTH = {"client.id": "c", "bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ({"acks": "all"}, {"acks": "all", "enable.idempotence": "true"}),
        ({"acks": "1"}, {"acks": "1", "enable.idempotence": "false"}),
        ({"retries": "0"}, {"retries": "0", "enable.idempotence": "false"}),
        ({"max.in.flight.requests.per.connection": "6"}, {"enable.idempotence": "false"}),
        (
            {"compression.type": "ZSTD", "compression.zstd.level": "7"},
            {"compression.type": "zstd", "compression.level": "7"},
        ),
        ({"compression.type": "gzip", "compression.zstd.level": "7"}, {"compression.level": None}),
        ({"request.timeout.ms": "1500"}, {"request.timeout.ms": "1500", "socket.timeout.ms": "1500"}),
        (
            {"request.timeout.ms": "2147483647"},
            {"request.timeout.ms": "900000", "socket.timeout.ms": "300000"},
        ),
        ({"buffer.memory": "1048576"}, {"queue.buffering.max.kbytes": "1024"}),
        ({"batch.size": "0"}, {"batch.size": "1"}),
        ({"max.request.size": "5000"}, {"message.max.bytes": "5000", "max.request.size": None}),
        (
            {"metadata.max.age.ms": "700"},
            {"topic.metadata.refresh.interval.ms": "700", "metadata.max.age.ms": None},
        ),
        ({"send.buffer.bytes": "-1"}, {"socket.send.buffer.bytes": "0"}),
        ({"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "0"}),
        ({"key.serializer": "org.apache.kafka.StringSerializer"}, {"key.serializer": None}),
        ({"partitioner.ignore.keys": "true"}, {"partitioner": "random"}),
        ({}, {"partitioner": "murmur2_random", "batch.size": "16384", "linger.ms": "5"}),
        ({"sticky.partitioning.linger.ms": "3"}, {"sticky.partitioning.linger.ms": "3"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
    ],
)
def test_producer_properties(given: dict[str, str], becomes: dict[str, str | None]) -> None:
    translation = for_producer(BOTH | given)
    assert {name: translation.settings.get(name) for name in becomes} == becomes
    open_handle(Producer, translation, ConnectionErrors("Producer"))


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        (
            {},
            {
                "isolation.level": "read_uncommitted",
                "check.crcs": "true",
                "topic.metadata.refresh.interval.ms": "10000",
            },
        ),
        ({"auto.offset.reset": "none"}, {"auto.offset.reset": "error"}),
        ({"auto.offset.reset": "earliest"}, {"auto.offset.reset": "earliest"}),
        ({"fetch.max.wait.ms": "80"}, {"fetch.wait.max.ms": "80"}),
        ({"request.timeout.ms": "9000"}, {"socket.timeout.ms": "9000", "request.timeout.ms": None}),
        (
            {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RoundRobinAssignor"},
            {"partition.assignment.strategy": "roundrobin"},
        ),
        (
            {"partition.assignment.strategy": "x.RangeAssignor, x.CooperativeStickyAssignor"},
            {"partition.assignment.strategy": "range"},
        ),
        ({"value.deserializer": "x"}, {"value.deserializer": None}),
    ],
)
def test_consumer_properties(given: dict[str, str], becomes: dict[str, str | None]) -> None:
    translation = for_consumer(BOTH | {"group.id": "g"} | given)
    assert {name: translation.settings.get(name) for name in becomes} == becomes
    open_handle(Consumer, translation, ConnectionErrors("Consumer")).close()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"acks": "2"}, "Invalid value 2 for configuration acks"),
        ({"acks": "1", "enable.idempotence": "true"}, "Must set acks to all"),
        ({"retries": "few"}, "Invalid value few for configuration retries: Not a number"),
        ({"compression.type": "rar"}, "Unknown compression name: rar"),
        ({"transactional.id": "t"}, r"transactional\.id"),
        (
            {"partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"},
            r"partitioner\.class",
        ),
        ({"sasl.jaas.config": "nonsense"}, r"sasl\.jaas\.config"),
        ({"sasl.jaas.config": 'a.PlainLoginModule required username="u";'}, "needs password"),
        (
            {"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
            "Krb5LoginModule cannot be used",
        ),
        ({"sasl.login.callback.handler.class": "my.Handler"}, "Java's classes"),
        ({"ssl.truststore.location": "/nowhere/ca.jks"}, "Cannot read /nowhere/ca.jks"),
    ],
)
def test_what_cannot_be_done_is_named(given: dict[str, str], says: str) -> None:
    with pytest.raises(ToolError, match=says):
        for_producer(BOTH | given)


def test_stores_of_keys(tmp_path: Path) -> None:
    pem, jks, p12 = tmp_path / "ca.pem", tmp_path / "store.jks", tmp_path / "store.p12"
    pem.write_text("-----BEGIN CERTIFICATE-----\n")
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    p12.write_bytes(b"0\x82")
    trusted = for_producer(
        BOTH | {"ssl.truststore.location": str(pem), "ssl.truststore.type": "PEM"}
    ).settings
    assert trusted["ssl.ca.location"] == str(pem) and "ssl.truststore.type" not in trusted
    with pytest.raises(ToolError, match="not a PEM file"):
        for_producer(BOTH | {"ssl.truststore.location": str(jks)})
    own = for_producer(BOTH | {"ssl.keystore.location": str(pem), "ssl.key.password": "s"}).settings
    assert (own["ssl.certificate.location"], own["ssl.key.location"], own["ssl.key.password"]) == (
        str(pem),
        str(pem),
        "s",
    )
    own = for_producer(BOTH | {"ssl.keystore.location": str(p12), "ssl.keystore.password": "s"}).settings
    assert (own["ssl.keystore.location"], own["ssl.keystore.password"]) == (str(p12), "s")
    with pytest.raises(ToolError, match="PKCS12"):
        for_producer(BOTH | {"ssl.keystore.location": str(jks)})


@pytest.mark.parametrize(
    ("text", "module", "options"),
    [
        (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="a b;c\\"d";',
            "PlainLoginModule",
            {"username": "ann", "password": 'a b;c"d'},
        ),
        ("x.ScramLoginModule REQUIRED\n  username='ann'\n  password=secret ;", "ScramLoginModule",
         {"username": "ann", "password": "secret"}),
        ("PlainLoginModule required;", "PlainLoginModule", {}),
    ],
)  # fmt: skip
def test_login_modules(text: str, module: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == (module, options)


def test_a_login_becomes_name_and_password() -> None:
    text = (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="secret";'
    )
    given = {
        "sasl.jaas.config": text,
        "sasl.mechanism": "SCRAM-SHA-256",
        "security.protocol": "SASL_PLAINTEXT",
    }
    translation = for_producer(BOTH | given)
    assert (
        translation.settings["sasl.username"] == "ann" and translation.settings["sasl.password"] == "secret"
    )
    open_handle(Producer, translation, ConnectionErrors("Producer"))


def test_an_unknown_property_is_left_out_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    open_handle(
        Producer, for_producer(BOTH | {"no.such.thing": "1", "nor.this": "2"}), ConnectionErrors("Producer")
    )
    told = sorted(capsys.readouterr().err.splitlines())
    assert told == [
        f"The configuration '{name}' was supplied but isn't a known config."
        for name in ("no.such.thing", "nor.this")
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"linger.ms": "soon"}, r"linger\.ms"),
        ({"fetch.max.wait.ms": "soon"}, r"fetch\.max\.wait\.ms"),
        ({"security.protocol": "CARRIER_PIGEON"}, r"security\.protocol"),
    ],
)
def test_a_wrong_value_is_named_as_it_was_given(given: dict[str, str], says: str) -> None:
    with pytest.raises(ToolError, match=says):
        open_handle(Consumer, for_consumer(BOTH | {"group.id": "g"} | given), ConnectionErrors("Consumer"))
