"""Apache Kafka from Maven: where its jars are, and how its tools and nodes are started. Tests that need
it are marked `java`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

KAFKA_VERSION = "4.1.1"
ROOT = Path(__file__).resolve().parents[2]
HEAP = "-Xmx512m"


def jars() -> Path | None:
    """The folder of Apache Kafka's jars (`QUORATE_KAFKA_JARS`, or what `make setup` put into `.cache`),
    or None."""
    for candidate in (os.environ.get("QUORATE_KAFKA_JARS"), str(ROOT / ".cache" / f"kafka-{KAFKA_VERSION}")):
        if candidate and any(Path(candidate).glob("kafka-clients-*.jar")):
            return Path(candidate)
    return None


def require_java() -> Path:
    """The jars, or a skip that says what is missing; on CI a missing Java is a failure."""
    found = jars()
    if found is not None and shutil.which("java"):
        return found
    what = (
        "java is not on the PATH"
        if not shutil.which("java")
        else f"the jars of Apache Kafka {KAFKA_VERSION} are missing (run: make setup)"
    )
    if os.environ.get("CI"):
        pytest.fail(f"{what}; on CI this is a failure")
    pytest.skip(what)


def command(main_class: str, *args: object, heap: str = HEAP) -> list[str]:
    return [
        "java",
        heap,
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        f"{require_java()}/*",
        main_class,
        *map(str, args),
    ]


def run(main_class: str, *args: object, timeout_s: float = 90, check: bool = True) -> str:
    """Runs one of Kafka's tools to its end; its standard output."""
    done = subprocess.run(
        command(main_class, *args), capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if check and done.returncode:
        raise AssertionError(f"{main_class} {args}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout
