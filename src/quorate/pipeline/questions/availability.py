"""When were brokers active, fenced or shutting down, and when were they started again?"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from quorate.pipeline.questions.moments import Period
from quorate.pipeline.questions.spans import seconds, spans
from quorate.pipeline.tables.cluster import BROKERS
from quorate.pipeline.tables.declaration import Column
from quorate.pipeline.tables.lake import Lake

ACTIVE: Final = "active"
_FENCED: Final = "fenced"
_SHUTDOWN: Final = "controlled shutdown"
_NAMES: Final = {ACTIVE: "active_s", _SHUTDOWN: "controlled_shutdown_s", _FENCED: "fenced_s"}

_BROKER: Final = Column("broker_id", "int", "the broker")
_RACK: Final = Column("rack", "string", "the rack with which it was registered last")

STATES: Final = (
    _BROKER,
    _RACK,
    Column("state", "string", "active, fenced or controlled shutdown"),
    Column("from_time", "timestamp", "when the state began, or the begin of the period"),
    Column("to_time", "timestamp", "when it ended, or the end of the period"),
    Column("seconds", "double", "how long it lasted"),
    Column("from_offset", "bigint", "the offset of the record that began it", detail=True),
    Column(
        "start_time", "timestamp", "when the broker's process started, if its record says so", detail=True
    ),
    Column("incarnation_id", "string", "the id of the broker's process", detail=True),
)

COLUMNS: Final = (
    _BROKER,
    _RACK,
    Column("availability", "double", "the part of the registered time in which it was active, in percent"),
    Column("registered_s", "double", "how long it was registered"),
    Column("active_s", "double", "how long it was active"),
    Column("controlled_shutdown_s", "double", "how long it was shutting down"),
    Column("fenced_s", "double", "how long it was fenced"),
    Column("outages", "bigint", "how often it ceased to be active"),
    Column("restarts", "bigint", "how often it was registered by a new process"),
    Column("state", "string", "its last state; null if it is not registered any more"),
)

RESTARTS: Final = (
    _BROKER,
    _RACK,
    Column("offset", "bigint", "the offset of the new registration"),
    Column("time", "timestamp", "its time"),
    Column("start_time", "timestamp", "when the new process started, if its record says so"),
    Column("before", "string", "the broker's state until then; null if it was not registered"),
    Column("ran_s", "double", "how long the process before was registered"),
    Column("incarnation_id", "string", "the id of the new process", detail=True),
)


def racks(lake: Lake, cluster: str) -> DataFrame:
    """The columns `broker_id` and `rack` of all brokers that were ever registered."""
    brokers = lake.read(BROKERS.name, cluster)
    return brokers.groupBy("broker_id").agg(f.max_by("rack", "valid_from_offset").alias("rack"))


def broker_rows(lake: Lake, cluster: str, period: Period) -> DataFrame:
    """The states of the table `brokers` in a period, with the column `state`."""
    state = (
        f.when(f.col("fenced"), _FENCED).when(f.col("in_controlled_shutdown"), _SHUTDOWN).otherwise(ACTIVE)
    )
    return lake.read(BROKERS.name, cluster).where(period.overlaps()).withColumn("state", state)


def states(lake: Lake, cluster: str, period: Period) -> DataFrame:
    """The states of each broker one after the other. A new process begins a new row."""
    found = spans(
        broker_rows(lake, cluster, period),
        ["broker_id"],
        ["state", "incarnation_id"],
        [f.first("start_time").alias("start_time")],
    )
    found = found.withColumns(
        {
            "from_time": period.clip("from_offset", "from_time"),
            "to_time": period.clip("to_offset", "to_time"),
        }
    )
    found = found.withColumn("seconds", seconds(f.col("from_time"), f.col("to_time")))
    found = found.join(racks(lake, cluster), "broker_id", "left")
    return found.select(*[column.name for column in STATES], "to_offset")


def availability(lake: Lake, cluster: str, period: Period) -> DataFrame:
    """How long each broker was in each state."""
    order = Window.partitionBy("broker_id").orderBy("from_offset")
    rows = states(lake, cluster, period).withColumns(
        {"state_before": f.lag("state").over(order), "process_before": f.lag("incarnation_id").over(order)}
    )
    is_in = {name: f.when(f.col("state") == name, f.col("seconds")).otherwise(0) for name in _NAMES}
    ceased = (f.col("state") != ACTIVE) & (f.col("state_before") == ACTIVE)
    restarted = f.col("incarnation_id") != f.col("process_before")
    totals = rows.groupBy("broker_id", "rack").agg(
        f.sum("seconds").alias("registered_s"),
        *[f.sum(is_in[name]).alias(column) for name, column in _NAMES.items()],
        f.count_if(ceased).alias("outages"),
        f.count_if(restarted).alias("restarts"),
        f.max_by(f.when(period.ends_later("to_offset"), f.col("state")), "from_offset").alias("state"),
    )
    active = f.when(f.col("registered_s") > 0, 100 * f.col("active_s") / f.col("registered_s"))
    return totals.withColumn("availability", active).select(*[column.name for column in COLUMNS])


def restarts(lake: Lake, cluster: str, period: Period) -> DataFrame:
    """The registrations by a new process in a period. The first registration of a broker is none."""
    order = Window.partitionBy("broker_id").orderBy("from_offset")
    processes = spans(
        broker_rows(lake, cluster, period),
        ["broker_id"],
        ["incarnation_id"],
        [
            f.first("start_time").alias("start_time"),
            f.max_by("state", "valid_from_offset").alias("last_state"),
        ],
    )
    continues = f.lag("to_offset").over(order) == f.col("from_offset")
    ran = seconds(period.clip("from_offset", "from_time"), f.col("to_time"))
    found = processes.withColumn("seconds", ran).withColumns(
        {
            "process_before": f.lag("incarnation_id").over(order),
            "before": f.when(continues, f.lag("last_state").over(order)),
            "ran_s": f.lag("seconds").over(order),
            "offset": f.col("from_offset"),
            "time": f.col("from_time"),
        }
    )
    found = found.where(f.col("process_before").isNotNull() & period.has("offset"))
    found = found.join(racks(lake, cluster), "broker_id", "left")
    return found.select(*[column.name for column in RESTARTS])
