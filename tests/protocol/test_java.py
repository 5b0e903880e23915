"""Byte for byte, and in JSON, as the generated classes of Apache Kafka 4.4.0 read and write them.

The comparison with random values runs where Java is. `java_golden.txt` keeps one answer of Java's for
each version of the messages that kio does not know, so that they are compared everywhere;
QUORATE_REWRITE_GOLDEN=1 writes it anew.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from quorate.protocol.errors import EncodeError
from quorate.protocol.json import default_of, from_json, to_json
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.schema import PRIMITIVES, Message, Struct
from tests.protocol.values import all_messages, all_versions, random_struct
from tests.support.java import LATEST_VERSION, require_java

HERE = Path(__file__).parent
GOLDEN = HERE / "java_golden.txt"
OURS = {cls.__name__: cls for cls in all_messages()}

_PACKAGES = {
    "quorate.metadata.records.": "org.apache.kafka.common.metadata",
    "quorate.broker.coordinators.records.transactions": "org.apache.kafka.coordinator.transaction.generated",
    "quorate.broker.coordinators.records.share_state": "org.apache.kafka.coordinator.share.generated",
    "quorate.broker.coordinators.records.": "org.apache.kafka.coordinator.group.generated",
    "quorate.raft.": "org.apache.kafka.raft.generated",
    "quorate.": "org.apache.kafka.common.message",
}


def java_name(cls: type[Message]) -> str:
    package = next(java for ours, java in _PACKAGES.items() if cls.__module__.startswith(ours))
    return f"{package}.{cls.__name__}{'Data' if cls.__name__.endswith(('Request', 'Response', 'Header')) else ''}"


def java_has(cls: type[Message], version: int) -> bool:
    return cls.__name__ != "RequestHeader" or version > 0  # 0 went with ControlledShutdown


def ask_java(cases: list[tuple[type[Message], int, int, bytes | None]]) -> list[tuple[str, Any]]:
    """For (class, version to read, version to write, bytes or None for an instance as constructed):
    what Java writes as hex and as JSON, or "ERROR" and the exception."""
    lines = "".join(
        f"{java_name(cls)} {read} {write} {'default' if data is None else data.hex()}\n"
        for cls, read, write, data in cases
    )
    done = subprocess.run(
        [
            "java",
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{require_java(LATEST_VERSION)}/*",
            str(HERE / "Echo.java"),
        ],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    return [(data, answer if data == "ERROR" else json.loads(answer)) for data, answer in answers]


def each_struct(value: Struct) -> list[Struct]:
    """A message and all structs in it."""
    found = [value]
    for spec in type(value).fields():
        if spec.kind not in PRIMITIVES and (inner := getattr(value, spec.name)) is not None:
            for struct in inner if spec.array else [inner]:
                found += each_struct(struct)
    return found


def java_value(cls: type[Message], version: int, rng: random.Random, *, unknown_tags: bool) -> Message:
    """A random value without what Java cannot have: random bytes as records, and unknown tags that it
    knows."""
    message: Message = random_struct(cls, cls, version, rng, unknown_tags=unknown_tags)
    for struct in each_struct(message):
        for spec in type(struct).fields():
            if spec.kind == "Records" and getattr(struct, spec.name) is not None:
                setattr(struct, spec.name, b"")
            if not unknown_tags and spec.tag is not None and spec.tag >= 10_000:
                setattr(struct, spec.name, spec.default)
        if struct.unknown_tags:  # Java refuses tags that it knows from later versions
            later = {spec.tag for spec in type(struct).fields()}
            struct.unknown_tags = {
                tag: data for tag, data in struct.unknown_tags.items() if tag not in later
            } or None
    return message


@pytest.mark.java
def test_java_writes_the_same_bytes_and_json_for_every_message_and_version() -> None:
    if os.environ.get("QUORATE_REWRITE_GOLDEN"):
        rewrite_golden()
    values = []
    for cls, version in all_versions():
        if not java_has(cls, version):
            continue
        rng = random.Random(f"java {cls.__name__} {version}")
        values += [(cls, version, java_value(cls, version, rng, unknown_tags=i % 2 == 1)) for i in range(4)]
    sent = [message.encode(version) for _, version, message in values]
    answers = ask_java(
        [(cls, version, version, data) for (cls, version, _), data in zip(values, sent, strict=True)]
    )
    for i, (data, answer) in enumerate(answers):
        cls, version, message = values[i]
        assert data == sent[i].hex(), (cls, version, message, answer)
        if i % 2 == 0:  # the others have tags of ours, which Java does not show
            shown = to_json(message, version, record_bytes=True)
            assert shown == answer
            assert list(shown) == list(answer), "the order of fields"


@pytest.mark.java
def test_java_has_the_same_defaults_in_every_version() -> None:
    cases = [(cls, version) for cls, version in all_versions() if java_has(cls, version)]
    for (cls, version), (data, answer) in zip(
        cases, ask_java([(cls, version, version, None) for cls, version in cases]), strict=True
    ):
        assert data == cls().encode(version).hex(), (cls, version, answer)


@pytest.mark.java
def test_java_refuses_the_same_values_in_versions_that_lack_a_field() -> None:
    cases = []
    values = []
    for cls in all_messages():
        rng = random.Random(f"gating {cls.__name__}")
        for read in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
            for write in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
                if read != write and java_has(cls, read) and java_has(cls, write):
                    message = sparse(java_value(cls, read, rng, unknown_tags=False), rng)
                    values.append((message, write))
                    cases.append((cls, read, write, message.encode(read)))
    refused = written = 0
    for (message, write), (data, answer) in zip(values, ask_java(cases), strict=True):
        try:
            ours = message.encode(write).hex()
        except EncodeError:
            ours = "ERROR"
        assert ours == data, (message, write, answer)
        refused += data == "ERROR"
        written += data != "ERROR"
    assert refused > 100
    assert written > 100


def sparse(message: Message, rng: random.Random) -> Message:
    """The message with most fields as they are by default, so that other versions can often carry it."""
    for struct in each_struct(message):
        for spec in type(struct).fields():
            if rng.random() < 0.7:
                setattr(struct, spec.name, default_of(spec))
    return message


def golden_cases() -> list[tuple[type[Message], int, bytes]]:
    from tests.protocol.test_kio import KIO

    cases = []
    for cls, version in all_versions():
        if version in KIO.get(cls.__name__, ()) or not java_has(cls, version):
            continue
        rng = random.Random(f"golden {cls.__name__} {version}")
        for _ in range(20):  # a short one that still sets most
            data = java_value(cls, version, rng, unknown_tags=False).encode(version)
            if len(data) < 400:
                break
        cases.append((cls, version, data))
    return cases


def rewrite_golden() -> None:
    cases = golden_cases()
    answers = ask_java([(cls, version, version, data) for cls, version, data in cases])
    with GOLDEN.open("w") as file:
        for (cls, version, _), (data, answer) in zip(cases, answers, strict=True):
            shown = json.dumps(answer, separators=(",", ":"), ensure_ascii=False)
            file.write(f"{cls.__name__} {version} {data or '-'} {shown}\n")


@pytest.mark.parametrize("line", GOLDEN.read_text().splitlines(), ids=lambda line: "-".join(line.split()[:2]))
def test_what_java_wrote_is_read_and_written_alike(line: str) -> None:
    name, version_text, data_hex, shown = line.split(" ", 3)
    cls, version = OURS[name], int(version_text)
    data = b"" if data_hex == "-" else bytes.fromhex(data_hex)
    message = cls.decode(data, version)
    assert message.encode(version) == data
    assert to_json(message, version, record_bytes=True) == json.loads(shown)
    assert from_json(cls, json.loads(shown), version) == message


def test_golden_has_all_records() -> None:
    named = {line.split()[0] for line in GOLDEN.read_text().splitlines()}
    assert {name for name in OURS if "Record" in name} <= named | {
        "DeleteRecordsRequest", "DeleteRecordsResponse", "KRaftVersionRecord", "VotersRecord", "SnapshotHeaderRecord",
        "SnapshotFooterRecord",
    }  # fmt: skip


@pytest.mark.java
def test_java_reads_the_same_text_from_bytes_that_are_not_utf8() -> None:
    rng = random.Random("strings")
    edges = [
        0x00,
        0x41,
        0x7F,
        0x80,
        0x8F,
        0x90,
        0x9F,
        0xA0,
        0xBF,
        0xC0,
        0xC2,
        0xDF,
        0xE0,
        0xE1,
        0xED,
        0xEF,
        0xF0,
        0xF4,
        0xF5,
        0xFF,
    ]
    cases = []
    for _ in range(4000):
        name = bytes(rng.choice(edges) for _ in range(rng.randrange(1, 9)))
        cases.append((MetadataRequest, 9, 9, b"\2" + bytes([len(name) + 1]) + name + b"\0\1\0\0\0"))
    for (_, version, _, sent), (data, answer) in zip(cases, ask_java(cases), strict=True):
        assert MetadataRequest.decode(sent, version).encode(version).hex() == data, (sent.hex(), answer)
