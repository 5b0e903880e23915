"""Cordoned log directories (KIP-1066): heartbeats, placement, and changes of cordoned.log.dirs."""

from __future__ import annotations

from typing import Any

import pytest

from quorate.controller.changes.record_versions import version_of
from quorate.controller.handlers.alter_configs import alter_configs
from quorate.controller.handlers.alter_partition_reassignments import alter_partition_reassignments
from quorate.controller.handlers.broker_heartbeat import broker_heartbeat
from quorate.controller.handlers.create_partitions import create_partitions
from quorate.controller.handlers.create_topics import create_topics
from quorate.controller.handlers.incremental_alter_configs import incremental_alter_configs
from quorate.metadata.records import BrokerRegistrationChangeRecord, ConfigRecord
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.alter_configs import AlterConfigsRequest
from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.create_partitions import CreatePartitionsRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

from .support import Cluster, directory

BROKER = 4
SET, DELETE, APPEND = 0, 1, 2
KEY = "cordoned.log.dirs"
ALL_CORDONED = (
    "The manual partition assignment includes broker 2, but all its log directories are cordoned. "
    "Remove a directory from cordoned.log.dirs of the broker by kafka-configs."
)


def cordon(cluster: Cluster, broker_id: int, *numbers: int) -> Cluster:
    """Cordons directories of a broker by their numbers."""
    cordoned = [directory(broker_id, number) for number in numbers]
    cluster.apply(
        [
            BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=100 + broker_id, cordoned_log_dirs=cordoned
            )
        ]
    )
    return cluster


def beat(cluster: Cluster, cordoned: list[bytes] | None) -> list[Any]:
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=101, current_metadata_offset=10**6, cordoned_log_dirs=cordoned
    )
    return [
        record
        for record in cluster.run(broker_heartbeat, request).records
        if record.cordoned_log_dirs is not None
    ]


@pytest.mark.parametrize(
    ("stored", "sent", "written"),
    [
        (None, None, False),
        (None, [], True),
        ([], [], False),
        ([0], [0], False),
        ([0, 1], [1, 0], False),
        ([0], [0, 1], True),
        ([0, 1], [], True),
        ([0], None, False),
    ],
)
def test_a_heartbeat_that_names_other_directories_than_are_stored_writes_one_record(
    stored: list[int] | None, sent: list[int] | None, written: bool
) -> None:
    cluster = Cluster().brokers(1, directories=2)
    if stored is not None:
        cordon(cluster, 1, *stored)
    ids = None if sent is None else [directory(1, number) for number in sent]
    records = beat(cluster, ids)
    assert records == (
        [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=101, cordoned_log_dirs=ids)]
        if written
        else []
    )
    assert all(version_of(record, 33) == 3 for record in records)


def test_below_metadata_version_30_cordoned_directories_are_not_written() -> None:
    assert beat(Cluster(29).brokers(1, directories=2), [directory(1, 0)]) == []


def create(cluster: Cluster, factor: int, assignments: list[list[int]] | None = None) -> Any:
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=3, replication_factor=factor)
    if assignments is not None:
        make = CreateTopicsRequest.CreatableReplicaAssignment
        topic.num_partitions = topic.replication_factor = -1
        topic.assignments = [make(partition_index=i, broker_ids=ids) for i, ids in enumerate(assignments)]
    (answer,) = cluster.run(create_topics, CreateTopicsRequest(topics=[topic])).response.topics
    return answer.error_code, answer.error_message


def test_replicas_are_placed_on_brokers_with_a_directory_that_is_not_cordoned() -> None:
    cluster = cordon(cordon(Cluster().brokers(1, 2, 3, directories=2), 2, 0, 1), 3, 0)
    assert create(cluster, 2)[0] == ErrorCode.NONE
    assert {frozenset(p.replicas) for p in cluster.image.topics.by_name["t"].partitions} == {
        frozenset({1, 3})
    }
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=5, assignments=None)]
    )
    assert cluster.run(create_partitions, more).response.results[0].error_code == ErrorCode.NONE
    assert {frozenset(p.replicas) for p in cluster.image.topics.by_name["t"].partitions} == {
        frozenset({1, 3})
    }


@pytest.mark.parametrize(
    ("factor", "cordoned", "message"),
    [
        (
            2,
            [2],
            "The target replication factor of 2 cannot be reached because only 1 broker(s) are registered or "
            "some brokers have all their log directories cordoned.",
        ),
        (1, [1, 2], "All brokers are currently fenced, or have all their log directories cordoned."),
    ],
)
def test_a_topic_that_has_no_place_is_refused(factor: int, cordoned: list[int], message: str) -> None:
    cluster = Cluster().brokers(1, 2)
    for broker_id in cordoned:
        cordon(cluster, broker_id, 0)
    code, text = create(cluster, factor)
    assert (code, message in text) == (ErrorCode.INVALID_REPLICATION_FACTOR, True), text


def test_an_assignment_that_names_a_cordoned_broker_is_refused() -> None:
    cluster = cordon(Cluster().brokers(1, 2), 2, 0)
    assert create(cluster, -1, [[1, 2]]) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, ALL_CORDONED)


def test_a_reassignment_to_a_cordoned_broker_is_refused_even_if_it_has_the_replica_and_can_be_cancelled() -> (
    None
):
    cluster = Cluster().brokers(1, 2, 3)
    assert create(cluster, -1, [[1, 2]])[0] == ErrorCode.NONE

    def reassign(replicas: list[int] | None) -> tuple[int, str | None]:
        make = AlterPartitionReassignmentsRequest
        topic = make.ReassignableTopic(
            name="t", partitions=[make.ReassignablePartition(partition_index=0, replicas=replicas)]
        )
        (answer,) = cluster.run(alter_partition_reassignments, make(topics=[topic])).response.responses
        return answer.partitions[0].error_code, answer.partitions[0].error_message

    assert reassign([1, 3])[0] == ErrorCode.NONE
    cordon(cluster, 2, 0)
    assert reassign([3, 2]) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, ALL_CORDONED)
    assert reassign(None)[0] == ErrorCode.NONE


def alter(
    cluster: Cluster, operation: int, value: str | None, *, name: str = "1", **kw: Any
) -> tuple[int, str]:
    make = IncrementalAlterConfigsRequest
    resource = make.AlterConfigsResource(
        resource_type=BROKER,
        resource_name=name,
        configs=[make.AlterableConfig(name=KEY, config_operation=operation, value=value)],
    )
    (answer,) = cluster.run(incremental_alter_configs, make(resources=[resource]), **kw).response.responses
    return answer.error_code, answer.error_message or ""


@pytest.mark.parametrize(("operation", "value"), [(SET, "/a"), (SET, ""), (DELETE, None)])
@pytest.mark.parametrize("name", ["1", ""])
def test_below_metadata_version_30_the_key_is_neither_set_nor_deleted(
    operation: int, value: str | None, name: str
) -> None:
    code, text = alter(Cluster(29).brokers(1), operation, value, name=name, forwarded=True)
    assert code == ErrorCode.INVALID_CONFIG
    assert text.endswith("because it requires metadata.version >= 4.3-IV0")


@pytest.mark.parametrize(
    ("forwarded", "operation", "value", "code"),
    [
        (True, SET, "/c", ErrorCode.NONE),
        (True, APPEND, "/c", ErrorCode.NONE),
        (False, SET, "/c", ErrorCode.INVALID_CONFIG),
        (False, APPEND, "/c", ErrorCode.INVALID_CONFIG),
        (False, SET, "*", ErrorCode.INVALID_CONFIG),
        (False, SET, " /b ", ErrorCode.NONE),
        (False, SET, "/b , /a", ErrorCode.NONE),
        (False, SET, "", ErrorCode.NONE),
        (False, DELETE, None, ErrorCode.NONE),
    ],
)
def test_a_request_that_no_broker_has_checked_can_only_remove_entries(
    forwarded: bool, operation: int, value: str | None, code: ErrorCode
) -> None:
    cluster = Cluster().brokers(1)
    cluster.apply([ConfigRecord(resource_type=BROKER, resource_name="1", name=KEY, value="/a,/b")])
    assert alter(cluster, operation, value, forwarded=forwarded)[0] == code


@pytest.mark.parametrize(
    ("value", "code"), [("/a", ErrorCode.NONE), ("/c", ErrorCode.INVALID_CONFIG), (None, ErrorCode.NONE)]
)
def test_replacing_all_keys_of_a_broker_follows_the_same_rule(value: str | None, code: ErrorCode) -> None:
    cluster = Cluster().brokers(1)
    cluster.apply([ConfigRecord(resource_type=BROKER, resource_name="1", name=KEY, value="/a,/b")])
    configs = [] if value is None else [AlterConfigsRequest.AlterableConfig(name=KEY, value=value)]
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER, resource_name="1", configs=configs
    )
    result = cluster.run(alter_configs, AlterConfigsRequest(resources=[resource]))
    assert result.response.responses[0].error_code == code
