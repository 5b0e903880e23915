"""Which function handles which API. Modules, and with them their messages, are imported when first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from quorate.controller.context import Context, Result, View
from quorate.protocol.api import ApiKey

WriteHandler = Callable[[View, Any, Context], Result[Any]]

WRITES: Mapping[int, tuple[str, str]] = {
    ApiKey.CREATE_TOPICS: ("topics", "create_topics"),
    ApiKey.DELETE_TOPICS: ("topics", "delete_topics"),
    ApiKey.CREATE_PARTITIONS: ("create_partitions", "create_partitions"),
    ApiKey.ALTER_CONFIGS: ("configs", "alter_configs"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("configs", "incremental_alter_configs"),
    ApiKey.ALTER_PARTITION: ("partitions", "alter_partition"),
    ApiKey.ELECT_LEADERS: ("partitions", "elect_leaders"),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ("partitions", "assign_replicas_to_dirs"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("reassignments", "alter_partition_reassignments"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("reassignments", "list_partition_reassignments"),
    ApiKey.BROKER_REGISTRATION: ("brokers", "register_broker"),
    ApiKey.BROKER_HEARTBEAT: ("brokers", "broker_heartbeat"),
    ApiKey.UNREGISTER_BROKER: ("brokers", "unregister_broker"),
    ApiKey.CONTROLLER_REGISTRATION: ("brokers", "register_controller"),
    ApiKey.ALLOCATE_PRODUCER_IDS: ("producer_ids", "allocate_producer_ids"),
    ApiKey.UPDATE_FEATURES: ("features", "update_features"),
    ApiKey.CREATE_ACLS: ("acls", "create_acls"),
    ApiKey.DELETE_ACLS: ("acls", "delete_acls"),
    ApiKey.ALTER_CLIENT_QUOTAS: ("quotas", "alter_client_quotas"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("scram", "alter_user_scram_credentials"),
    ApiKey.CREATE_DELEGATION_TOKEN: ("tokens", "create_delegation_token"),
    ApiKey.RENEW_DELEGATION_TOKEN: ("tokens", "renew_delegation_token"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ("tokens", "expire_delegation_token"),
}
"""Handled by the active controller alone, on its newest state; the answers wait for it to be committed."""

_resolved: dict[int, WriteHandler] = {}
"""Functions found so far; the same for every controller in the process."""


def write_handler(api_key: int) -> WriteHandler:
    handler = _resolved.get(api_key)
    if handler is None:
        module, function = WRITES[api_key]
        handler = getattr(importlib.import_module(f"quorate.controller.handlers.{module}"), function)
        _resolved[api_key] = handler
    return handler
