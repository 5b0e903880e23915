"""An HDFS of one namenode and one datanode, in a Java process: Hadoop's own, from Maven."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.support.cluster import wait_for

JARS = Path(__file__).parents[2] / ".cache" / "hadoop-minicluster-3.4.2"
SPARK_JARS = Path(pyspark.__file__).parent / "jars"


class Hdfs:
    """A running HDFS. `uri` begins the paths of its files."""

    def __init__(self, uri: str, folder: Path) -> None:
        self.uri = uri
        self._folder = folder
        default = f"<property><name>fs.defaultFS</name><value>{uri}</value></property>"
        (folder / "core-site.xml").write_text(f"<configuration>{default}</configuration>")

    def shell(self, *words: object) -> str:
        """What a command of `hdfs dfs` prints."""
        done = subprocess.run(
            [*_java("128m", self._folder), "org.apache.hadoop.fs.FsShell", *map(str, words)],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


def _java(heap: str, configuration: Path) -> list[str]:
    """The command line of Java with Hadoop's classes, which Spark has but for those of the servers."""
    path = os.pathsep.join([str(configuration), f"{JARS}/*", f"{SPARK_JARS}/*"])
    return ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path]


@contextmanager
def running_hdfs(folder: Path) -> Iterator[Hdfs]:
    """Starts an empty HDFS with its data in a folder, and ends it."""
    if shutil.which("java") is None:
        pytest.skip("HDFS needs Java 17: java is not on the PATH")
    if not JARS.is_dir():
        pytest.skip("the jars of Hadoop's servers are missing (run: make setup)")
    details, log = folder / "details.json", folder / "hdfs.log"
    command = [
        *_java("384m", folder),
        "org.apache.hadoop.test.MiniDFSClusterManager",
        "-datanodes",
        "1",
        "-format",
    ]
    with (
        log.open("w") as out,
        subprocess.Popen(
            [*command, "-writeDetails", str(details)], cwd=folder, stdout=out, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            wait_for("HDFS", lambda: process.poll() is not None or _port(details), 120)
            port = _port(details)
            assert port is not None, log.read_text()
            yield Hdfs(f"hdfs://localhost:{port}", folder)
        finally:
            process.kill()


def _port(details: Path) -> int | None:
    """The namenode's port, once the cluster serves."""
    try:
        return int(json.loads(details.read_text())["namenode_port"])
    except (FileNotFoundError, ValueError):
        return None  # not yet, or not yet complete
