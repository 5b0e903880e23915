"""Which function handles which API. Modules, and with them their messages, are imported when first
asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from quorate.controller.context import Context, Result, View
from quorate.protocol.api import ApiKey

WriteHandler = Callable[[View, Any, Context], Result[Any]]

WRITES: Mapping[int, tuple[str, str]] = {
    ApiKey.CREATE_TOPICS: ("create_topics", "create_topics"),
    ApiKey.DELETE_TOPICS: ("delete_topics", "delete_topics"),
    ApiKey.CREATE_PARTITIONS: ("create_partitions", "create_partitions"),
    ApiKey.ALTER_CONFIGS: ("alter_configs", "alter_configs"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("incremental_alter_configs", "incremental_alter_configs"),
    ApiKey.ALTER_PARTITION: ("alter_partition", "alter_partition"),
    ApiKey.ELECT_LEADERS: ("elect_leaders", "elect_leaders"),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ("assign_replicas_to_dirs", "assign_replicas_to_dirs"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("alter_partition_reassignments", "alter_partition_reassignments"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("list_partition_reassignments", "list_partition_reassignments"),
    ApiKey.BROKER_REGISTRATION: ("register_broker", "register_broker"),
    ApiKey.BROKER_HEARTBEAT: ("broker_heartbeat", "broker_heartbeat"),
    ApiKey.UNREGISTER_BROKER: ("unregister_broker", "unregister_broker"),
    ApiKey.CONTROLLER_REGISTRATION: ("register_controller", "register_controller"),
    ApiKey.ALLOCATE_PRODUCER_IDS: ("allocate_producer_ids", "allocate_producer_ids"),
    ApiKey.UPDATE_FEATURES: ("update_features", "update_features"),
    ApiKey.CREATE_ACLS: ("create_acls", "create_acls"),
    ApiKey.DELETE_ACLS: ("delete_acls", "delete_acls"),
    ApiKey.ALTER_CLIENT_QUOTAS: ("alter_client_quotas", "alter_client_quotas"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("alter_user_scram_credentials", "alter_user_scram_credentials"),
    ApiKey.CREATE_DELEGATION_TOKEN: ("create_delegation_token", "create_delegation_token"),
    ApiKey.RENEW_DELEGATION_TOKEN: ("renew_delegation_token", "renew_delegation_token"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ("expire_delegation_token", "expire_delegation_token"),
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
