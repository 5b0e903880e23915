"""Creates a local Spark session for one command: no web server, few shuffle partitions, UTC."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from quorate.pipeline.datasource.source import MetadataLogSource
from quorate.pipeline.spark.connector import CONNECTOR, JAVA_OPTIONS
from quorate.pipeline.spark.delta import DELTA, DELTA_SETTINGS
from quorate.pipeline.spark.jars import jar_settings

SHORT_JOB = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A short job gains more from a fast start than from the last level of compilation."""

LONG_JOB = "-XX:+UseParallelGC"

CODE_CACHE: Final = "-XX:ReservedCodeCacheSize=512m"
"""The address space for compiled code. By default, the first compiler alone gets 48 MB, which the
tables of a first run have filled, and a JVM without room ends the query with `Out of space in
CodeCache`."""


def java_options(*, long: bool = False) -> str:
    """The options of the driver's JVM, but for those of logging."""
    return f"{LONG_JOB if long else SHORT_JOB} {CODE_CACHE} {JAVA_OPTIONS}"


def has_session() -> bool:
    """Whether this process has a Spark session, which then belongs to its creator.

    `SparkSession.getActiveSession` does not tell: the active session is that of a thread of the JVM,
    and a new connection to the JVM has a new thread.
    """
    return SparkContext._active_spark_context is not None


def local_session(
    name: str, *, cores: int | None = None, lake: bool = False, topics: bool = False, long: bool = False
) -> SparkSession:
    """Returns the session of this process, or creates one, and registers the data source. With `lake`, the
    session has Delta Lake, and with `topics` Spark's Kafka connector. `long` is for jobs of minutes."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging = (Path(__file__).parent / "log4j2.properties").as_uri()
    threads = cores or min(4, os.cpu_count() or 2)
    builder = (
        SparkSession.builder.master(f"local[{threads}]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(threads))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config(
            "spark.driver.extraJavaOptions",
            f"{java_options(long=long)} -Dlog4j2.configurationFile={logging}",
        )
    )
    return session_of(builder, lake=lake, topics=topics)


def session_of(builder: SparkSession.Builder, *, lake: bool, topics: bool) -> SparkSession:
    """Returns the session of this process, or the one of a builder with what the data source, lakes
    and topics need, and registers the data source. The workers run the Python of `PYSPARK_PYTHON`,
    or this one."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    libraries = [library for library, wanted in ((DELTA, lake), (CONNECTOR, topics)) if wanted]
    for key, value in {**jar_settings(libraries), **(DELTA_SETTINGS if lake else {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(MetadataLogSource)
    return session
