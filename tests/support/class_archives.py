"""Archives of the classes that Apache Kafka's nodes and tools load (JEP 350). A JVM that maps one starts with
about half of the processor time. A JVM of another build ignores it.

    python -m tests.support.class_archives

writes those that are missing.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import java
from tests.support.cluster import Node


def write_missing() -> None:
    """Runs each release's node and a tool once, each with the option that writes its archive at the end."""
    for version in java.VERSIONS:
        servers, tools = java.jars(version), java.jars(java.TOOLS_OF.get(version, version))
        if (
            servers is None
            or tools is None
            or (_exists(servers / java.SERVER_ARCHIVE) and _exists(tools / java.TOOLS_ARCHIVE))
        ):
            continue
        print(f"setup: an archive of the classes of Apache Kafka {version}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as base:
            node = Node(Path(base), impl="java", kafka=version)
            node.format()
            node.start(env={"JDK_JAVA_OPTIONS": _option(servers / java.SERVER_ARCHIVE)})
            option = _option(tools / java.TOOLS_ARCHIVE)
            main, where = "org.apache.kafka.tools.TopicCommand", ("--bootstrap-server", node.bootstrap)
            name, *words = java.command(main, *where, "--list", version=version)
            subprocess.run([name, option, *words], check=True, capture_output=True, timeout=90)
            node.stop()


def _exists(archive: Path) -> bool:
    """Whether an archive is there and newer than all jars: the JVM refuses one whose jars have changed."""
    made = archive.stat().st_mtime if archive.exists() else 0.0
    return all(jar.stat().st_mtime <= made for jar in archive.parent.glob("*.jar"))


def _option(archive: Path) -> str:
    archive.unlink(missing_ok=True)
    return f"-XX:ArchiveClassesAtExit={archive}"


if __name__ == "__main__":
    write_missing()
