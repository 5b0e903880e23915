"""Creates a Spark session on a cluster: standalone, YARN or Kubernetes, in client or cluster mode."""

from __future__ import annotations

import os
from typing import Final

from pyspark.sql import SparkSession

from quorate.pipeline.spark.session import session_of

MASTER_VARIABLE: Final = "QUORATE_SPARK_MASTER"
"""The master of the cluster on which commands run, such as `spark://HOST:7077`, `yarn` or
`k8s://https://HOST:6443`."""

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""A variable that `spark-submit` sets for the program that it runs."""


def is_on_cluster() -> bool:
    """Whether the environment names a cluster, or `spark-submit` has started this process."""
    return MASTER_VARIABLE in os.environ or _SUBMITTED in os.environ


def cluster_session(name: str, *, lake: bool = False, topics: bool = False) -> SparkSession:
    """Returns the session of this process, or creates one on the cluster, and registers the data source.

    The master is that of `MASTER_VARIABLE`, or that of `spark-submit`. All other settings are those
    of Spark's own configuration; what is set here is what the tables need. The workers run the
    Python with the path of `PYSPARK_PYTHON`, or of this one, and it must have Quorate there.
    """
    builder = SparkSession.builder.appName(name)
    master = os.environ.get(MASTER_VARIABLE)
    if master is not None:
        builder = builder.master(master)
    return session_of(builder, lake=lake, topics=topics)
