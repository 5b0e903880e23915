"""What differs between two offsets or times?"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark import sql
from pyspark.sql import functions as f

from quorate.pipeline.questions.moments import Moment, offset_of
from quorate.pipeline.questions.state import state_at
from quorate.pipeline.tables.declaration import Column, Entity
from quorate.pipeline.tables.lake import Lake

COLUMNS: Final = (
    Column("entity", "string", "the kind of entity: topics, partitions, ..."),
    Column("key", "string", "the key of the entity, as JSON"),
    Column("change", "string", "added, removed or changed"),
    Column(
        "columns",
        "array<struct<name:string,before:string,after:string>>",
        "the columns that differ, as JSON; null before an entity was added and after it was removed",
    ),
)


def diff(lake: Lake, cluster: str, entity: Entity, before: Moment, after: Moment) -> sql.DataFrame:
    """The entities that differ between two moments."""
    one = state_at(lake, cluster, entity, offset_of(lake, cluster, before, entity))
    other = state_at(lake, cluster, entity, offset_of(lake, cluster, after, entity))
    keys, names = entity.key_names, entity.state_names
    one = one.select(f.struct(*keys).alias("old_key"), f.struct(*names).alias("old"))
    other = other.select(f.struct(*keys).alias("new_key"), f.struct(*names).alias("new"))
    both = one.join(other, f.col("old_key") == f.col("new_key"), "full_outer")
    both = both.where(~f.col("old").eqNullSafe(f.col("new")))
    change = f.when(f.col("old_key").isNull(), "added").when(f.col("new_key").isNull(), "removed")
    differing = [
        f.when(
            ~f.col("old")[column].eqNullSafe(f.col("new")[column]),
            f.struct(
                f.lit(column).alias("name"),
                _json(f"old.{column}").alias("before"),
                _json(f"new.{column}").alias("after"),
            ),
        )
        for column in names
    ]
    return both.select(
        f.lit(entity.name).alias("entity"),
        f.to_json(f.coalesce("new_key", "old_key"), {"ignoreNullFields": "false"}).alias("key"),
        change.otherwise("changed").alias("change"),
        f.filter(f.array(*differing), lambda found: found.isNotNull()).alias("columns"),
    )


def diff_all(
    lake: Lake, cluster: str, entities: list[Entity], before: Moment, after: Moment
) -> sql.DataFrame:
    """The same for several kinds of entities."""
    return reduce(
        lambda one, other: one.unionByName(other),
        [diff(lake, cluster, entity, before, after) for entity in entities],
    )


def _json(column: str) -> sql.Column:
    """A value as JSON, or null."""
    return f.get_json_object(f.to_json(f.struct(f.col(column).alias("value"))), "$.value")
