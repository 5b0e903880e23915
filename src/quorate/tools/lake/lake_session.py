"""A Spark session for one command that reads or writes a lake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module, lazy_modules
from quorate.tools.command_line import ToolError

if TYPE_CHECKING:
    from pyspark import sql

    from quorate.pipeline.spark import cluster, session
else:
    sql = lazy_module("pyspark.sql")
    cluster, session = lazy_modules("quorate.pipeline.spark", "cluster", "session")


@contextmanager
def lake_session(name: str, *, topics: bool = False) -> Iterator[sql.SparkSession]:
    """A session with the name of a command, on a cluster if the environment names one.

    With `topics` it has Spark's Kafka connector and is for a long job. One that the process has
    already is used and not stopped. Raises ToolError, and the package's own errors.
    """
    try:
        borrowed = session.has_session()
        if cluster.is_on_cluster():
            spark = cluster.cluster_session(name, lake=True, topics=topics)
        else:
            spark = session.local_session(name, lake=True, topics=topics, long=topics)
    except ModuleNotFoundError as error:
        raise ToolError(f"{error.name} is not installed: pip install 'quorate[spark]'") from error
    except Exception as error:
        if not type(error).__module__.startswith("pyspark."):
            raise
        raise ToolError(
            f"Spark did not start: {_reason(error)} (quorate-pipeline doctor looks for the cause)"
        ) from error
    try:
        yield spark
    except (ValueError, OSError):
        raise
    except Exception as error:
        if type(error).__module__.startswith("quorate."):
            raise
        raise ToolError(f"Error: {_reason(error)}") from error
    finally:
        if not borrowed:
            spark.stop()


def _reason(error: Exception) -> str:
    """The line of an error that has the reason. Errors of Spark tasks contain a worker's traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    starts = ("quorate.", "FileNotFoundError", "OSError", "ValueError", "PermissionError")
    worker = [line for line in lines if line.startswith(starts)]
    return (worker or lines or [type(error).__name__])[0]
