"""The tables of a lake: the events, and for each entity its history by intervals of validity.

    declaration       what an entity is: columns, and what each record type does to it
    topics            topics, partitions
    cluster           brokers, controllers, voters
    settings          configs, features, quotas, producer ids
    security          ACLs, SCRAM users, delegation tokens
    expressions       what declarations compute from records
    kinds             the Arrow types of declared columns
    events            the table of all records
    schema            the versions of the tables' schema, and the steps between them
    lake              the Delta tables in a directory
    session_settings  settings of a Spark session for a while
    divergence        finds where a source and the tables differ, and takes back what was never committed
    update            applies new records to all tables, and continues runs that were killed
    upkeep            joins small files, and expires events

`ENTITIES` has the declarations by name. Topics come first, because others need their names.
"""

from __future__ import annotations

from typing import Final

from quorate.pipeline.tables.cluster import BROKERS, CONTROLLERS, VOTERS
from quorate.pipeline.tables.declaration import Entity
from quorate.pipeline.tables.security import ACLS, SCRAM_USERS, TOKENS
from quorate.pipeline.tables.settings import CONFIGS, FEATURES, PRODUCER_IDS, QUOTAS
from quorate.pipeline.tables.topics import PARTITIONS, TOPICS

ENTITIES: Final[dict[str, Entity]] = {
    entity.name: entity
    for entity in (
        TOPICS,
        PARTITIONS,
        BROKERS,
        CONTROLLERS,
        VOTERS,
        CONFIGS,
        FEATURES,
        QUOTAS,
        PRODUCER_IDS,
        ACLS,
        SCRAM_USERS,
        TOKENS,
    )
}
