"""Settings of a Spark session for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Final

from pyspark.sql import SparkSession

LITTLE_WORK: Final[Mapping[str, str]] = {
    # To generate and compile code takes longer than to interpret it for a few thousand rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # One task for each step, and one file for each commit.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # What filters follow from others takes long to find out in plans with many columns, and saves
    # nothing here.
    "spark.sql.constraintPropagation.enabled": "false",
}
"""For queries of which the preparation takes most of the time."""

_lock: Final = Lock()
_before: Final[dict[tuple[int, str], tuple[int, str | None]]] = {}
"""For a session and a property, how many have set it, and its value before."""


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Sets properties of a session for a while.

    If several threads set the same ones, the last one sets them back.
    """
    for name, value in wanted.items():
        with _lock:
            users, old = _before.get((id(spark), name)) or (0, spark.conf.get(name, None))
            _before[id(spark), name] = users + 1, old
            spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in wanted:
            with _lock:
                users, old = _before.pop((id(spark), name))
                if users > 1:
                    _before[id(spark), name] = users - 1, old
                elif old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)
