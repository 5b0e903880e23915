"""AlterConfigs and IncrementalAlterConfigs (KIP-133, KIP-339, KIP-966).

A resource is altered as a whole or not at all; the resources of one request that are in order go in one
batch. A key of a broker is written even if it is unchanged, so that brokers reload it. With eligible
leader replicas on, each change of min.insync.replicas is followed by a ClearElrRecord, and brokers
cannot have one of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum

from quorate.config.definitions import ConfigError
from quorate.controller.context import MIN_ISR, View
from quorate.controller.handlers.config_rules import check_client_metrics, check_group
from quorate.controller.topic_names import parse_node_id, why_invalid
from quorate.metadata.image.parts import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from quorate.metadata.records import ClearElrRecord, ConfigRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.schema import Data

MAX_VALUE_LENGTH = 32_767
"""Characters: Kafka's own bound, since values once had to fit an int16."""
_KNOWN_TYPES = (
    TOPIC_RESOURCE,
    BROKER_RESOURCE,
    BROKER_LOGGER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
)


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Operations = Mapping[str, tuple[Operation, str | None]]


def altered_config_records(
    view: View, resource_type: int, name: str, operations: Operations, *, is_new: bool = False
) -> list[Data]:
    """Records of one resource. is_new: the resource is created by the same batch. Raises INVALID_CONFIG,
    INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED."""
    current = view.image.configs.get(resource_type, name)
    changes: dict[str, str | None] = {}
    for key, (operation, value) in operations.items():
        if operation is not Operation.DELETE and value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for key {key}")
        new = _operated(view, resource_type, key, current.get(key), operation, value)
        if new != current.get(key) or resource_type == BROKER_RESOURCE:
            changes[key] = new
    _check(view, resource_type, name, changes, is_new)
    return _records(view, resource_type, name, changes)


def replaced_config_records(
    view: View, resource_type: int, name: str, wanted: Mapping[str, str | None]
) -> list[Data]:
    current = view.image.configs.get(resource_type, name)
    for key, value in wanted.items():
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for key {key}")
    changes: dict[str, str | None] = {
        key: value
        for key, value in wanted.items()
        if value != current.get(key) or resource_type == BROKER_RESOURCE
    }
    changes.update({key: None for key in current if key not in wanted})
    _check(view, resource_type, name, changes, is_new=False)
    return _records(view, resource_type, name, changes)


def _operated(
    view: View, resource_type: int, key: str, current: str | None, operation: Operation, value: str | None
) -> str | None:
    if operation is Operation.SET:
        return value
    if operation is Operation.DELETE or value is None:
        return None
    schema = view.config.schema
    if not schema.is_list(resource_type, key):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Can't {operation.name} to key {key} because its type is not LIST."
        )
    if current is None:
        current = schema.default_text(resource_type, key)
    items = [item for item in (current or "").split(",") if item]
    given = value.split(",")
    if operation is Operation.APPEND:
        present = set(items)
        return ",".join([*items, *(item for item in dict.fromkeys(given) if item not in present)])
    left = Counter(given)
    kept = []
    for item in items:  # each item that is given takes one of its like away, the first
        if left[item] > 0:
            left[item] -= 1
        else:
            kept.append(item)
    return ",".join(kept)


def _check(
    view: View, resource_type: int, name: str, changes: Mapping[str, str | None], is_new: bool
) -> None:
    if view.elr_enabled and resource_type == BROKER_RESOURCE and MIN_ISR in changes:
        if name:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
            )
        if changes[MIN_ISR] is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
            )
    if any(value is not None and len(value) > MAX_VALUE_LENGTH for value in changes.values()):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{MAX_VALUE_LENGTH} bytes.",
        )
    whole = dict(view.image.configs.get(resource_type, name))
    for key, value in changes.items():
        if value is None:
            whole.pop(key, None)
        else:
            whole[key] = value
    try:
        _check_values(view, resource_type, name, whole, changes)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if not is_new:
        _check_existence(view, resource_type, name)


def _check_values(
    view: View, resource_type: int, name: str, whole: Mapping[str, str], changes: Mapping[str, str | None]
) -> None:
    schema = view.config.schema
    if resource_type == TOPIC_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if (reason := why_invalid(name)) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        schema.check_topic(whole)
    elif resource_type == BROKER_RESOURCE:
        node_id = parse_node_id(name) if name else 0
        if node_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
        if node_id < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
        for key, value in changes.items():
            definition = schema.definition(resource_type, key)
            if (
                definition is not None and value is not None
            ):  # listener keys and those of plug-ins are not known here
                definition.validate(value)
    elif resource_type in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
        is_group = resource_type == GROUP_RESOURCE
        if not name:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Default group resources are not allowed."
                if is_group
                else "Subscription name can't be empty",
            )
        for key, value in whole.items():
            definition = schema.definition(resource_type, key)
            if definition is None:
                if is_group:
                    raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {key}")
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
            definition.validate(value)
        if is_group:
            check_group(whole, view.config.static)
        else:
            check_client_metrics(whole)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def _check_existence(view: View, resource_type: int, name: str) -> None:
    if resource_type == TOPIC_RESOURCE:
        if name not in view.image.topics.by_name:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource_type == BROKER_RESOURCE and name:
        node_id = parse_node_id(name)
        if node_id is None or (
            view.broker(node_id) is None and node_id not in view.voter_ids and node_id != view.config.node_id
        ):
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")


def _records(view: View, resource_type: int, name: str, changes: Mapping[str, str | None]) -> list[Data]:
    records: list[Data] = [
        ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        for key, value in changes.items()
    ]
    if view.elr_enabled and MIN_ISR in changes:
        records.append(ClearElrRecord(topic_name=name if resource_type == TOPIC_RESOURCE else ""))
    return records


def move_clear_records_last(records: list[Data]) -> None:
    """One ELR is cleared after all configurations are written, as Kafka orders them."""
    records.sort(key=lambda record: isinstance(record, ClearElrRecord))


def repeated_resources(keys: list[tuple[int, str]]) -> set[tuple[int, str]]:
    return {key for key, count in Counter(keys).items() if count > 1}


def check_keys(names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def check_resource_type(resource_type: int) -> None:
    if resource_type not in _KNOWN_TYPES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {resource_type}.")
    if resource_type == BROKER_LOGGER_RESOURCE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource_type}.")
