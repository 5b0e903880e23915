"""Topics and partitions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.pipeline.tables.declaration import Column, Effect, Entity, Rule
from quorate.pipeline.tables.expressions import (
    NO_NUMBERS,
    Function,
    but,
    constant,
    differs,
    equal,
    first_of,
    named,
)

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
_NO_DIRECTORY: Final = "AAAAAAAAAAAAAAAAAAAAAA"
_CLEARED: Final = {"elr": NO_NUMBERS, "last_known_elr": NO_NUMBERS}
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


def _directories(found: Any, replicas: Any) -> Any:
    """The directory of each replica.

    Without directories, or if all of them are MIGRATING, each replica has the directory MIGRATING.
    """
    assigned = np.zeros(len(found), np.bool_)
    others = pc.not_equal(pc.list_flatten(found), _NO_DIRECTORY).to_numpy(zero_copy_only=False)
    assigned[pc.list_parent_indices(found).to_numpy()[others]] = True
    migrating = ~assigned & pc.is_valid(found).to_numpy(zero_copy_only=False)
    if not migrating.any():
        return found
    sizes = pc.fill_null(pc.list_value_length(replicas), 0).to_numpy()
    ends = np.concatenate([[0], np.cumsum(np.where(migrating, sizes, 0))]).astype(np.int32)
    filled = pa.ListArray.from_arrays(ends, pa.repeat(_NO_DIRECTORY, int(ends[-1])))
    return pc.if_else(pa.array(migrating), filled.cast(found.type), found)


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
                "elr": first_of("partition_record.eligible_leader_replicas", NO_NUMBERS),
                "last_known_elr": first_of("partition_record.last_known_elr", NO_NUMBERS),
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
                "leader": but("partition_change_record.leader", -2),
                "leader_recovery_state": but("partition_change_record.leader_recovery_state", -1),
            },
            adds={
                "leader_epoch": named(equal("partition_change_record.leader", -2), {True: 0, False: 1}),
                "partition_epoch": constant(1),
            },
        ),
        Rule(
            "CLEAR_ELR_RECORD",
            Effect.CHANGES,
            {"topic_id": "topic_id"},
            _CLEARED,
            adds={"partition_epoch": constant(1)},
            adds_if_changed=True,
            where=differs("clear_elr_record.topic_name", ""),
        ),
        Rule(
            "CLEAR_ELR_RECORD",
            Effect.CHANGES,
            {},
            _CLEARED,
            adds={"partition_epoch": constant(1)},
            adds_if_changed=True,
            where=equal("clear_elr_record.topic_name", ""),
        ),
        Rule("REMOVE_TOPIC_RECORD", Effect.CLOSES, {"topic_id": "topic_id"}),
    ),
    derived={
        "directories": Function(("directories", "replicas"), _directories),
    },
    names_topics=True,
)
