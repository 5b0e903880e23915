"""Delta Lake for a Spark session: its jars, and the settings that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorate.pipeline.spark.jars import Jars

VERSION: Final = "4.4.0"
PACKAGE: Final = f"io.delta:delta-spark_4.1_2.13:{VERSION}"
"""Delta's Maven coordinates for Spark 4.1."""

JARS_VARIABLE: Final = "QUORATE_DELTA_JARS"
"""A directory with the jars of Delta."""

DELTA: Final = Jars(
    JARS_VARIABLE, (PACKAGE,), (f"delta-spark_4.1_2.13-{VERSION}", f"delta-storage-{VERSION}")
)

DELTA_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The logs of these tables are small: many tasks would only cost time.
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""The settings of a session with Delta."""
