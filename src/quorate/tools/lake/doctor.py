"""The command `quorate-pipeline doctor`: checks what the pipeline needs from this machine.

Each check takes the facts as arguments and returns findings, so that tests can describe any machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from quorate.dataclass import dataclass
from quorate.pipeline.spark import connector, delta
from quorate.pipeline.spark.jars import Jars

PACKAGES: Final = {
    "pyspark": ("4.1", "4.2"),
    "pyarrow": ("19", None),
    "numpy": ("1.26", None),
    "pandas": ("2.2", "3"),
    "matplotlib": ("3.10", None),
}
"""The packages of the extra `spark`: the lowest version, and the one from which on they do not fit."""

JAVA: Final = (17, 21)
"""The releases of Java for which Spark 4.1 is built."""

_INSTALL: Final = "pip install 'quorate[spark]'"
_GIB: Final = 1 << 30
_DRIVER_BYTES: Final = 2 * _GIB
"""The heap of a local session (`pipeline.spark.session`)."""
_ENOUGH_BYTES: Final = 3 * _GIB
"""The heap, the rest of the JVM, and Python."""
_ENOUGH_DISK_BYTES: Final = 5 * _GIB


class Status(StrEnum):
    """How bad a finding is."""

    FINE = "fine"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has found, and what to do about it."""

    subject: str
    status: Status
    text: str
    remedy: str = ""


def add_doctor(commands: Any) -> None:
    """Adds the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor", help="check Java, jars, Python packages, memory and disk"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per finding")
    parser.set_defaults(run=doctor)


def doctor(args: argparse.Namespace) -> int:
    """Runs the command. Returns 0 if nothing is wrong, 1 if there are warnings, 2 if there are errors."""
    found = list(findings(os.environ, Path.home()))
    for finding in found:
        if args.json:
            print(json.dumps(asdict(finding)))
            continue
        print(f"{finding.status.upper():8}{finding.subject}: {finding.text}")
        if finding.remedy:
            print(f"        remedy: {finding.remedy}")
    return max([list(Status).index(finding.status) for finding in found], default=0)


def findings(environment: Mapping[str, str], home: Path) -> Iterator[Finding]:
    """All findings about this machine."""
    yield from check_java(environment, java_version)
    for name, (lowest, beyond) in PACKAGES.items():
        yield check_package(name, _installed(name), lowest, beyond)
    yield check_delta(environment, _ivy_jars(home))
    yield check_connector(environment, _ivy_jars(home))
    yield check_memory(available_bytes(Path("/")))
    folder = Path(environment.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0])
    yield check_disk(folder, _free_bytes(folder))


# --- Java -----------------------------------------------------------------------------------------


def check_java(environment: Mapping[str, str], version_of: Callable[[str], str]) -> Iterator[Finding]:
    """Checks the Java that Spark uses: that of JAVA_HOME, or else the one on the PATH. `version_of` gives the
    output of `java -version`."""
    low, high = JAVA
    home = environment.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    install = f"install Java {low}, such as the package openjdk-{low}-jre-headless"
    if home and not os.access(str(command), os.X_OK):
        yield Finding(
            "Java", Status.ERROR, f"JAVA_HOME is {home}, where there is no bin/java",
            f"set JAVA_HOME to the directory of a Java {low}, or unset it",
        )  # fmt: skip
        return
    if command is None:
        yield Finding("Java", Status.ERROR, "JAVA_HOME is not set and java is not on the PATH", install)
        return
    release = java_release(version_of(command))
    place = f"{command} (JAVA_HOME)" if home else command
    if release is None:
        yield Finding("Java", Status.ERROR, f"{place} does not say its version", install)
    elif release < low:
        yield Finding(
            "Java", Status.ERROR, f"{place} is Java {release}: Spark 4.1 needs {low} or {high}", install
        )
    elif release > high:
        yield Finding(
            "Java",
            Status.WARNING,
            f"{place} is Java {release}: Spark 4.1 is tested with {low} and {high}",
            install,
        )
    else:
        yield Finding("Java", Status.FINE, f"Java {release}, {place}")


def java_version(command: str) -> str:
    """The output of `java -version`, or nothing if it does not run."""
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def java_release(text: str) -> int | None:
    """The release in the output of `java -version`: 17 for 17.0.15, and 8 for 1.8.0."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return None if found is None else int(found[1])


# --- Python packages ------------------------------------------------------------------------------


def check_package(name: str, version: str | None, lowest: str, beyond: str | None) -> Finding:
    """Checks the version of a package."""
    if version is None:
        return Finding(name, Status.ERROR, "is not installed", _INSTALL)
    if _numbers(version) < _numbers(lowest):
        return Finding(name, Status.ERROR, f"{version} is older than {lowest}", _INSTALL)
    if beyond is not None and _numbers(version) >= _numbers(beyond):
        return Finding(name, Status.ERROR, f"{version} is too new: it must be below {beyond}", _INSTALL)
    return Finding(name, Status.FINE, version)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple([int(number) for number in re.findall(r"\d+", version)[:3]])


# --- jars -----------------------------------------------------------------------------------------


def _ivy_jars(home: Path) -> list[str]:
    """The names of the jars that Spark has got from Maven before."""
    return sorted([path.name for path in home.glob(".ivy2*/jars/*.jar")])


def check_delta(environment: Mapping[str, str], cached: Sequence[str]) -> Finding:
    """Checks the jars of Delta."""
    return _check_jars("Delta", delta.DELTA, delta.VERSION, "the first command", environment, cached)


def check_connector(environment: Mapping[str, str], cached: Sequence[str]) -> Finding:
    """Checks the jars of Spark's Kafka connector, which only jobs with topics need."""
    return _check_jars(
        "Kafka connector",
        connector.CONNECTOR,
        connector.VERSION,
        "quorate-pipeline topics",
        environment,
        cached,
    )


def _check_jars(
    what: str, jars: Jars, version: str, user: str, environment: Mapping[str, str], cached: Sequence[str]
) -> Finding:
    """Checks the jars of a library, as a session looks for them.

    `user` gets them from Maven. In Ivy's cache their names begin with their organization.
    """
    folder = environment.get(jars.variable)
    if folder is not None:
        if missing := jars.missing([path.name for path in Path(folder).glob("*.jar")]):
            return Finding(
                what, Status.ERROR, f"{jars.variable} is {folder}, which lacks {', '.join(missing)}",
                f"copy these jars there, or unset {jars.variable}: Spark then gets them from Maven",
            )  # fmt: skip
        return Finding(what, Status.FINE, f"{version}, {folder} ({jars.variable})")
    if missing := jars.missing([name.partition("_")[2] for name in cached]):
        return Finding(
            what, Status.WARNING, f"{', '.join(missing)} not in Ivy's cache: {user} gets them from Maven",
            f"without a network: put the jars into a directory, and name it in {jars.variable}",
        )  # fmt: skip
    return Finding(what, Status.FINE, f"{version}, in Ivy's cache")


# --- memory and disk ------------------------------------------------------------------------------


def available_bytes(root: Path) -> int | None:
    """The memory that processes can get, also inside of a container. None where the kernel does not tell."""
    found = []
    try:
        text = (root / "proc/meminfo").read_text()
        found += [1024 * int(number) for number in re.findall(r"MemAvailable:\s+(\d+)", text)]
    except OSError:
        pass
    try:
        limit = (root / "sys/fs/cgroup/memory.max").read_text().strip()
        used = (root / "sys/fs/cgroup/memory.current").read_text().strip()
        if limit.isdigit():
            found.append(int(limit) - int(used))
    except OSError:
        pass
    return min(found, default=None)


def check_memory(available: int | None) -> Finding:
    """Checks the available memory."""
    if available is None:
        return Finding("memory", Status.FINE, "this system does not say how much is available")
    text = f"{available / _GIB:.1f} GiB available, a local session may use {_ENOUGH_BYTES // _GIB} GiB"
    if available < _DRIVER_BYTES:
        return Finding(
            "memory", Status.ERROR, text, "end other processes, or use a larger machine or container"
        )
    if available < _ENOUGH_BYTES:
        return Finding("memory", Status.WARNING, text, "end other processes")
    return Finding("memory", Status.FINE, text)


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def check_disk(folder: Path, free: int | None) -> Finding:
    """Checks the directory into which Spark writes what does not fit into memory."""
    remedy = "set SPARK_LOCAL_DIRS to a directory with more space"
    if free is None:
        return Finding("disk", Status.ERROR, f"{folder} does not exist", remedy)
    text = f"{free / _GIB:.1f} GiB free in {folder}, where Spark keeps what does not fit into memory"
    return (
        Finding("disk", Status.FINE, text)
        if free >= _ENOUGH_DISK_BYTES
        else Finding("disk", Status.WARNING, text, remedy)
    )
