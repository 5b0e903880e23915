"""kafka-storage compared with that of Apache Kafka 4.4: the same output for the same directories,
and each reads the files of the other."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from quorate.records.batch import control_records, iter_batches
from tests.support import java
from tests.support.cluster import BIN, Node

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]


def ours(*words: object) -> tuple[int, str]:
    done = subprocess.run(
        [str(BIN / "kafka-storage"), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def theirs(*words: object) -> tuple[int, str]:
    done = subprocess.run(
        java.command("kafka.tools.StorageTool", *words, version=java.LATEST_VERSION),
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    lines = [
        line
        for line in (done.stdout + done.stderr).splitlines(keepends=True)
        if not line.startswith("\t")
        and " INFO " not in line
        and " WARN " not in line  # Kafka logs its configuration here
    ]
    return done.returncode, "".join(lines)


def shape(text: str) -> str:
    """The output without parts that differ in each run, and without blank lines."""
    text = re.sub(r"directory\.id=[\w-]{22}", "directory.id=ID", text)
    text = text.replace('Exception in thread "main" java.lang.RuntimeException: ', "")
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith("\tat "))


COMMANDS: list[tuple[str, ...]] = [
    ("info", "-c", "FILE"),
    ("format", "-c", "FILE", "-t", "abc"),
    ("format", "-c", "FILE", "-t", "abc", "--standalone", "--feature", "no.such=1"),
    ("format", "-c", "FILE", "-t", "abc", "--standalone", "--feature", "kraft.version=0"),
    ("format", "-c", "FILE", "-t", "abc", "--standalone", "--release-version", "4.5-IV0"),
    ("format", "-c", "FILE", "-t", "abc", "--standalone", "--release-version", "4.0"),
    ("info", "-c", "FILE"),
    ("format", "-c", "FILE", "-t", "abc", "--standalone"),
    ("format", "-c", "FILE", "-t", "abc", "--no-initial-controllers", "--ignore-formatted"),
    ("version-mapping",),
    ("version-mapping", "--release-version", "3.9"),
    ("version-mapping", "--release-version", "4.5-IV0"),
    ("version-mapping", "--release-version", "7.7"),
    ("feature-dependencies", "--feature", "metadata.version=33", "--feature", "share.version = 2 "),
    (
        "feature-dependencies",
        "--feature",
        "eligible.leader.replicas.version=1",
        "--feature",
        "kraft.version=1",
    ),
    ("feature-dependencies", "--feature", "no.such=2"),
    ("feature-dependencies", "--feature", "share.version"),
    ("feature-dependencies", "--feature", "share.version=x"),
]


def test_the_output_equals_that_of_kafkas_tool(tmp_path: Path) -> None:
    java.require_java(java.LATEST_VERSION)
    said: dict[str, list[tuple[int, str]]] = {}
    for name, tool in (("ours", ours), ("theirs", theirs)):
        node = Node(tmp_path / name)
        said[name] = []
        for words in COMMANDS:
            status, text = tool(*[node.properties if w == "FILE" else w for w in words])
            said[name].append((status, shape(text).replace(str(node.base), "BASE")))
    for words, mine, kafka in zip(COMMANDS, said["ours"], said["theirs"], strict=True):
        assert mine == kafka, words


def test_each_reads_what_the_other_formatted(tmp_path: Path) -> None:
    java.require_java(java.LATEST_VERSION)
    for name, write, read in (("ours", ours, theirs), ("theirs", theirs, ours)):
        node = Node(tmp_path / name)
        assert write("format", "-c", node.properties, "-t", "abc", "--standalone")[0] == 0
        status, text = read("info", "-c", node.properties)
        assert status == 0, text
        assert re.search(
            r"Found metadata: \{cluster\.id=abc, directory\.id=[\w-]{22}, node\.id=1, version=1\}", text
        )


VOTERS = "1@127.0.0.1:9093:JEXY6aqzQY-32P5TStzaFg,2@localhost:9094:MvDxzVmcRsaTz33bUuRU6A"
SCRAM = 'SCRAM-SHA-256=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]'
FIRST_SNAPSHOT = "00000000000000000000-0000000000.checkpoint"


def without_ids_and_times(path: Path) -> bytes:
    """The bytes of a file, without ids, times and checksums."""
    content = path.read_bytes()
    if path.name == "meta.properties":
        lines = [re.sub(rb"directory\.id=.*", b"", line) for line in content.splitlines()]
        return b"\n".join(sorted(line for line in lines if not line.startswith(b"#")))
    batches = []
    for header, batch in iter_batches(content):
        plain = bytes(batch)
        plain = plain[:17] + plain[21:27] + plain[43:]  # no checksum, first and last timestamp
        for _, value in control_records(batch) if header.is_control else ():
            if len(value) == 11:  # SnapshotHeader: version, time, tags
                plain = plain.replace(bytes(value), b"")
        batches.append(plain)
    return b"".join(batches)


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (("--initial-controllers", VOTERS, "--add-scram", SCRAM), {}),
        (("--no-initial-controllers", "--release-version", "3.3"), {}),
        (("--release-version", "4.1"), {"controller.quorum.voters": "1@127.0.0.1:9093"}),
        ((), {"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"}),
    ],
    ids=["voters", "no voters", "static", "broker"],
)
def test_the_files_have_the_same_bytes_up_to_ids_and_times(
    tmp_path: Path, words: tuple[str, ...], changes: dict[str, object]
) -> None:
    java.require_java(java.LATEST_VERSION)
    written: dict[str, dict[str, bytes]] = {}
    for name, tool in (("ours", ours), ("theirs", theirs)):
        node = Node(tmp_path / name, extra=changes)
        status, text = tool("format", "-c", node.properties, "-t", "abc", *words)
        assert status == 0, text
        written[name] = {
            str(path.relative_to(node.data)): without_ids_and_times(path)
            for path in sorted(node.data.rglob("*"))
            if path.is_file()
        }
    assert written["ours"] == written["theirs"]
    expected = {"meta.properties"} | ({f"__cluster_metadata-0/{FIRST_SNAPSHOT}"} if words else set())
    assert set(written["ours"]) == expected
