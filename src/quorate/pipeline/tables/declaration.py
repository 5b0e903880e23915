"""The declaration of an entity: its columns, and what each record type does to it.

A declaration is data. `quorate.pipeline.history` computes the history of any entity from its
declaration. `quorate.pipeline.tables.expressions` has the functions over the columns of the table `events`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from enum import StrEnum

from quorate.dataclass import dataclass
from quorate.pipeline.datasource.columns import ATTRIBUTION_COLUMNS
from quorate.pipeline.tables.expressions import Expression


class Effect(StrEnum):
    """What a record does to an entity."""

    OPENS = "opens"
    """The entity exists from here on, in the state of the record. An earlier state is replaced."""
    CHANGES = "changes"
    """Some columns change. An entity that does not exist is not affected."""
    CLOSES = "closes"
    """The entity does not exist any more."""
    REPLACES_ALL = "replaces all"
    """The record lists all entities. Those that it does not list do not exist any more."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type in Spark's notation, and its meaning."""

    name: str
    kind: str
    meaning: str
    detail: bool = False
    """Whether a command shows it only if all columns are asked for."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What one record type does to an entity."""

    record: str
    """The record type, as in the column `type`."""
    effect: Effect
    key: Mapping[str, Expression]
    """The key of the entity. If key columns are missing, the record has its effect on every entity that
    agrees with it in the others."""
    values: Mapping[str, Expression] = field(default_factory=dict)
    """The new values. Null in a record that changes an entity leaves the column as it is."""
    adds: Mapping[str, Expression] = field(default_factory=dict)
    """What a record that changes an entity adds to a column."""
    adds_if_changed: bool = False
    """Whether `adds` holds only for entities of which the record changes a value."""
    where: Expression | None = None
    """The records of this type that the rule is for."""
    each: str | None = None
    """An array in the record of which each element is an entity, named `each` in the other expressions."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A kind of entity and its table."""

    name: str
    meaning: str
    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...]
    derived: Mapping[str, Expression] = field(default_factory=dict)
    """Columns whose final values are computed from the other columns."""
    names_topics: bool = False
    """Whether the expressions need both `topic_id` and `topic_name` of records that have only one of them.
    """

    @property
    def record_types(self) -> frozenset[str]:
        """The record types that affect this entity."""
        return frozenset(rule.record for rule in self.rules)

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return tuple([column.name for column in self.key])

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of the columns that are not the key."""
        return tuple([column.name for column in self.columns])

    @property
    def counters(self) -> frozenset[str]:
        """The columns to which records add."""
        return frozenset(name for rule in self.rules for name in rule.adds)

    def reduced(self, columns: Collection[str]) -> Entity:
        """The entity with some of its columns only."""
        return replace(
            self,
            columns=tuple([column for column in self.columns if column.name in columns]),
            rules=tuple(
                [
                    replace(rule, values=_chosen(rule.values, columns), adds=_chosen(rule.adds, columns))
                    for rule in self.rules
                ]
            ),
            derived=_chosen(self.derived, columns),
        )


def _chosen(expressions: Mapping[str, Expression], columns: Collection[str]) -> dict[str, Expression]:
    return {name: expression for name, expression in expressions.items() if name in columns}


VALIDITY = (
    Column("valid_from_offset", "bigint", "the first offset at which this state holds"),
    Column("valid_from_time", "timestamp", "the time of the record at that offset"),
    Column("valid_to_offset", "bigint", "the offset of the record that ended this state, or null"),
    Column("valid_to_time", "timestamp", "the time of that record, or null"),
    Column("from_record", "string", "the type of the record that began this state"),
    Column("to_record", "string", "the type of the record that ended this state, or null"),
    Column(
        "changed_by",
        f"struct<{','.join([f'{name}:{kind}' for name, kind in ATTRIBUTION_COLUMNS.items()])}>",
        "who or what caused this state, or null if the log does not say it",
        detail=True,
    ),
)
"""The columns that follow the key and the state in each entity's table."""

CLUSTER = Column("cluster", "string", "the name of the cluster")
