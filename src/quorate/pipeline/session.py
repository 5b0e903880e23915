"""Creates a local Spark session for one command: no web server, few shuffle partitions, UTC."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from quorate.pipeline.source import MetadataLogSource


def local_session(name: str, *, cores: int | None = None) -> SparkSession:
    """Returns the session of this process, or creates one, and registers the data source."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging = (Path(__file__).parent / "log4j2.properties").as_uri()
    threads = cores or min(4, os.cpu_count() or 2)
    session = (
        SparkSession.builder.master(f"local[{threads}]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(threads))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        # A short job gains more from a fast start than from the last level of compilation.
        .config(
            "spark.driver.extraJavaOptions",
            f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile={logging}",
        )
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(MetadataLogSource)
    return session
