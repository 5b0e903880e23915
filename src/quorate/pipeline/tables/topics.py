"""Topics and partitions."""

from __future__ import annotations

from typing import Final

from quorate.pipeline.tables.declaration import Column, Effect, Entity, Rule

TOPIC_ID: Final = Column("topic_id", "string", "the topic's id; a topic created anew has another one")

TOPICS: Final = Entity(
    "topics",
    "the topics",
    key=(TOPIC_ID,),
    columns=(Column("topic", "string", "the topic's name"),),
    rules=(
        Rule("TOPIC_RECORD", Effect.OPENS, {"topic_id": "topic_id"}, {"topic": "topic_name"}),
        Rule("REMOVE_TOPIC_RECORD", Effect.CLOSES, {"topic_id": "topic_id"}),
    ),
)

_KEY: Final = {"topic_id": "topic_id", "partition": "partition"}
_NONE: Final = "cast(array() AS array<int>)"
_NO_DIRECTORY: Final = "AAAAAAAAAAAAAAAAAAAAAA"
_CLEARED: Final = {"elr": _NONE, "last_known_elr": _NONE}
_SHARED: Final = {
    "replicas": "replicas",
    "directories": "directories",
    "isr": "isr",
    "removing_replicas": "removing_replicas",
    "adding_replicas": "adding_replicas",
    "elr": "eligible_leader_replicas",
    "last_known_elr": "last_known_elr",
}
"""The columns that PartitionRecord and PartitionChangeRecord both have as fields."""

PARTITIONS: Final = Entity(
    "partitions",
    "the partitions of the topics",
    key=(TOPIC_ID, Column("partition", "int", "the number of the partition")),
    columns=(
        Column("topic", "string", "the topic's name"),
        Column("replicas", "array<int>", "the brokers that have a replica, the preferred leader first"),
        Column("directories", "array<string>", "the directory id of each replica", detail=True),
        Column("isr", "array<int>", "the in-sync replicas"),
        Column("removing_replicas", "array<int>", "the replicas that a reassignment removes"),
        Column("adding_replicas", "array<int>", "the replicas that a reassignment adds"),
        Column("elr", "array<int>", "the eligible leader replicas (KIP-966)"),
        Column("last_known_elr", "array<int>", "the last known eligible leader replicas", detail=True),
        Column("leader", "int", "the leader, -1 if there is none"),
        Column(
            "leader_recovery_state",
            "int",
            "1 after an unclean election, until the leader has recovered",
            detail=True,
        ),
        Column("leader_epoch", "int", "incremented with each election"),
        Column("partition_epoch", "int", "incremented with each change", detail=True),
    ),
    rules=(
        Rule(
            "PARTITION_RECORD",
            Effect.OPENS,
            _KEY,
            {
                "topic": "topic_name",
                **{column: f"partition_record.{name}" for column, name in _SHARED.items()},
                "elr": f"coalesce(partition_record.eligible_leader_replicas, {_NONE})",
                "last_known_elr": f"coalesce(partition_record.last_known_elr, {_NONE})",
                "leader": "partition_record.leader",
                "leader_recovery_state": "partition_record.leader_recovery_state",
                "leader_epoch": "partition_record.leader_epoch",
                "partition_epoch": "partition_record.partition_epoch",
            },
        ),
        Rule(
            "PARTITION_CHANGE_RECORD",
            Effect.CHANGES,
            _KEY,
            {
                **{column: f"partition_change_record.{name}" for column, name in _SHARED.items()},
                "leader": "nullif(partition_change_record.leader, -2)",
                "leader_recovery_state": "nullif(partition_change_record.leader_recovery_state, -1)",
            },
            adds={"leader_epoch": "if(partition_change_record.leader = -2, 0, 1)", "partition_epoch": "1"},
        ),
        Rule(
            "CLEAR_ELR_RECORD",
            Effect.CHANGES,
            {"topic_id": "topic_id"},
            _CLEARED,
            adds={"partition_epoch": "1"},
            adds_if_changed=True,
            where="clear_elr_record.topic_name <> ''",
        ),
        Rule(
            "CLEAR_ELR_RECORD",
            Effect.CHANGES,
            {},
            _CLEARED,
            adds={"partition_epoch": "1"},
            adds_if_changed=True,
            where="clear_elr_record.topic_name = ''",
        ),
        Rule("REMOVE_TOPIC_RECORD", Effect.CLOSES, {"topic_id": "topic_id"}),
    ),
    derived={
        # Without directories, or if all of them are MIGRATING, each replica has the directory MIGRATING.
        "directories": f"if(forall(directories, d -> d = '{_NO_DIRECTORY}'), "
        f"array_repeat('{_NO_DIRECTORY}', size(replicas)), directories)",
    },
    names_topics=True,
)
