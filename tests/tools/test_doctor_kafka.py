"""What `quorate doctor` says that Apache Kafka would say, beside Apache Kafka 4.4 itself."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.log.directories.meta_properties import MetaProperties, write
from quorate.tools.doctor import directories
from quorate.tools.doctor.properties import check_properties
from tests.support import java
from tests.tools.test_doctor import IDENTITIES, META
from tests.tools.test_doctor_properties import BASE, BROKER, CONTROLLER, PROPERTIES, Changes, text_of

pytestmark = pytest.mark.java

REFUSED: list[Changes] = [
    *[changes for changes, _, _ in PROPERTIES],
    {"process.roles": ""},
    {"controller.quorum.bootstrap.servers": None},
    {"controller.quorum.bootstrap.servers": "localhost"},
    {"controller.quorum.voters": "localhost:9093"},
    {"controller.quorum.voters": "x@localhost:9093"},
    {"controller.quorum.voters": "1@localhost"},
    {"controller.quorum.voters": "2@h:1,3@h:2"},
    BROKER | {"controller.quorum.voters": "1@h:1"},
    BROKER | {"controller.quorum.auto.join.enable": "true"},
    BROKER | {"controller.listener.names": "OTHER", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    CONTROLLER | {"listeners": "OTHER://h:9093", "listener.security.protocol.map": "OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT"},
    {"controller.listener.names": "CONTROLLER,OTHER"},
    {"listeners": "CONTROLLER://h:9093"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://10.0.0.1:9092"},
    {"listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9092"},
    {"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2,CONTROLLER://h:3"},
    {"listeners": "MINE://h:9092,CONTROLLER://h:9093"},
    {"listeners": "PLAINTEXT:9092,CONTROLLER://:9093"},
    {"listener.security.protocol.map": "PLAINTEXT:TLS,CONTROLLER:PLAINTEXT"},
    {"inter.broker.listener.name": "SSL"},
    {"inter.broker.listener.name": "MINE"},
    {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    {"advertised.listeners": "SSL://h:9092"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
    {"advertised.listeners": ""},
    {"log.roll.ms": "0"},
    {"log.roll.jitter.ms": "-1"},
    {"log.cleaner.dedupe.buffer.size": "1048576"},
    {"replica.fetch.wait.max.ms": "60000"},
    {"replica.fetch.wait.max.ms": "40000", "replica.socket.timeout.ms": "50000"},
    {"queued.max.request.bytes": "5"},
    {"max.connections.per.ip": "0"},
    {"compression.gzip.level": "0"},
    {"log.dirs": " , "},
]  # fmt: skip


@pytest.fixture(scope="module")
def kafka() -> Callable[[list[tuple[str, Path]]], list[str | None]]:
    """Asks Apache Kafka about files of a kind. An answer is None if it accepts the file."""
    folder = java.require_java(java.LATEST_VERSION)
    program = str(Path(__file__).parent / "Doctor.java")

    def ask(files: list[tuple[str, Path]]) -> list[str | None]:
        words = [word for kind, path in files for word in (kind, str(path))]
        done = subprocess.run(
            ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}/*", program, *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        answers = re.findall("^ANSWER (.*)$", done.stdout, re.MULTILINE)
        assert len(answers) == len(files), done.stderr
        return [None if answer == "ok" else answer.split("\\n")[0] for answer in answers]

    return ask


def test_the_refusals_of_properties_are_kafkas(
    kafka: Callable[[list[tuple[str, Path]]], list[str | None]], tmp_path: Path
) -> None:
    files = []
    for number, changes in enumerate(REFUSED):
        files.append(("config", tmp_path / f"{number}.properties"))
        files[-1][1].write_bytes(text_of(changes))
    theirs = kafka(files)
    ours = [check_properties(path, path.read_bytes()).kafka for _, path in files]
    differing = [
        f"{changes}\n  {own}\n  {other}"
        for changes, own, other in zip(REFUSED, ours, theirs, strict=True)
        if own != other
    ]
    assert not differing, "\n".join(differing)


def test_the_refusals_of_directories_are_kafkas(
    kafka: Callable[[list[tuple[str, Path]]], list[str | None]], tmp_path: Path
) -> None:
    files, ours = [], []
    for number, (change, _, _) in enumerate([(lambda dirs: None, "", ""), *IDENTITIES]):
        folder = tmp_path / str(number)
        dirs = [folder / "a", folder / "b"]
        for at, directory in enumerate(dirs):
            directory.mkdir(parents=True)
            write(directory, MetaProperties("abc", 1, bytes(15) + bytes([200 + at])))
        change(dirs)
        files.append(("directories", folder / "server.properties"))
        files[-1][1].write_bytes(text_of({"log.dirs": ",".join(map(str, dirs))}))
        node = directories.NodeDirectories(dirs, dirs[0], check_properties(*_read(files[-1][1])).config)
        ours.append(directories.check_directories(node, deep=False).kafka)
    assert ours == kafka(files)
    assert ours[0] is None


def _read(path: Path) -> tuple[Path, bytes]:
    return path, path.read_bytes()


def test_what_kafka_does_about_damaged_files_is_known(
    kafka: Callable[[list[tuple[str, Path]]], list[str | None]], tmp_path: Path
) -> None:
    directory = tmp_path / "d"
    (directory / META).mkdir(parents=True)
    write(directory, MetaProperties("abc", 1, b"d" * 16))
    (directory / "t-0").mkdir()
    (directory / "t-0" / "partition.metadata").write_bytes(b"nothing")
    (directory / "lost+found").mkdir()
    state = directory / META / "quorum-state"
    said: list[str] = []
    asked: list[tuple[str, Path]] = []
    for number, content in enumerate(
        [b"", b"{", b"[]", b"{}", b'{"leaderId":1,"leaderEpoch":1,"votedId":1,"data_version":7}']
    ):
        state.write_bytes(content)
        copy = tmp_path / str(number)
        shutil.copy(state, copy)
        findings = directories.check_directories(directories.of_path(directory), deep=False).findings
        [text] = [f.kafka for f in findings if f.code == "malformed-quorum-state"]
        said.append(text.partition(": ")[2].replace(str(state), str(copy)))
        asked.append(("quorum-state", copy))
    codes = {
        "malformed-topic-id": directory / "t-0" / "partition.metadata",
        "unknown-directory": directory / "lost+found",
    }
    for code, path in codes.items():
        [text] = [f.kafka for f in findings if f.code == code]
        said.append(text.partition(": ")[2])
        asked.append(("topic-id" if code == "malformed-topic-id" else "name", path))
    answers = kafka(asked)
    assert [a is not None and a.startswith(s) for s, a in zip(said, answers, strict=True)] == [True] * len(
        said
    ), (said, answers)


def test_a_good_file_is_accepted_by_both(
    kafka: Callable[[list[tuple[str, Path]]], list[str | None]], tmp_path: Path
) -> None:
    file = tmp_path / "f.properties"
    file.write_bytes(text_of({}))
    assert kafka([("config", file)]) == [check_properties(file, file.read_bytes()).kafka] == [None]
    assert BASE["node.id"] == "1"
