"""`quorate doctor`: what it finds in properties files."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorate.tools import quorate
from quorate.tools.doctor.findings import Finding, Severity, exit_status
from quorate.tools.doctor.properties import check_properties, corrected_lines

BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": "/data/a",
}
CONTROLLER = {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:9093"}
BROKER = {"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"}
Changes = dict[str, str | None]


def text_of(changes: Changes) -> bytes:
    return "".join(f"{k}={v}\n" for k, v in (BASE | changes).items() if v is not None).encode()


def codes(findings: list[Finding]) -> set[str]:
    return {finding.code for finding in findings}


def check(changes: Changes) -> tuple[list[Finding], dict[str, str | None]]:
    found = check_properties(Path("server.properties"), text_of(changes))
    given = {k: v for k, v in (BASE | changes).items() if v is not None}
    return found.findings, corrected_lines(found.findings, given)


# --- properties -----------------------------------------------------------------------------------


def test_a_good_file_has_no_findings() -> None:
    assert check({}) == ([], {})
    assert check(CONTROLLER) == ([], {})
    assert check(BROKER) == ([], {})


PROPERTIES: list[tuple[Changes, str, Changes]] = [
    ({"num.partition": "3"}, "unknown-key", {"num.partition": None, "num.partitions": "3"}),
    ({"retention.ms": "5000"}, "unknown-key", {"retention.ms": None, "log.retention.ms": "5000"}),
    ({"num.partition": "x"}, "unknown-key", {"num.partition": None}),
    ({"zookeeper.connect": "z:2181"}, "obsolete-key", {"zookeeper.connect": None}),
    ({"delegation.token.master.key": "k"},
     "obsolete-key", {"delegation.token.master.key": None, "delegation.token.secret.key": "k"}),
    ({"node.id": None, "broker.id": "4"}, "deprecated-key", {"broker.id": None, "node.id": "4"}),
    ({"broker.id": "1"}, "deprecated-key", {"broker.id": None}),
    ({"broker.id": "2"}, "invalid-value", {"broker.id": None}),
    ({"num.io.threads": "3"}, "without-effect", {}),
    ({"node.id": None}, "missing-key", {}),
    ({"process.roles": None}, "missing-key", {"process.roles": "broker,controller"}),
    ({"process.roles": None} | {"listeners": CONTROLLER["listeners"]}, "missing-key", {"process.roles": "controller"}),
    ({"process.roles": "broker,controler"}, "invalid-value", {"process.roles": "broker,controller"}),
    ({"auto.create.topics.enable": "yes"}, "invalid-value", {"auto.create.topics.enable": "true"}),
    ({"log.segment.bytes": "512m"}, "invalid-value", {"log.segment.bytes": str(512 << 20)}),
    ({"log.retention.ms": "7d"}, "invalid-value", {"log.retention.ms": "604800000"}),
    ({"num.partitions": "1_000"}, "invalid-value", {"num.partitions": "1000"}),
    ({"num.partitions": "many"}, "invalid-value", {"num.partitions": None}),
    ({"compression.type": "ztsd"}, "invalid-value", {"compression.type": "zstd"}),
    ({"log.retention.ms": "0"}, "invalid-value", {"log.retention.ms": "-1"}),
    ({"listeners": "PLAINTEXT://127.0.0.1:9092"},
     "invalid-value", {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093"}),
    (BROKER | {"listeners": BASE["listeners"]}, "invalid-value", {"listeners": "PLAINTEXT://127.0.0.1:9092"}),
    (CONTROLLER | {"listeners": BASE["listeners"]}, "invalid-value", {"listeners": "CONTROLLER://127.0.0.1:9093"}),
    ({"controller.listener.names": None}, "missing-key", {"controller.listener.names": "CONTROLLER"}),
    ({"controller.quorum.bootstrap.servers": None, "controller.quorum.voters": "2@127.0.0.1:9095"}, "invalid-value",
     {"controller.quorum.voters": "2@127.0.0.1:9095,1@127.0.0.1:9093"}),
    ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093"},
     "invalid-value", {"advertised.listeners": "PLAINTEXT://NAME-OF-THIS-HOST:9092"}),
    ({"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9092"}, "invalid-value", {}),
    ({"advertised.listeners": "PLAINTEXT://h:9092,SSL://h:9095"},
     "invalid-value", {"advertised.listeners": "PLAINTEXT://h:9092"}),
    ({"inter.broker.listener.name": "CONTROLLER"}, "invalid-value", {"inter.broker.listener.name": "PLAINTEXT"}),
    ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "invalid-value",
     {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"}),
    ({"authorizer.class.name": "x.Y"}, "not-supported", {}),
    ({"quorate.http.listen": "0.0.0.0:9092"}, "port-used-twice", {}),
    ({"controller.quorum.voters": "1@127.0.0.1:9093"}, "static-and-dynamic-quorum", {}),
    ({"controller.quorum.bootstrap.servers": None, "controller.quorum.voters": "1@h:9099"}, "voter-elsewhere", {}),
    ({"log.dirs": "/tmp/kafka-logs"}, "temporary-directory", {}),
    ({"log.dirs": None}, "temporary-directory", {}),
    ({"log.dirs": "data"}, "relative-directory", {}),
    ({"broker.session.timeout.ms": "3000"}, "session-too-short", {"broker.heartbeat.interval.ms": "750"}),
    ({"message.max.bytes": "2000000", "log.segment.bytes": "1048576"},
     "message-above-segment", {"message.max.bytes": "1048576"}),
    ({"socket.request.max.bytes": "1000"},
     "message-above-request", {"socket.request.max.bytes": str(1048588 + (1 << 20))}),
    ({"log.retention.bytes": "1000"}, "retention-below-segment", {}),
    ({"default.replication.factor": "2", "min.insync.replicas": "3"}, "isr-above-replication", {}),
    ({"log.dirs": r"C:\users"}, "malformed-escape", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "code", "correction"), PROPERTIES, ids=[str(i) for i in range(len(PROPERTIES))]
)
def test_a_properties_file_is_corrected(changes: Changes, code: str, correction: Changes) -> None:
    findings, corrections = check(changes)
    assert code in codes(findings)
    assert corrections == correction


@pytest.mark.parametrize(
    ("changes", "code", "correction"), PROPERTIES, ids=[str(i) for i in range(len(PROPERTIES))]
)
def test_the_corrected_file_no_longer_has_the_error(changes: Changes, code: str, correction: Changes) -> None:
    if correction:
        again, _ = check(changes | correction)
        assert code not in codes(again)
        assert exit_status(again) < Severity.ERROR


def test_all_errors_are_found_and_not_only_the_first() -> None:
    findings, corrections = check(
        {
            "num.partitions": "x",
            "log.roll.ms": "0",
            "listeners": "PLAINTEXT://h:9092",
            "queued.max.request.bytes": "5",
        }
    )
    errors = {f.key for f in findings if f.severity is Severity.ERROR}
    assert errors == {
        "num.partitions",
        "controller.listener.names",
        "queued.max.request.bytes",
        "log.roll.ms",
    }
    assert corrections["queued.max.request.bytes"] == "-1"


def test_repeated_keys_and_encodings_are_found_with_their_lines() -> None:
    content = b"\xef\xbb\xbf" + text_of({"broker.rack": "a"}) + b"broker.rack=b\nsuper.users=J\xc3\xbcrgen\n"
    findings = check_properties(Path("f"), content).findings
    assert {(f.code, f.line) for f in findings} >= {
        ("byte-order-mark", 1),
        ("repeated-key", 7),
        ("not-ascii", 9),
    }


def test_a_password_is_not_shown() -> None:
    keys = ("ssl.key.password", "ssl.keystore.password", "listener.name.a.ssl.keystore.password")
    findings, _ = check(dict.fromkeys(keys, "geheim"))
    assert findings
    assert not any("geheim" in f.text + f.remedy for f in findings)


def test_a_file_without_an_end_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert quorate.main(["doctor", "/dev/zero"]) == 2
    assert "/dev/zero cannot be checked: it has more than 16 MB" in capsys.readouterr().err
