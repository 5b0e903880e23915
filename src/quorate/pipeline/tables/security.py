"""ACLs, SCRAM users and delegation tokens. Secrets are in none of the tables."""

from __future__ import annotations

from typing import Final

from quorate.admin.types import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate.pipeline.tables.declaration import Column, Effect, Entity, Rule
from quorate.pipeline.tables.expressions import Expression, named, time_of

_ACL: Final = "access_control_entry_record"

ACLS: Final = Entity(
    "acls",
    "the access control entries",
    key=(Column("acl_id", "string", "the id of the entry"),),
    columns=(
        Column("resource_type", "string", "TOPIC, GROUP, CLUSTER, ..."),
        Column("resource_name", "string", "the name or the prefix of it"),
        Column("pattern_type", "string", "LITERAL or PREFIXED"),
        Column("principal", "string", "User:NAME"),
        Column("host", "string", "the address that the entry is for, or *"),
        Column("operation", "string", "READ, WRITE, ..."),
        Column("permission_type", "string", "ALLOW or DENY"),
    ),
    rules=(
        Rule(
            "ACCESS_CONTROL_ENTRY_RECORD",
            Effect.OPENS,
            {"acl_id": f"{_ACL}.id"},
            {
                "resource_type": named(f"{_ACL}.resource_type", ResourceType, others=True),
                "resource_name": f"{_ACL}.resource_name",
                "pattern_type": named(f"{_ACL}.pattern_type", PatternType, others=True),
                "principal": f"{_ACL}.principal",
                "host": f"{_ACL}.host",
                "operation": named(f"{_ACL}.operation", AclOperation, others=True),
                "permission_type": named(f"{_ACL}.permission_type", AclPermissionType, others=True),
            },
        ),
        Rule(
            "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
            Effect.CLOSES,
            {"acl_id": "remove_access_control_entry_record.id"},
        ),
    ),
)


def _credential(record: str) -> dict[str, Expression]:
    names = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
    return {"user": f"{record}.name", "mechanism": named(f"{record}.mechanism", names, others=True)}


SCRAM_USERS: Final = Entity(
    "scram_users",
    "the users with SCRAM credentials, without the credentials",
    key=(
        Column("user", "string", "the name of the user"),
        Column("mechanism", "string", "SCRAM-SHA-256 or SCRAM-SHA-512"),
    ),
    columns=(Column("iterations", "int", "the iterations of the hash function"),),
    rules=(
        Rule(
            "USER_SCRAM_CREDENTIAL_RECORD",
            Effect.OPENS,
            _credential("user_scram_credential_record"),
            {"iterations": "user_scram_credential_record.iterations"},
        ),
        Rule(
            "REMOVE_USER_SCRAM_CREDENTIAL_RECORD",
            Effect.CLOSES,
            _credential("remove_user_scram_credential_record"),
        ),
    ),
)

_TOKEN: Final = "delegation_token_record"

TOKENS: Final = Entity(
    "tokens",
    "the delegation tokens",
    key=(Column("token_id", "string", "the id of the token"),),
    columns=(
        Column("owner", "string", "the principal that the token stands for"),
        Column("requester", "string", "the principal that asked for it"),
        Column("renewers", "array<string>", "the principals that may renew it"),
        Column("issue_time", "timestamp", "when it was created"),
        Column("max_time", "timestamp", "until when it may be renewed"),
        Column("expiration_time", "timestamp", "when it expires"),
    ),
    rules=(
        Rule(
            "DELEGATION_TOKEN_RECORD",
            Effect.OPENS,
            {"token_id": f"{_TOKEN}.token_id"},
            {
                "owner": f"{_TOKEN}.owner",
                "requester": f"{_TOKEN}.requester",
                "renewers": f"{_TOKEN}.renewers",
                "issue_time": time_of(f"{_TOKEN}.issue_timestamp"),
                "max_time": time_of(f"{_TOKEN}.max_timestamp"),
                "expiration_time": time_of(f"{_TOKEN}.expiration_timestamp"),
            },
        ),
        Rule(
            "REMOVE_DELEGATION_TOKEN_RECORD",
            Effect.CLOSES,
            {"token_id": "remove_delegation_token_record.token_id"},
        ),
    ),
)
