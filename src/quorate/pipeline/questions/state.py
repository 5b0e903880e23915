"""Which entities were there at an offset or time, and in which state?"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quorate.pipeline.questions.moments import Moment, offset_of
from quorate.pipeline.tables.declaration import Column, Entity
from quorate.pipeline.tables.lake import Lake


def columns(entity: Entity) -> tuple[Column, ...]:
    """The columns of the answer: those of the entity."""
    return (*entity.key, *entity.columns)


def state(lake: Lake, cluster: str, entity: Entity, at: Moment = None) -> DataFrame:
    """The entities after the record at an offset, or after the last one up to a time. Without either, after
    the last one that the table has applied. It equals the metadata of the controller at this offset."""
    return state_at(lake, cluster, entity, offset_of(lake, cluster, at, entity))


def state_at(lake: Lake, cluster: str, entity: Entity, offset: int) -> DataFrame:
    """The entities after the record at an offset that the table has applied."""
    ends = f.col("valid_to_offset")
    rows = lake.read(entity.name, cluster).where(
        (f.col("valid_from_offset") <= offset) & (ends.isNull() | (ends > offset))
    )
    return rows.select(*[column.name for column in columns(entity)])
