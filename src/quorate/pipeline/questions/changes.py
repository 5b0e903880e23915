"""Who changed what?"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quorate.pipeline.questions.moments import Period
from quorate.pipeline.tables.declaration import Column
from quorate.pipeline.tables.events import ABORT, BEGIN, EFFECTIVE, END, EVENTS
from quorate.pipeline.tables.lake import Lake
from quorate.pipeline.tables.topics import TOPICS
from quorate.protocol.api import ApiKey

_TIME: Final = Column("time", "timestamp", "the time of the record")
_RECORD: Final = Column("record", "string", "the type of the record")
_PRINCIPAL: Final = Column("principal", "string", "who caused the record, if the log says so")
_CLIENT: Final = Column("client_id", "string", "the client's id")
_API: Final = Column("api", "string", "the request's API, such as CREATE_TOPICS")

_API_CASES: Final = " ".join([f"WHEN {int(api)} THEN '{api.name}'" for api in ApiKey])
_API_NAME: Final = f"CASE api {_API_CASES} ELSE string(api) END"
"""SQL for the name of the API, or its key in decimal if a newer release added it."""

COLUMNS: Final = (
    Column("offset", "bigint", "the offset of the record"),
    _TIME,
    _RECORD,
    Column("topic", "string", "the name of its topic"),
    Column("topic_id", "string", "the id of its topic", detail=True),
    Column("partition", "int", "the number of its partition"),
    Column("broker_id", "int", "the broker or controller that it is about"),
    Column("resource_type", "string", "TOPIC, BROKER, USER, ACL, ..."),
    Column("resource_name", "string", "the name of this resource"),
    Column("key", "string", "the name of a config, quota or feature"),
    Column("value", "string", "its value"),
    _PRINCIPAL,
    _CLIENT,
    Column("address", "string", "the client's address"),
    _API,
    Column("reason", "string", "the reason that the controller gives"),
)

AUTHORS: Final = (
    _PRINCIPAL,
    _CLIENT,
    _API,
    _RECORD,
    Column("records", "bigint", "the number of such records"),
    Column("topics", "bigint", "the number of topics that they are about"),
    Column("first_time", "timestamp", "the time of the first one"),
    Column("last_time", "timestamp", "the time of the last one"),
)

_NO_CHANGE: Final = ("NO_OP_RECORD", BEGIN, END, ABORT)


def changes(lake: Lake, cluster: str, period: Period, where: str | None = None) -> DataFrame:
    """The records of a period that changed something, for which a condition in SQL over `COLUMNS` holds.
    Those of aborted transactions did not."""
    names = lake.read(TOPICS.name, cluster).groupBy("topic_id").agg(f.max("topic").alias("known_name"))
    records = lake.read(EVENTS, cluster).where(
        f.col("snapshot").isNull()
        & ~f.col("control")
        & ~f.col("type").isin(*_NO_CHANGE)
        & period.has(EFFECTIVE)
    )
    found = records.join(names, "topic_id", "left").withColumns(
        {
            "time": f.col("timestamp"),
            "record": f.col("type"),
            "topic": f.coalesce("topic_name", "known_name"),
            "api": f.when(f.col("api").isNotNull(), f.expr(_API_NAME)),
        }
    )
    found = found.select(*[column.name for column in COLUMNS])
    return found if where is None else found.where(where)


def authors(lake: Lake, cluster: str, period: Period, where: str | None = None) -> DataFrame:
    """The same, added up by author, API and record type."""
    by = (_PRINCIPAL.name, _CLIENT.name, _API.name, _RECORD.name)
    return (
        changes(lake, cluster, period, where)
        .groupBy(*by)
        .agg(
            f.count("*").alias("records"),
            f.count_distinct("topic").alias("topics"),
            f.min("time").alias("first_time"),
            f.max("time").alias("last_time"),
        )
    )
