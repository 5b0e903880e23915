"""Configurations, features, quotas and producer ids."""

from __future__ import annotations

from typing import Final

from quorate.pipeline.tables.declaration import Column, Effect, Entity, Rule
from quorate.pipeline.tables.expressions import (
    Expression,
    both,
    constant,
    differs,
    equal,
    is_null,
    is_set,
    negated,
    only_if,
    ordered,
)

_CONFIG_KEY: Final = {"resource_type": "resource_type", "resource_name": "resource_name", "key": "key"}

CONFIGS: Final = Entity(
    "configs",
    "the dynamic configurations",
    key=(
        Column("resource_type", "string", "TOPIC, BROKER, GROUP, ..."),
        Column("resource_name", "string", "the resource; empty for the default of all brokers"),
        Column("key", "string", "the name of the configuration"),
    ),
    columns=(
        Column("value", "string", "its value; [hidden] if it is a password"),
        Column("topic_id", "string", "the id of the topic, if the resource is one"),
    ),
    rules=(
        Rule(
            "CONFIG_RECORD",
            Effect.OPENS,
            _CONFIG_KEY,
            {"value": "value", "topic_id": only_if(equal("resource_type", "TOPIC"), "topic_id")},
            where=is_set("value"),
        ),
        Rule("CONFIG_RECORD", Effect.CLOSES, _CONFIG_KEY, where=is_null("value")),
        Rule(
            "REMOVE_TOPIC_RECORD",
            Effect.CLOSES,
            {"resource_type": constant("TOPIC"), "resource_name": "topic_name"},
        ),
    ),
    names_topics=True,
)

_LEVEL: Final = "feature_level_record.feature_level"

FEATURES: Final = Entity(
    "features",
    "the finalized features",
    key=(Column("feature", "string", "the name of the feature"),),
    columns=(Column("level", "smallint", "its finalized level"),),
    rules=(
        Rule(
            "FEATURE_LEVEL_RECORD",
            Effect.OPENS,
            {"feature": "key"},
            {"level": _LEVEL},
            where=both(differs(_LEVEL, 0), differs("key", "kraft.version")),
        ),
        Rule("FEATURE_LEVEL_RECORD", Effect.CLOSES, {"feature": "key"}, where=equal(_LEVEL, 0)),
        Rule(
            "KRAFT_VERSION",
            Effect.OPENS,
            {"feature": constant("kraft.version")},
            {"level": "kraft_version.kraft_version"},
        ),
    ),
)

_QUOTA_KEY: Final[dict[str, Expression]] = {
    "entity": ordered("client_quota_record.entity"),
    "key": "client_quota_record.key",
}

QUOTAS: Final = Entity(
    "quotas",
    "the client quotas",
    key=(
        Column(
            "entity",
            "array<struct<entity_type:string,entity_name:string>>",
            "user, client-id or ip; a null name is the default",
        ),
        Column("key", "string", "the name of the quota"),
    ),
    columns=(Column("value", "double", "its value"),),
    rules=(
        Rule(
            "CLIENT_QUOTA_RECORD",
            Effect.OPENS,
            _QUOTA_KEY,
            {"value": "client_quota_record.value"},
            where=negated("client_quota_record.remove"),
        ),
        Rule("CLIENT_QUOTA_RECORD", Effect.CLOSES, _QUOTA_KEY, where="client_quota_record.remove"),
    ),
)

PRODUCER_IDS: Final = Entity(
    "producer_ids",
    "the blocks of producer ids",
    key=(Column("block", "string", "always `newest`: each block ends the validity of the one before it"),),
    columns=(
        Column("next_producer_id", "bigint", "the first id after the block"),
        Column("broker_id", "int", "the broker that got the block; -1 if only a snapshot has it"),
        Column("broker_epoch", "bigint", "the broker's epoch", detail=True),
    ),
    rules=(
        Rule(
            "PRODUCER_IDS_RECORD",
            Effect.OPENS,
            {"block": constant("newest")},
            {
                "next_producer_id": "producer_ids_record.next_producer_id",
                "broker_id": "producer_ids_record.broker_id",
                "broker_epoch": "producer_ids_record.broker_epoch",
            },
        ),
    ),
)
