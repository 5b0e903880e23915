"""kafka-storage compared with Apache Kafka's: the same output for the same directories, and each reads the
files of the other."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

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
        java.command("kafka.tools.StorageTool", *words),
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
    ("format", "-c", "FILE", "-t", "abc", "--standalone", "--release-version", "4.0"),
    ("info", "-c", "FILE"),
    ("format", "-c", "FILE", "-t", "abc", "--standalone"),
    ("format", "-c", "FILE", "-t", "abc", "--no-initial-controllers", "--ignore-formatted"),
    ("version-mapping",),
    ("version-mapping", "--release-version", "3.9"),
    ("version-mapping", "--release-version", "7.7"),
    ("feature-dependencies", "--feature", "metadata.version=20"),
    ("feature-dependencies", "--feature", "transaction.version=2"),
    ("feature-dependencies", "--feature", "no.such=2"),
]


def test_the_output_equals_that_of_kafkas_tool(tmp_path: Path) -> None:
    java.require_java()
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
    java.require_java()
    for name, write, read in (("ours", ours, theirs), ("theirs", theirs, ours)):
        node = Node(tmp_path / name)
        assert write("format", "-c", node.properties, "-t", "abc", "--standalone")[0] == 0
        status, text = read("info", "-c", node.properties)
        assert status == 0, text
        assert re.search(
            r"Found metadata: \{cluster\.id=abc, directory\.id=[\w-]{22}, node\.id=1, version=1\}", text
        )


def test_the_files_have_the_same_bytes_up_to_ids_and_times(tmp_path: Path) -> None:
    java.require_java()
    voters = "1@127.0.0.1:9093:JEXY6aqzQY-32P5TStzaFg,2@localhost:9094:MvDxzVmcRsaTz33bUuRU6A"
    written: dict[str, dict[str, list[bytes]]] = {}
    for name, tool in (("ours", ours), ("theirs", theirs)):
        node = Node(tmp_path / name)
        argument = 'SCRAM-SHA-256=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]'
        status, text = tool(
            "format",
            "-c",
            node.properties,
            "-t",
            "abc",
            "--initial-controllers",
            voters,
            "--add-scram",
            argument,
        )
        assert status == 0, text
        written[name] = {}
        for path in sorted(node.data.rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                if path.name == "meta.properties":
                    written[name][path.name] = sorted(
                        line for line in content.splitlines() if not line.startswith(b"#")
                    )
                else:
                    dumped = java.run(
                        "kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", path
                    )
                    plain = re.sub(r"(crc|CreateTime): \d+", r"\1", dumped)
                    plain = re.sub(r'"lastContainedLogTimestamp":\d+', "", plain).replace(str(path), "")
                    written[name][path.name] = [plain.encode()]
    assert written["ours"] == written["theirs"]
    assert written["ours"].keys() == {
        "meta.properties",
        "bootstrap.checkpoint",
        "00000000000000000000-0000000000.checkpoint",
    }
