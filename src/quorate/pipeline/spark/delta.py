"""Delta Lake for a Spark session: its jars, and the settings that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quorate.pipeline.spark.jars import Jars

VERSION: Final = "4.4.0"
PACKAGE: Final = f"io.delta:delta-spark_4.1_2.13:{VERSION}"
"""Delta's Maven coordinates for Spark 4.1."""

JARS_VARIABLE: Final = "QUORATE_DELTA_JARS"
"""A directory with the jars of Delta."""

DELTA: Final = Jars(
    JARS_VARIABLE, (PACKAGE,), (f"delta-spark_4.1_2.13-{VERSION}", f"delta-storage-{VERSION}")
)

RETAIN_HOURS: Final = 168
"""How long files are kept that no table refers to any more. A question that has begun before reads
them. Delta deletes younger ones only if it is asked to trust the caller."""

DELTA_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The logs of these tables are small: many tasks would only cost time.
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""The settings of a session with Delta."""


class DeltaVersionError(Exception):
    """The session has another Delta than the one whose classes `quorate.pipeline.storage.commits` calls."""


def require_delta(session: Any) -> None:
    """Raises DeltaVersionError unless a session has Delta's release VERSION or another patch of it.

    Commits call constructors of Delta's own classes, whose parameters change from one release to
    the next.
    """
    try:
        version = str(session._jvm.io.delta.package.VERSION())
        found = f"Delta {version}"
    except TypeError:  # py4j has no such class
        version, found = "", "no Delta"
    if version.rpartition(".")[0] != VERSION.rpartition(".")[0]:
        raise DeltaVersionError(
            f"the Spark session has {found}, but tables are written with Delta {VERSION}: use the "
            f"jars of {PACKAGE}"
        )
