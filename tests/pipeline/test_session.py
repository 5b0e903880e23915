"""The Java options of Spark sessions."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest


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
