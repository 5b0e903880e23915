"""The versions of the tables' schema, and the steps from each version to the next.

A commit of a table names the schema in which it has written the rows of a cluster. Where that is an
older one, `migrate` performs the declared steps, table by table. A step that is interrupted is
performed again.

A table that a step rebuilds has no progress in the new schema. So it is computed from the events
like a table that is new. A table that a step fills gets further columns, whose values are computed
from the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from pyspark.sql import functions as f

from quorate.dataclass import dataclass
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.events import EVENTS
from quorate.pipeline.tables.lake import SCHEMA, Lake, LakeError, Report


@dataclass(frozen=True, slots=True)
class Migration:
    """The step to a schema from the one before it."""

    schema: int
    meaning: str
    rebuilds: frozenset[str] = frozenset()
    """The tables that are computed anew from the events."""
    fills: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For a table, its new columns and their values in SQL over the columns that it has."""


MIGRATIONS: Final = (
    Migration(2, "each state says who or what caused it (changed_by)", rebuilds=frozenset(ENTITIES)),
)
assert [step.schema for step in MIGRATIONS] == list(range(2, SCHEMA + 1))


def outdated(lake: Lake) -> dict[str, int]:
    """The clusters with tables in an older schema, and the oldest one.

    Raises LakeError if a newer release has written a table.
    """
    found: dict[str, int] = {}
    for table in (EVENTS, *ENTITIES):
        for cluster, schema in known_schemas(lake, table).items():
            if schema < SCHEMA and not _is_to_be_rebuilt(table, schema):
                found[cluster] = min(found.get(cluster, schema), schema)
    return found


def known_schemas(lake: Lake, table: str) -> dict[str, int]:
    """For each cluster in a table, the newest schema in which its rows were written.

    Raises LakeError if a newer release has written them: this one does not know all of their
    columns.
    """
    found = lake.schemas(table)
    newest = max(found.values(), default=SCHEMA)
    if newest > SCHEMA:
        raise LakeError(
            f"{lake.path(table)} has schema {newest}, but this release knows schemas up to {SCHEMA}: "
            "upgrade quorate"
        )
    return found


def migrate(lake: Lake, report: Report, steps: Sequence[Migration] = MIGRATIONS) -> list[str]:
    """Brings the tables of all clusters to the current schema, except those that are to be rebuilt.

    Returns the clusters of which tables are to be computed anew.
    """
    found = outdated(lake)
    for cluster, schema in found.items():
        for step in steps[schema - 1 :]:
            report(f"{cluster}: schema {step.schema - 1} to {step.schema}: {step.meaning}")
            if step.rebuilds and lake.expired(cluster):
                raise LakeError(
                    f"events of cluster {cluster} before offset {lake.expired(cluster)} have expired, so "
                    f"{', '.join(sorted(step.rebuilds))} cannot be computed anew: begin another lake"
                )
            # The events come last: as long as they are in the old schema, the step is performed again.
            for table in (*ENTITIES, EVENTS):
                if lake.schemas(table).get(cluster) == step.schema - 1 and table not in step.rebuilds:
                    _perform(lake, table, cluster, step)
    return list(found)


def _perform(lake: Lake, table: str, cluster: str, step: Migration) -> None:
    progress = lake.progress(table, cluster, step.schema - 1)
    if table not in step.fills:
        lake.advance(table, cluster, progress, step.schema)
        return
    values = {name: f.expr(expression) for name, expression in step.fills[table].items()}
    rows = lake.read(table, cluster).withColumns(values)
    lake.replace(table, cluster, rows, "true", progress, step.schema)


def _is_to_be_rebuilt(table: str, schema: int) -> bool:
    return any(table in step.rebuilds for step in MIGRATIONS[schema - 1 :])
