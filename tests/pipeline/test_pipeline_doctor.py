"""`quorate-pipeline doctor`: its findings about Java, packages, jars, memory and disk."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from quorate.pipeline.spark.connector import CONNECTOR
from quorate.tools.lake.doctor import (
    PACKAGES,
    Finding,
    available_bytes,
    check_connector,
    check_delta,
    check_disk,
    check_java,
    check_memory,
    check_package,
    java_release,
)
from quorate.tools.lake.pipeline import main

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
DELTA = ["delta-spark_4.1_2.13-4.4.0.jar", "delta-storage-4.4.0.jar"]


def shown(finding: Finding) -> tuple[str, str]:
    return finding.status.value, finding.text


def a_java(folder: Path) -> Path:
    """A directory with a program `bin/java`."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(0o755)
    return folder


def never(command: str) -> str:
    pytest.fail(f"{command} is run")


def test_the_packages_are_those_of_the_extra() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    wanted = {}
    for text in extra:
        found = re.fullmatch(r"(\w+)>=([\d.]+)(?:,<([\d.]+))?", text)
        assert found is not None, text
        wanted[found[1]] = (found[2], found[3])
    assert wanted == PACKAGES


@pytest.mark.parametrize(
    ("version", "lowest", "beyond", "expected"),
    [
        ("4.1.4", "4.1", "4.2", ("fine", "4.1.4")),
        (None, "4.1", "4.2", ("error", "is not installed")),
        ("4.0.1", "4.1", "4.2", ("error", "4.0.1 is older than 4.1")),
        ("4.2.0", "4.1", "4.2", ("error", "4.2.0 is too new: it must be below 4.2")),
        ("26.0.1", "18", None, ("fine", "26.0.1")),
    ],
)
def test_packages(version: str | None, lowest: str, beyond: str | None, expected: tuple[str, str]) -> None:
    finding = check_package("pyspark", version, lowest, beyond)
    assert shown(finding) == expected
    assert (finding.remedy == "pip install 'quorate[spark]'") is (expected[0] != "fine")


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("", None),
    ],
)
def test_the_release_of_java(text: str, release: int | None) -> None:
    assert java_release(text) == release


@pytest.mark.parametrize(
    ("version", "status", "text"),
    [
        ("17.0.15", "fine", "Java 17, "),
        ("11.0.2", "error", "is Java 11: Spark 4.1 needs 17 or 21"),
        ("25", "warning", "is Java 25: Spark 4.1 is tested with 17 and 21"),
    ],
)
def test_java_of_java_home_comes_before_the_path(
    tmp_path: Path, version: str, status: str, text: str
) -> None:
    chosen, other = a_java(tmp_path / "chosen"), a_java(tmp_path / "other")
    says = {f"{chosen}/bin/java": version, f"{other}/bin/java": "21.0.1"}

    def version_of(command: str) -> str:
        return f'openjdk version "{says[command]}" 2026-01-20'

    (finding,) = check_java({"JAVA_HOME": str(chosen), "PATH": str(other / "bin")}, version_of)
    assert finding.status == status and text in finding.text and "(JAVA_HOME)" in finding.text
    (finding,) = check_java({"PATH": str(other / "bin")}, version_of)
    assert shown(finding) == ("fine", f"Java 21, {other}/bin/java")


def test_java_that_is_not_there(tmp_path: Path) -> None:
    (finding,) = check_java({"PATH": str(tmp_path)}, never)
    assert shown(finding) == ("error", "JAVA_HOME is not set and java is not on the PATH")
    (finding,) = check_java({"JAVA_HOME": str(tmp_path)}, never)
    assert shown(finding) == ("error", f"JAVA_HOME is {tmp_path}, where there is no bin/java")
    assert finding.remedy == "set JAVA_HOME to the directory of a Java 17, or unset it"
    (finding,) = check_java({"JAVA_HOME": str(a_java(tmp_path / "broken"))}, lambda _: "")
    assert shown(finding) == ("error", f"{tmp_path}/broken/bin/java (JAVA_HOME) does not say its version")


def test_jars_of_delta(tmp_path: Path) -> None:
    named = {"QUORATE_DELTA_JARS": str(tmp_path)}
    (tmp_path / DELTA[0]).touch()
    finding = check_delta(named, [])
    assert shown(finding) == ("error", f"QUORATE_DELTA_JARS is {tmp_path}, which lacks {DELTA[1]}")
    (tmp_path / DELTA[1]).touch()
    assert check_delta(named, []).status == "fine"
    missing = check_delta({}, [])
    assert shown(missing) == (
        "warning",
        f"{', '.join(DELTA)} not in Ivy's cache: the first command gets them from Maven",
    )
    assert check_delta({}, [f"io.delta_{name}" for name in DELTA]).status == "fine"


def test_jars_of_the_kafka_connector(tmp_path: Path) -> None:
    names = [f"{name}.jar" for name in CONNECTOR.needed]
    cached = [f"org.apache.spark_{name}" for name in names]
    assert check_connector({}, cached).status == "fine"
    finding = check_connector({}, cached[:1])
    assert shown(finding) == (
        "warning",
        f"{names[1]}, {names[2]} not in Ivy's cache: quorate-pipeline topics gets them from Maven",
    )
    assert "QUORATE_SPARK_KAFKA_JARS" in finding.remedy
    named = {"QUORATE_SPARK_KAFKA_JARS": str(tmp_path)}
    assert check_connector(named, cached).status == "error", "a session looks into the directory only"
    for name in names:
        (tmp_path / name).touch()
    assert shown(check_connector(named, [])) == ("fine", f"4.1.1, {tmp_path} (QUORATE_SPARK_KAFKA_JARS)")


@pytest.mark.parametrize(("limit", "available"), [("max", 8 * GIB), (str(3 * GIB), 2 * GIB), (None, 8 * GIB)])
def test_memory_is_that_of_the_container(tmp_path: Path, limit: str | None, available: int) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable:   {8 * GIB // 1024} kB\n")
    if limit is not None:
        (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup/memory.max").write_text(f"{limit}\n")
        (tmp_path / "sys/fs/cgroup/memory.current").write_text(f"{GIB}\n")
    assert available_bytes(tmp_path) == available


def test_too_little_memory_or_disk(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None
    assert [check_memory(size).status.value for size in (None, 4 * GIB, 5 * GIB // 2, GIB)] == [
        "fine",
        "fine",
        "warning",
        "error",
    ]
    assert [check_disk(tmp_path, size).status.value for size in (None, GIB, 9 * GIB)] == [
        "error",
        "warning",
        "fine",
    ]


def test_the_command_needs_no_spark_and_says_the_worst_in_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["doctor"]) == 2
    assert "ERROR   Java: JAVA_HOME is" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 2
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["subject"] for row in rows] == [
        "Java",
        *PACKAGES,
        "Delta",
        "Kafka connector",
        "memory",
        "disk",
    ]
