"""Spark sessions: the options of their JVM, and who stops them."""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("long", [False, True])
def test_the_code_that_spark_generates_for_all_tables_fits_into_the_code_cache(long: bool) -> None:
    session = pytest.importorskip("quorate.pipeline.spark.session", reason="PySpark is not installed")
    java = shutil.which("java")
    if java is None:
        pytest.skip("Spark needs Java 17: java is not on the PATH")
    options = session.java_options(long=long).split()
    done = subprocess.run(
        [java, *options, "-XX:+PrintFlagsFinal", "-version"], capture_output=True, text=True, check=True
    )
    [size] = re.findall(r"ReservedCodeCacheSize += +(\d+)", done.stdout)
    # A lake of 200,000 records needs more than 48 MiB, which is what Java reserves for its first
    # compiler alone.
    assert int(size) >= 240 << 20


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize("tool", ["quorate-pipeline", "quorate-topic-history"])
def test_a_command_in_any_thread_leaves_the_session_that_the_process_had(
    spark: SparkSession, kafka: Path, tmp_path: Path, tool: str
) -> None:
    from quorate.tools import topic_history
    from quorate.tools.lake import pipeline

    def command() -> int:
        if tool == "quorate-pipeline":
            return pipeline.main(["migrate", "--lake", str(tmp_path / "none")])
        folder = kafka / "running"
        return topic_history.main([str(folder), "--output", str(tmp_path / "events")])

    with ThreadPoolExecutor(1) as pool:  # a thread of its own has another thread of the JVM, too
        assert pool.submit(command).result() == (1 if tool == "quorate-pipeline" else 0)
    assert spark.range(3).count() == 3
