"""Which states did an entity have one after the other, and who changed it?"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quorate.pipeline.datasource.columns import ATTRIBUTION_COLUMNS
from quorate.pipeline.tables.declaration import VALIDITY, Column, Entity
from quorate.pipeline.tables.lake import Lake

_WHO: Final = (
    Column("principal", "string", "who caused the change, if the log says so"),
    Column("client_id", "string", "the client's id"),
    Column("address", "string", "the client's address"),
    Column("api", "int", "the key of the request's API"),
    Column("reason", "string", "the reason that the controller gives"),
)
assert [column.name for column in _WHO] == list(ATTRIBUTION_COLUMNS)


def columns(entity: Entity) -> tuple[Column, ...]:
    """The columns of the answer: those of the entity, its validity, and who caused the state."""
    return (*entity.key, *entity.columns, *VALIDITY, *_WHO)


def history(lake: Lake, cluster: str, entity: Entity, where: str | None = None) -> DataFrame:
    """The states of the entities for which a condition in SQL holds."""
    rows = lake.read(entity.name, cluster)
    if where is not None:
        rows = rows.where(where)
    who = [f.col(f"changed_by.{name}").alias(name) for name in ATTRIBUTION_COLUMNS]
    return rows.select(*[column.name for column in columns(entity)[: -len(who)]], *who)
