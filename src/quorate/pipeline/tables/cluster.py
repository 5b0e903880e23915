"""Registered brokers and controllers."""

from __future__ import annotations

from typing import Final

from quorate.pipeline.tables.declaration import Column, Effect, Entity, Rule
from quorate.pipeline.tables.expressions import but, constant, named, ordered, time_of, unless_empty

_END_POINTS: Final = Column(
    "end_points",
    "array<struct<name:string,host:string,port:int,security_protocol:smallint>>",
    "the addresses of the listeners",
    detail=True,
)
_FEATURES: Final = Column(
    "features",
    "array<struct<name:string,min_supported_version:smallint,max_supported_version:smallint>>",
    "the supported levels of each feature",
    detail=True,
)

_REGISTERED: Final = "register_broker_record"
_CHANGED: Final = "broker_registration_change_record"

BROKERS: Final = Entity(
    "brokers",
    "the registered brokers",
    key=(Column("broker_id", "int", "the node id"),),
    columns=(
        Column("rack", "string", "the rack, or null"),
        Column("fenced", "boolean", "whether the broker is fenced"),
        Column("in_controlled_shutdown", "boolean", "whether the broker is shutting down"),
        Column("start_time", "timestamp", "when the broker's process started, if its record says so"),
        Column("broker_epoch", "bigint", "the epoch of the registration"),
        Column("incarnation_id", "string", "the id of the broker's process", detail=True),
        Column("log_dirs", "array<string>", "the ids of the log directories", detail=True),
        Column(
            "cordoned_log_dirs",
            "array<string>",
            "those without new replicas (KIP-1066), if known",
            detail=True,
        ),
        _END_POINTS,
        _FEATURES,
    ),
    rules=(
        Rule(
            "REGISTER_BROKER_RECORD",
            Effect.OPENS,
            {"broker_id": "broker_id"},
            {
                "rack": f"{_REGISTERED}.rack",
                "fenced": f"{_REGISTERED}.fenced",
                "in_controlled_shutdown": f"{_REGISTERED}.in_controlled_shutdown",
                "start_time": time_of(but(f"{_REGISTERED}.start_time_ms", 0)),
                "broker_epoch": f"{_REGISTERED}.broker_epoch",
                "incarnation_id": f"{_REGISTERED}.incarnation_id",
                "log_dirs": ordered(f"{_REGISTERED}.log_dirs"),
                "cordoned_log_dirs": f"{_REGISTERED}.cordoned_log_dirs",
                "end_points": f"{_REGISTERED}.end_points",
                "features": ordered(f"{_REGISTERED}.features"),
            },
        ),
        Rule(
            "BROKER_REGISTRATION_CHANGE_RECORD",
            Effect.CHANGES,
            {"broker_id": "broker_id"},
            {
                "fenced": named(f"{_CHANGED}.fenced", {1: True, -1: False}),
                "in_controlled_shutdown": named(f"{_CHANGED}.in_controlled_shutdown", {1: True}),
                "log_dirs": ordered(unless_empty(f"{_CHANGED}.log_dirs")),
                "cordoned_log_dirs": f"{_CHANGED}.cordoned_log_dirs",
                "end_points": f"{_CHANGED}.end_points",
            },
        ),
        Rule("FENCE_BROKER_RECORD", Effect.CHANGES, {"broker_id": "broker_id"}, {"fenced": constant(True)}),
        Rule(
            "UNFENCE_BROKER_RECORD", Effect.CHANGES, {"broker_id": "broker_id"}, {"fenced": constant(False)}
        ),
        Rule("UNREGISTER_BROKER_RECORD", Effect.CLOSES, {"broker_id": "broker_id"}),
    ),
)

_CONTROLLER: Final = "register_controller_record"

CONTROLLERS: Final = Entity(
    "controllers",
    "the registered controllers",
    key=(Column("controller_id", "int", "the node id"),),
    columns=(
        Column("incarnation_id", "string", "the id of the controller's process", detail=True),
        Column(
            "zk_migration_ready",
            "boolean",
            "whether it was ready for a migration from ZooKeeper",
            detail=True,
        ),
        _END_POINTS,
        _FEATURES,
    ),
    rules=(
        Rule(
            "REGISTER_CONTROLLER_RECORD",
            Effect.OPENS,
            {"controller_id": "broker_id"},
            {
                "incarnation_id": f"{_CONTROLLER}.incarnation_id",
                "zk_migration_ready": f"{_CONTROLLER}.zk_migration_ready",
                "end_points": f"{_CONTROLLER}.end_points",
                "features": ordered(f"{_CONTROLLER}.features"),
            },
        ),
        Rule("UNREGISTER_CONTROLLER_RECORD", Effect.CLOSES, {"controller_id": "broker_id"}),
    ),
)

_VOTER_KEY: Final = {"voter_id": "each.voter_id", "directory_id": "each.voter_directory_id"}

VOTERS: Final = Entity(
    "voters",
    "the voters of a quorum whose membership is dynamic (KIP-853)",
    key=(
        Column("voter_id", "int", "the node id"),
        Column("directory_id", "string", "the id of the voter's metadata directory"),
    ),
    columns=(
        Column("end_points", "array<struct<name:string,host:string,port:int>>", "the listeners' addresses"),
        Column(
            "min_kraft_version", "smallint", "the lowest kraft.version that the voter supports", detail=True
        ),
        Column("max_kraft_version", "smallint", "the highest one"),
    ),
    rules=(
        Rule(
            "KRAFT_VOTERS",
            Effect.REPLACES_ALL,
            _VOTER_KEY,
            {
                "end_points": "each.endpoints",
                "min_kraft_version": "each.kraft_version_feature.min_supported_version",
                "max_kraft_version": "each.kraft_version_feature.max_supported_version",
            },
            each="kraft_voters.voters",
        ),
    ),
)
