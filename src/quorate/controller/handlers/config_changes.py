"""Changes of configurations by AlterConfigs and IncrementalAlterConfigs (KIP-133, KIP-339, KIP-966).

The changes of one resource are made all or not at all. The changes of all resources without an error are
one batch. A key of a broker is written even if its value does not change, so that brokers reload it. If
eligible leader replicas are enabled, a ClearElrRecord follows each change of min.insync.replicas, and
single brokers cannot set this key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from quorate.config.cordoned_dirs import CORDONED_LOG_DIRS
from quorate.config.definitions import ConfigError
from quorate.controller.changes.batched_change import STEP_ITEMS, ChangeSteps, all_hold
from quorate.controller.config import MAX_RECORDS_PER_USER_OP
from quorate.controller.context import MIN_ISR, Recheck, View, check_record_count
from quorate.controller.handlers.config_rules import (
    check_broker,
    check_client_metrics,
    check_cordoned_dirs,
    check_group,
)
from quorate.controller.topic_names import invalid_reason
from quorate.metadata.records import ClearElrRecord, ConfigRecord
from quorate.protocol.config_resource import ConfigResourceType, parse_node_id
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.schema import Data

MAX_VALUE_LENGTH = 32_767
"""The largest number of characters of a value. It is Kafka's limit, from a time when the length had to
fit an int16."""
_KNOWN_TYPES = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Resource(Protocol):
    """A resource of an AlterConfigs or IncrementalAlterConfigs request."""

    resource_type: int
    resource_name: str
    configs: list[Any]


class Answer(Protocol):
    """The response for one resource."""

    error_code: int
    error_message: str | None


R = TypeVar("R", bound=Resource)
A = TypeVar("A", bound=Answer)

Operations = Mapping[str, tuple[Operation, str | None]]


def alter_resources(
    view: View,
    resources: Sequence[R],
    make_answer: Callable[..., A],
    alter: Callable[[R], list[Data]],
    *,
    validate_only: bool,
) -> ChangeSteps[tuple[list[A], Recheck]]:
    """Alters each resource by `alter`, which returns its records or raises KafkaError. Yields the records of
    all resources without an error.

    Returns the responses, one for each resource, and the `recheck` of the result. Raises POLICY_VIOLATION if
    there are too many records for one batch.
    """
    repeated: Counter[tuple[int, str]] = Counter()
    for start in range(0, len(resources), STEP_ITEMS):
        if start:
            yield []
        part = resources[start : start + STEP_ITEMS]
        repeated.update((resource.resource_type, resource.resource_name) for resource in part)
    answers: dict[tuple[int, str], A] = {}
    altered: list[tuple[int, str]] = []
    records: list[Data] = []
    cleared: list[Data] = []  # Kafka's order: the ELR is cleared after all configurations are written
    written = 0
    for index, resource in enumerate(resources, 1):
        if not index % STEP_ITEMS:
            yield records
            records = []
        key = (resource.resource_type, resource.resource_name)
        if key in answers:
            continue
        answer = answers[key] = make_answer(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            if repeated[key] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
            _check_resource_type(resource.resource_type)
            _check_keys([config.name for config in resource.configs])
            new = alter(resource)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
            continue
        written += len(new)
        check_record_count(written, "Altering these configurations", MAX_RECORDS_PER_USER_OP)
        if new and not validate_only:
            altered.append(key)
            for record in new:
                (cleared if isinstance(record, ClearElrRecord) else records).append(record)
    yield [*records, *cleared]

    def recheck(newer: View) -> Generator[None, None, bool]:
        """Whether brokers and configurations are the same and all altered topics still exist."""
        if not newer.has_same_brokers_and_settings(view):
            return False
        topics = [name for resource_type, name in altered if resource_type == ConfigResourceType.TOPIC]
        return (yield from all_hold(topics, newer.image.topics.by_name.__contains__))

    return list(answers.values()), recheck


def altered_config_records(
    view: View,
    resource_type: int,
    name: str,
    operations: Operations,
    *,
    is_new: bool = False,
    forwarded: bool = True,
) -> list[Data]:
    """The records of operations on one resource. `is_new` means that the same batch creates the
    resource, and `forwarded` that a broker has checked the operations.

    Raises INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED.
    """
    current = view.image.configs.get(resource_type, name)
    changes: dict[str, str | None] = {}
    for key, (operation, value) in operations.items():
        if operation is not Operation.DELETE and value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for key {key}")
        new = _operated(view, resource_type, key, current.get(key), operation, value)
        if new != current.get(key) or resource_type == ConfigResourceType.BROKER:
            changes[key] = new
    _check(view, resource_type, name, changes, is_new, forwarded)
    return _records(view, resource_type, name, changes)


def replaced_config_records(
    view: View, resource_type: int, name: str, wanted: Mapping[str, str | None], *, forwarded: bool = True
) -> list[Data]:
    """The records that replace the whole configuration of one resource. Raises the same errors."""
    current = view.image.configs.get(resource_type, name)
    for key, value in wanted.items():
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for key {key}")
    changes: dict[str, str | None] = {
        key: value
        for key, value in wanted.items()
        if value != current.get(key) or resource_type == ConfigResourceType.BROKER
    }
    changes.update({key: None for key in current if key not in wanted})
    _check(view, resource_type, name, changes, False, forwarded)
    return _records(view, resource_type, name, changes)


def _operated(
    view: View, resource_type: int, key: str, current: str | None, operation: Operation, value: str | None
) -> str | None:
    """The value of a key after an operation, or None if it is deleted."""
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
    for item in items:  # each given item removes its first occurrence
        if left[item] > 0:
            left[item] -= 1
        else:
            kept.append(item)
    return ",".join(kept)


def _check(
    view: View,
    resource_type: int,
    name: str,
    changes: Mapping[str, str | None],
    is_new: bool,
    forwarded: bool,
) -> None:
    """Checks the configuration of a resource after its changes."""
    if view.elr_enabled and resource_type == ConfigResourceType.BROKER and MIN_ISR in changes:
        if name:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.",
                remedy="Set it for all brokers (kafka-configs --entity-type brokers --entity-default) or "
                "for a topic.",
            )
        if changes[MIN_ISR] is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.",
                remedy="Set another value instead.",
            )
    if resource_type == ConfigResourceType.BROKER and CORDONED_LOG_DIRS in changes:
        check_cordoned_dirs(
            view.metadata_version,
            view.image.configs.get(resource_type, name).get(CORDONED_LOG_DIRS),
            changes[CORDONED_LOG_DIRS],
            forwarded,
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
        _check_values(view, resource_type, name, whole, changes, forwarded)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if not is_new:
        _check_existence(view, resource_type, name)


def _check_values(
    view: View,
    resource_type: int,
    name: str,
    whole: Mapping[str, str],
    changes: Mapping[str, str | None],
    forwarded: bool,
) -> None:
    """Checks the name of a resource and its values."""
    schema = view.config.schema
    if resource_type == ConfigResourceType.TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if (reason := invalid_reason(name)) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        schema.check_topic(whole)
    elif resource_type == ConfigResourceType.BROKER:
        node_id = parse_node_id(name) if name else 0
        if node_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
        if node_id < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
        for key, value in changes.items():
            definition = schema.definition(resource_type, key)
            # Keys with the name of a listener and keys of plug-ins have no definition.
            if definition is not None and value is not None:
                definition.validate(value)
        if not forwarded:
            stored = view.image.configs.get(resource_type, name)
            acts_here = not name or _is_node_of_ours(view, node_id)
            check_broker(whole, stored, per_broker=bool(name), acts_here=acts_here)
    elif resource_type in (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS):
        is_group = resource_type == ConfigResourceType.GROUP
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


def _is_node_of_ours(view: View, node_id: int) -> bool:
    """Whether a node is known not to be one of Apache Kafka, whose registration has no start time."""
    broker = view.broker(node_id)
    return node_id == view.config.node_id or (broker is not None and broker.start_time_ms > 0)


def _check_existence(view: View, resource_type: int, name: str) -> None:
    """Raises an error if the topic or the node does not exist."""
    if resource_type == ConfigResourceType.TOPIC:
        if name not in view.image.topics.by_name:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource_type == ConfigResourceType.BROKER and name:
        node_id = parse_node_id(name)
        if node_id is None or (
            view.broker(node_id) is None
            and node_id not in view.voter_ids
            and node_id not in view.image.cluster.controllers
            and node_id != view.config.node_id
        ):
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"No node with id {node_id} found.",
                remedy=view.broker_states(),
            )


def _records(view: View, resource_type: int, name: str, changes: Mapping[str, str | None]) -> list[Data]:
    """The records of the changes."""
    records: list[Data] = [
        ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        for key, value in changes.items()
    ]
    if view.elr_enabled and MIN_ISR in changes:
        records.append(ClearElrRecord(topic_name=name if resource_type == ConfigResourceType.TOPIC else ""))
    return records


def _check_keys(names: list[str]) -> None:
    """Raises INVALID_REQUEST if a key is named twice."""
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def _check_resource_type(resource_type: int) -> None:
    """Raises an error for a resource type that the controller does not store."""
    if resource_type not in _KNOWN_TYPES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {resource_type}.")
    if resource_type == ConfigResourceType.BROKER_LOGGER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource_type}.")
