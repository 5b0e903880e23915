"""The handler of each API that changes metadata.

A handler's module, and with it the messages of its API, is imported when a request first needs it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from quorate.controller.changes.batched_change import ChangeSteps
from quorate.controller.context import Context, Result, View
from quorate.protocol.api import ApiKey

WriteHandler = Callable[[View, Any, Context], Result[Any]]

WRITES: Mapping[int, str] = {
    ApiKey.CREATE_TOPICS: "create_topics",
    ApiKey.DELETE_TOPICS: "delete_topics",
    ApiKey.CREATE_PARTITIONS: "create_partitions",
    ApiKey.ALTER_CONFIGS: "alter_configs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "incremental_alter_configs",
    ApiKey.ALTER_PARTITION: "alter_partition",
    ApiKey.ELECT_LEADERS: "elect_leaders",
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: "assign_replicas_to_dirs",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "list_partition_reassignments",
    ApiKey.BROKER_REGISTRATION: "register_broker",
    ApiKey.BROKER_HEARTBEAT: "broker_heartbeat",
    ApiKey.UNREGISTER_BROKER: "unregister_broker",
    ApiKey.CONTROLLER_REGISTRATION: "register_controller",
    ApiKey.UNREGISTER_CONTROLLER: "unregister_controller",
    ApiKey.ALLOCATE_PRODUCER_IDS: "allocate_producer_ids",
    ApiKey.UPDATE_FEATURES: "update_features",
    ApiKey.CREATE_ACLS: "create_acls",
    ApiKey.DELETE_ACLS: "delete_acls",
    ApiKey.ALTER_CLIENT_QUOTAS: "alter_client_quotas",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "alter_user_scram_credentials",
    ApiKey.CREATE_DELEGATION_TOKEN: "create_delegation_token",
    ApiKey.RENEW_DELEGATION_TOKEN: "renew_delegation_token",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "expire_delegation_token",
}
"""The function of each API, in the module of the same name in `quorate.controller.handlers`.

Only the active controller handles these APIs. They read its newest state, and their responses wait until
that state is committed.
"""

_handlers: dict[int, WriteHandler] = {}
"""The functions that were imported so far, for all controllers of the process."""


def write_handler(api_key: int) -> WriteHandler:
    """The handler of an API in `WRITES`."""
    handler = _handlers.get(api_key)
    if handler is None:
        name = WRITES[api_key]
        handler = getattr(importlib.import_module(f"quorate.controller.handlers.{name}"), name)
        _handlers[api_key] = handler
    return handler


IN_STEPS = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    }
)
"""The APIs whose changes can be larger than one batch, or whose requests can have very many parts that are
refused. The module of the handler has the same handler in steps."""

SMALL_IN_STEPS = frozenset({ApiKey.DELETE_ACLS})
"""Those of `IN_STEPS` whose small requests can take long, too: each filter is compared with many ACLs."""

StepsHandler = Callable[[View, Any, Context], ChangeSteps[Result[Any]]]


def steps_handler(api_key: int) -> StepsHandler:
    """The handler in steps of an API in `IN_STEPS`."""
    handler = _steps_handlers.get(api_key)
    if handler is None:
        name = WRITES[api_key]
        module = importlib.import_module(f"quorate.controller.handlers.{name}")
        handler = _steps_handlers[api_key] = getattr(module, f"{name}_in_steps")
    return handler


_steps_handlers: dict[int, StepsHandler] = {}
