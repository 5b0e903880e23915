"""Computes the history of an entity: for each key, the states that it had one after the other.

The rows of a table are a function of the log: which rows a table has up to an offset depends on nothing but
the records before it. So a range of the log may be applied again, from any earlier offset on, and gives the
same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from quorate.dataclass import dataclass
from quorate.pipeline.datasource.columns import ATTRIBUTION_COLUMNS, ENTITY_COLUMNS, TYPED_COLUMNS
from quorate.pipeline.tables.declaration import Effect, Entity, Rule

_AT = ("effective_offset", "position")
"""The order of the records: the offset at which they take effect, then their place in the file."""

_WHO = tuple(ATTRIBUTION_COLUMNS)


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of a range of the log, and what was there before."""

    events: DataFrame
    """The rows of the table `events` in the range."""
    types: frozenset[str]
    """Their record types."""
    resets: bool
    """Whether a snapshot among them replaces records that are missing: what it lacks does not exist any more.
    """
    before: DataFrame | None
    """The rows of the entity's table that are valid at the begin of the range, if there may be any."""
    topics: DataFrame | None
    """The history of the topics, for an entity that needs the names of topics."""


def intervals(entity: Entity, batch: Batch) -> DataFrame:
    """The rows of the entity's table that are valid at the begin of the range or later, without the column
    `cluster`."""
    records = [name.lower() for name in sorted(batch.types & entity.record_types)]
    events = batch.events.where(f.col("effective_offset").isNotNull()).select(
        *_AT,
        "timestamp",
        "type",
        "snapshot",
        f.when(f.coalesce(*[f.col(name).cast("string") for name in _WHO]).isNotNull(), f.struct(*_WHO)).alias(
            "changed_by"
        ),
        *ENTITY_COLUMNS,
        *[name for name in records if name in TYPED_COLUMNS],
    )
    of_all_types = events
    if entity.names_topics and batch.topics is not None:
        events = _with_topics(entity, events, batch.topics)
    rules = [rule for rule in entity.rules if rule.record in batch.types]
    direct = [_direct(entity, rule, events) for rule in rules if len(rule.key) == len(entity.key)]
    if batch.before is not None:
        direct.insert(0, _prior(entity, batch.before))
    # Topics may be deleted before any of them has configs.
    steps = _union(direct) if direct else _no_keys(entity, events)
    others = [rule for rule in rules if len(rule.key) < len(entity.key)]
    replacing = [rule for rule in rules if rule.effect is Effect.REPLACES_ALL]
    if others or replacing or batch.resets:
        keys = steps.select(*entity.key_names).distinct()
        more = [_to_all(entity, rule, events, keys) for rule in others]
        more += [_missing(entity, rule, events, keys) for rule in replacing]
        if batch.resets and direct:
            more.append(_lost(entity, of_all_types, keys, steps))
        steps = _union([*direct, *more])
    return _fold(entity, steps)


def _no_keys(entity: Entity, events: DataFrame) -> DataFrame:
    """A frame without rows that has the key's columns."""
    return events.where("false").select(*[f.lit(None).cast(key.kind).alias(key.name) for key in entity.key])


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)


def _with_topics(entity: Entity, events: DataFrame, topics: DataFrame) -> DataFrame:
    """The records that affect the entity, with id and name of the topic where they have one of the two."""
    found = events.where(f.col("type").isin(*entity.record_types))
    created = events.where(f.col("type") == "TOPIC_RECORD").select("topic_id", "topic_name")
    by_id = topics.select("topic_id", "topic").union(created).distinct().toDF("known_id", "known_name")
    by_name = topics.select(
        f.col("topic_id").alias("named_id"),
        f.col("topic").alias("named"),
        f.col("valid_from_offset").alias("named_from"),
        f.col("valid_to_offset").alias("named_to"),
    )
    then = (f.col("named_from") <= f.col("effective_offset")) & (
        f.col("named_to").isNull() | (f.col("effective_offset") < f.col("named_to"))
    )
    found = found.join(by_id, f.col("topic_id") == f.col("known_id"), "left")
    found = found.join(
        by_name, f.col("topic_id").isNull() & (f.col("topic_name") == f.col("named")) & then, "left"
    )
    return found.withColumns(
        {
            "topic_id": f.coalesce("topic_id", "named_id"),
            "topic_name": f.coalesce("topic_name", "known_name"),
        }
    )


def _steps(entity: Entity, rule: Rule, keys: dict[str, Column]) -> list[Column]:
    """The columns of a step: key, order, effect, and for each column of the state a struct with the new
    value, or null if it stays."""
    kinds = {column.name: column.kind for column in (*entity.key, *entity.columns)}
    found = [keys[name].cast(kinds[name]).alias(name) for name in entity.key_names]
    found += [f.col(name) for name in (*_AT, "timestamp", "type", "changed_by")]
    opens = rule.effect in (Effect.OPENS, Effect.REPLACES_ALL)
    effect = Effect.OPENS if opens else rule.effect
    found += [f.lit(effect.value).alias("effect"), f.lit(rule.adds_if_changed).alias("if_changed")]
    for name in entity.state_names:
        value = f.expr(rule.values[name]) if name in rule.values else f.lit(None)
        given = f.struct(value.cast(kinds[name]).alias("value"))
        found.append((given if opens else f.when(value.isNotNull(), given)).alias(f"new_{name}"))
    found += [
        f.expr(rule.adds.get(name, "0")).cast("bigint").alias(f"add_{name}")
        for name in sorted(entity.counters)
    ]
    return found


def _matching(rule: Rule, events: DataFrame) -> DataFrame:
    found = events.where(f.col("type") == rule.record)
    if rule.where is not None:
        found = found.where(rule.where)
    return found if rule.each is None else found.withColumn("each", f.explode(f.expr(rule.each)))


def _direct(entity: Entity, rule: Rule, events: DataFrame) -> DataFrame:
    """The steps of records that name the entity."""
    keys = {name: f.expr(rule.key[name]) for name in entity.key_names}
    return _matching(rule, events).select(*_steps(entity, rule, keys))


def _to_all(entity: Entity, rule: Rule, events: DataFrame, keys: DataFrame) -> DataFrame:
    """The steps of records that affect all entities with a part of the key."""
    known = keys.select(*[f.col(name).alias(f"of_{name}") for name in entity.key_names])
    agree = f.lit(True)
    for name, expression in rule.key.items():
        agree = agree & (f.expr(expression) == f.col(f"of_{name}"))
    found = _matching(rule, events).join(known, agree)
    return found.select(*_steps(entity, rule, {name: f.col(f"of_{name}") for name in entity.key_names}))


def _missing(entity: Entity, rule: Rule, events: DataFrame, keys: DataFrame) -> DataFrame:
    """The steps that close the entities which a record with all entities does not list."""
    close = Rule(rule.record, Effect.CLOSES, {}, where=rule.where)
    every = _to_all(entity, close, events, keys)
    listed = _direct(entity, rule, events).select(*entity.key_names, *_AT)
    return _without(entity, every, listed, _AT)


def _lost(entity: Entity, events: DataFrame, keys: DataFrame, steps: DataFrame) -> DataFrame:
    """The steps that close the entities which a snapshot does not contain, at its last offset."""
    every = _to_all(entity, Rule("SNAPSHOT_HEADER", Effect.CLOSES, {}), events, keys)
    at = events.where("snapshot IS NOT NULL").select(f.col("effective_offset").alias("at")).distinct()
    contained = steps.join(f.broadcast(at), f.col("effective_offset") == f.col("at"))
    return _without(
        entity, every, contained.select(*entity.key_names, "effective_offset"), ("effective_offset",)
    )


def _without(entity: Entity, rows: DataFrame, other: DataFrame, more: Sequence[str]) -> DataFrame:
    """The rows whose key is not in another frame."""
    names = (*entity.key_names, *more)
    other = other.select(*[f.col(name).alias(f"of_{name}") for name in names])
    same = reduce(lambda a, b: a & b, [f.col(name).eqNullSafe(f.col(f"of_{name}")) for name in names])
    return rows.join(other, same, "left_anti")


def _prior(entity: Entity, before: DataFrame) -> DataFrame:
    """The rows that are valid at the begin of the range, as steps."""
    found = [f.col(name) for name in entity.key_names]
    found += [
        f.col("valid_from_offset").alias("effective_offset"),
        f.lit(-1).cast("bigint").alias("position"),
        f.col("valid_from_time").alias("timestamp"),
        f.col("from_record").alias("type"),
        f.col("changed_by"),
        f.lit(Effect.OPENS.value).alias("effect"),
        f.lit(False).alias("if_changed"),
    ]
    found += [f.struct(f.col(name).alias("value")).alias(f"new_{name}") for name in entity.state_names]
    found += [f.lit(0).cast("bigint").alias(f"add_{name}") for name in sorted(entity.counters)]
    return before.select(*found)


def _fold(entity: Entity, steps: DataFrame) -> DataFrame:
    """Joins the steps of each key to intervals."""
    order = Window.partitionBy(*entity.key_names).orderBy(*_AT)
    until_now = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    plain = [name for name in entity.state_names if name not in entity.counters]
    opens = f.col("effect") == Effect.OPENS.value
    known = {name: f.last(f"new_{name}", ignorenulls=True).over(until_now)["value"] for name in plain}
    there = f.when(opens, True).when(f.col("effect") == Effect.CLOSES.value, False)
    found = steps.withColumns(
        {**known, "is_there": f.coalesce(f.last(there, ignorenulls=True).over(until_now), f.lit(False))}
    )
    if entity.counters:
        found = _count(entity, found, plain)
    found = found.withColumns({name: f.expr(expression) for name, expression in entity.derived.items()})
    state = f.struct(*entity.state_names)
    found = found.withColumn("differs", ~state.eqNullSafe(f.lag(state).over(order)))
    was_there = f.coalesce(f.lag("is_there").over(order), f.lit(False))
    found = found.withColumn("was_there", was_there)
    found = found.where("is_there <> was_there OR (is_there AND differs)")
    found = found.withColumns(
        {
            "valid_to_offset": f.lead("effective_offset").over(order),
            "valid_to_time": f.lead("timestamp").over(order),
            "to_record": f.lead("type").over(order),
        }
    )
    found = found.where("is_there AND (valid_to_offset IS NULL OR valid_to_offset > effective_offset)")
    return found.select(
        *entity.key_names,
        *entity.state_names,
        f.col("effective_offset").alias("valid_from_offset"),
        f.col("timestamp").alias("valid_from_time"),
        "valid_to_offset",
        "valid_to_time",
        f.col("type").alias("from_record"),
        "to_record",
        "changed_by",
    )


def _count(entity: Entity, steps: DataFrame, plain: Sequence[str]) -> DataFrame:
    """Computes the columns to which records add: the value of the record that opened the entity, and what was
    added since."""
    order = Window.partitionBy(*entity.key_names).orderBy(*_AT)
    until_now = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    names = sorted(entity.counters)
    kinds = {column.name: column.kind for column in entity.columns}
    before = f.lag(f.struct(*plain)).over(order)
    counts = ~f.col("if_changed") | ~f.struct(*plain).eqNullSafe(before)
    found = steps.withColumn("counts", counts)
    total = {
        f"total_{name}": f.sum(f.when(f.col("counts"), f.col(f"add_{name}")).otherwise(0)).over(until_now)
        for name in names
    }
    found = found.withColumns(total)
    base = {
        name: f.last(
            f.when(
                f.col("effect") == Effect.OPENS.value,
                f.col(f"new_{name}")["value"].cast("bigint") - f.col(f"total_{name}"),
            ),
            ignorenulls=True,
        ).over(until_now)
        for name in names
    }
    return found.withColumns(
        {name: (base[name] + f.col(f"total_{name}")).cast(kinds[name]) for name in names}
    )
