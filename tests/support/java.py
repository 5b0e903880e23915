"""Apache Kafka from Maven: where the jars of each release are, and how its tools and nodes are started.
Tests that need it are marked `java`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

KAFKA_VERSION = "4.1.1"
LATEST_VERSION = "4.4.0"
VERSIONS = (KAFKA_VERSION, LATEST_VERSION)
TOOLS_OF = {"4.4.0": "4.3.1"}
"""Where Maven has no tools of a release: the release whose tools are used with it."""
SERVER_CLASSES = ("kafka.Kafka", "kafka.tools.StorageTool")
"""The main classes in the server's own jars."""
MOVED = {"kafka.tools.DumpLogSegments": "org.apache.kafka.tools.DumpLogSegments"}
"""Main classes that have another name since 4.3."""
SERVER_ARCHIVE, TOOLS_ARCHIVE = "server.jsa", "tools.jsa"
"""Beside the jars: archives of their classes (`tests.support.class_archives`)."""
ROOT = Path(__file__).resolve().parents[2]
HEAP = "-Xmx512m"


def jars(version: str = KAFKA_VERSION) -> Path | None:
    """The folder of a release's jars (what `make setup` put into `.cache`; for the default release
    `QUORATE_KAFKA_JARS` comes first), or None."""
    named = os.environ.get("QUORATE_KAFKA_JARS") if version == KAFKA_VERSION else None
    for candidate in (named, str(ROOT / ".cache" / f"kafka-{version}")):
        if candidate and any(Path(candidate).glob("kafka-clients-*.jar")):
            return Path(candidate)
    return None


def require_java(version: str = KAFKA_VERSION) -> Path:
    """The jars of a release's server, or a skip that says what is missing; on CI a missing Java is a
    failure."""
    found = jars(version)
    if found is not None and shutil.which("java"):
        return found
    what = (
        "java is not on the PATH"
        if not shutil.which("java")
        else f"the jars of Apache Kafka {version} are missing (run: make setup)"
    )
    if os.environ.get("CI"):
        pytest.fail(f"{what}; on CI this is a failure")
    pytest.skip(what)


def require_tools(version: str = KAFKA_VERSION) -> Path:
    """The jars with a release's tools, or a skip that says what is missing."""
    return require_java(TOOLS_OF.get(version, version))


def archive_options(archive: Path) -> list[str]:
    """The options with which a JVM maps an archive of classes. It says nothing if it cannot."""
    if not archive.exists():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def command(main_class: str, *args: object, heap: str = HEAP, version: str = KAFKA_VERSION) -> list[str]:
    """The command line of one of Kafka's main classes, named as in 4.1."""
    server = main_class in SERVER_CLASSES
    folder = require_java(version) if server else require_tools(version)
    return [
        "java",
        heap,
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        *archive_options(folder / (SERVER_ARCHIVE if server else TOOLS_ARCHIVE)),
        "-cp",
        f"{folder}/*",
        main_class if version == KAFKA_VERSION else MOVED.get(main_class, main_class),
        *map(str, args),
    ]


def run(
    main_class: str,
    *args: object,
    timeout_s: float = 90,
    check: bool = True,
    version: str = KAFKA_VERSION,
) -> str:
    """Runs one of Kafka's tools to its end; its standard output."""
    done = subprocess.run(
        command(main_class, *args, version=version),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if check and done.returncode:
        raise AssertionError(f"{main_class} {args}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout
