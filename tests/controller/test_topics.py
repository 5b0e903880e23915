"""CreateTopics, DeleteTopics and CreatePartitions: errors, the records and their order, responses."""

from __future__ import annotations

from typing import Any

import pytest

from quorate.controller.handlers.create_partitions import create_partitions
from quorate.controller.handlers.create_topics import create_topics
from quorate.controller.handlers.delete_topics import delete_topics
from quorate.controller.topic_names import Collisions, invalid_reason
from quorate.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.create_partitions import CreatePartitionsRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.uuids import ZERO_UUID

from .support import Cluster, directory, uid

Assignment = CreateTopicsRequest.CreatableReplicaAssignment
Config = CreateTopicsRequest.CreatableTopicConfig


def topic(name: str = "t", **changes: Any) -> CreateTopicsRequest.CreatableTopic:
    fields: dict[str, Any] = {"name": name, "num_partitions": 1, "replication_factor": 1}
    fields.update(changes)
    return CreateTopicsRequest.CreatableTopic(**fields)


def assigned(*replicas: list[int], **changes: Any) -> CreateTopicsRequest.CreatableTopic:
    assignments = [Assignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)]
    return topic(**{"num_partitions": -1, "replication_factor": -1, "assignments": assignments, **changes})


def create(
    cluster: Cluster, *topics: CreateTopicsRequest.CreatableTopic, version: int | None = None, **changes: Any
) -> Any:
    return cluster.run(create_topics, CreateTopicsRequest(topics=list(topics), **changes), version)


def code_of(result: Any, index: int = 0) -> ErrorCode:
    return ErrorCode(result.response.topics[index].error_code)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("old_topic"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("old.topic"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (topic(num_partitions=0), ErrorCode.INVALID_PARTITIONS),
        (topic(num_partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (topic(replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(replication_factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(replication_factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(configs=[Config(name="retention.ms", value=None)]), ErrorCode.INVALID_CONFIG),
        (topic(configs=[Config(name="retention.ms", value="soon")]), ErrorCode.INVALID_CONFIG),
        (topic(configs=[Config(name="no.such.key", value="1")]), ErrorCode.INVALID_CONFIG),
        (
            topic(
                configs=[
                    Config(name="min.compaction.lag.ms", value="20"),
                    Config(name="max.compaction.lag.ms", value="10"),
                ]
            ),
            ErrorCode.INVALID_CONFIG,
        ),
        (assigned([1], replication_factor=1), ErrorCode.INVALID_REQUEST),
        (assigned([1], num_partitions=1), ErrorCode.INVALID_REQUEST),
        (assigned([]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([1, 9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([1, 2], [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([3]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            topic(
                num_partitions=-1,
                replication_factor=-1,
                assignments=[Assignment(partition_index=1, broker_ids=[1])],
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            topic(
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    Assignment(partition_index=0, broker_ids=[1]),
                    Assignment(partition_index=0, broker_ids=[2]),
                ],
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_topics_that_are_refused(wanted: CreateTopicsRequest.CreatableTopic, code: ErrorCode) -> None:
    cluster = Cluster().brokers(1, 2).brokers(3, fenced=True)
    cluster.topic("old.topic", [1])
    result = create(cluster, wanted)
    assert (code_of(result), result.records) == (code, [])
    assert result.response.topics[0].error_message


STATES = "Brokers active: 1, 2; fenced: 3; in controlled shutdown: 4."


@pytest.mark.parametrize(
    ("wanted", "remedy"),
    [
        (topic(replication_factor=4), STATES),
        (assigned([9]), STATES),
        (assigned([3, 4]), STATES),
    ],
)
def test_a_refusal_for_want_of_brokers_names_the_brokers_and_their_states(
    wanted: CreateTopicsRequest.CreatableTopic, remedy: str
) -> None:
    cluster = Cluster().brokers(1, 2, 4).brokers(3, fenced=True).shutting_down(4)
    assert create(cluster, wanted).response.topics[0].error_message.endswith(remedy)


def test_a_refusal_without_any_broker_says_so() -> None:
    message = create(Cluster(), topic()).response.topics[0].error_message
    assert message.endswith("No broker is registered.")


def test_the_states_of_many_brokers_are_cut_in_a_message() -> None:
    cluster = Cluster().brokers(*range(1, 31))
    message = create(cluster, topic(replication_factor=31)).response.topics[0].error_message
    assert message.endswith("Brokers active: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 20 more.")


def test_a_topic_is_its_name_then_its_configuration_then_its_partitions() -> None:
    cluster = Cluster().brokers(1, 2, 3)
    result = create(
        cluster,
        topic(num_partitions=2, replication_factor=2, configs=[Config(name="retention.ms", value="5")]),
    )
    assert [type(record) for record in result.records] == [
        TopicRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    assert result.atomic
    partition = cluster.partition("t", 1)
    assert (partition.isr, partition.leader, partition.leader_epoch) == (
        partition.replicas,
        partition.replicas[0],
        0,
    )
    assert partition.directories == tuple(directory(replica) for replica in partition.replicas)
    assert dict(cluster.image.configs.topic("t")) == {"retention.ms": "5"}


def test_defaults_come_from_the_controllers_configuration() -> None:
    cluster = Cluster(num_partitions=4, default_replication_factor=2).brokers(1, 2, 3)
    result = create(cluster, topic(num_partitions=-1, replication_factor=-1))
    assert (result.response.topics[0].num_partitions, result.response.topics[0].replication_factor) == (4, 2)
    assert len(cluster.image.topics.by_name["t"].partitions) == 4


def test_fenced_replicas_are_placed_but_not_in_sync() -> None:
    cluster = Cluster().brokers(1, 2).brokers(3, fenced=True)
    create(cluster, assigned([3, 2, 1]))
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((3, 2, 1), (2, 1), 2)


@pytest.mark.parametrize(
    ("level", "directories", "expected"),
    [(17, 1, (directory(1),)), (17, 2, (uid(1),)), (14, 1, (bytes(16),))],
)
def test_directories_of_new_replicas(level: int, directories: int, expected: tuple[bytes, ...]) -> None:
    cluster = Cluster(level).brokers(1, directories=directories)
    create(cluster, topic())
    assert cluster.partition("t").directories == expected


def test_validate_only_writes_nothing_and_gives_the_same_response() -> None:
    result = create(
        Cluster().brokers(1), topic(num_partitions=3), topic("u", replication_factor=5), validate_only=True
    )
    assert result.records == []
    assert [ErrorCode(answer.error_code) for answer in result.response.topics] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    ]
    assert result.response.topics[0].num_partitions == 3


def test_a_name_given_twice_is_refused_once_and_the_others_are_created() -> None:
    cluster = Cluster().brokers(1)
    result = create(cluster, topic("a"), topic("b"), topic("a"))
    assert [(answer.name, answer.error_code) for answer in result.response.topics] == [
        ("b", ErrorCode.NONE),
        ("a", ErrorCode.INVALID_REQUEST),
    ]
    assert set(cluster.image.topics.by_name) == {"b"}


def test_more_than_ten_thousand_partitions_in_one_request_are_refused() -> None:
    with pytest.raises(KafkaError) as raised:
        create(Cluster().brokers(1), topic("a", num_partitions=6000), topic("b", num_partitions=6000))
    assert raised.value.code == ErrorCode.POLICY_VIOLATION


def test_a_topic_whose_records_exceed_one_batch_is_refused() -> None:
    result = create(Cluster().brokers(1), topic(num_partitions=10_000))
    assert (code_of(result), result.records) == (ErrorCode.POLICY_VIOLATION, [])


def test_the_answer_has_the_effective_configuration_from_version_5_on() -> None:
    cluster = Cluster(static={"log.retention.hours": "2", "compression.type": "lz4"}).brokers(1)
    cluster.apply(
        [ConfigRecord(resource_type=4, resource_name="", name="log.segment.bytes", value="1048576")]
    )
    wanted = topic(configs=[Config(name="cleanup.policy", value="compact")])
    configs = {c.name: (c.value, c.config_source) for c in create(cluster, wanted).response.topics[0].configs}
    assert configs["cleanup.policy"] == ("compact", 1)
    assert configs["segment.bytes"] == ("1048576", 3)
    assert configs["retention.ms"] == ("7200000", 4)
    assert configs["compression.type"] == ("lz4", 4)
    assert configs["flush.ms"] == ("9223372036854775807", 5)
    assert list(configs) == sorted(configs)
    assert create(cluster, topic("u"), version=4).response.topics[0].configs in ([], None)


def test_a_topic_with_its_own_min_insync_replicas_clears_eligible_leader_replicas() -> None:
    result = create(
        Cluster().elr().brokers(1), topic(configs=[Config(name="min.insync.replicas", value="1")])
    )
    assert [type(record) for record in result.records] == [
        TopicRecord,
        ConfigRecord,
        ClearElrRecord,
        PartitionRecord,
    ]


def test_ids_are_random_and_reproducible() -> None:
    ids = [create(Cluster().brokers(1), topic("a"), topic("b")).response.topics for _ in range(2)]
    assert ids[0][0].topic_id == ids[1][0].topic_id != ids[0][1].topic_id


@pytest.mark.parametrize(("name", "found"), [("a.b", "a_b"), ("a_b", "a_b"), ("ab", None), ("a.b.c", None)])
def test_collisions(name: str, found: str | None) -> None:
    assert Collisions({"a_b": 1}).find(name) == found


def test_collisions_of_names_with_many_separators() -> None:
    existing = {"a.b.c.d.e.f.g.h": 1}
    assert Collisions(existing).find("a_b_c_d_e_f_g_h") == "a.b.c.d.e.f.g.h"
    assert Collisions(existing).find("a_b_c_d_e_f_g_i") is None


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249])
def test_legal_names(name: str) -> None:
    assert invalid_reason(name) is None


# -- DeleteTopics


def deleted(
    cluster: Cluster, version: int = 6, *, names: list[str] | None = None, states: Any = ()
) -> dict[Any, int]:
    request = DeleteTopicsRequest(
        topic_names=names or [],
        topics=[
            DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states
        ],
    )
    result = cluster.run(delete_topics, request, version)
    return {
        (answer.name, answer.topic_id): ErrorCode(answer.error_code) for answer in result.response.responses
    }


def test_deleting_by_name_and_by_id() -> None:
    cluster = Cluster().brokers(1)
    a, b = cluster.topic("a", [1]), cluster.topic("b", [1])
    cluster.apply([ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="1")])
    assert deleted(cluster, states=[("a", ZERO_UUID), (None, b)]) == {("a", a): 0, ("b", b): 0}
    assert len(cluster.image.topics.by_id) == 0
    assert dict(cluster.image.configs.topic("a")) == {}


def test_deleting_by_the_old_field() -> None:
    cluster = Cluster().brokers(1)
    a = cluster.topic("a", [1])
    assert deleted(cluster, 5, names=["a", "zzz"]) == {
        ("a", a): 0,
        ("zzz", ZERO_UUID): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_deletions_that_are_refused() -> None:
    cluster = Cluster().brokers(1)
    a, b, c = cluster.topic("a", [1]), cluster.topic("b", [1]), cluster.topic("c", [1])
    states = [
        (None, ZERO_UUID),
        ("a", a),
        ("b", ZERO_UUID),
        ("b", ZERO_UUID),
        (None, uid(99)),
        (None, c),
        ("c", ZERO_UUID),
    ]
    assert deleted(cluster, states=states) == {
        (None, ZERO_UUID): ErrorCode.INVALID_REQUEST,
        ("a", a): ErrorCode.INVALID_REQUEST,
        ("b", ZERO_UUID): ErrorCode.INVALID_REQUEST,
        (None, uid(99)): ErrorCode.UNKNOWN_TOPIC_ID,
        ("c", c): ErrorCode.INVALID_REQUEST,
    }
    assert set(cluster.image.topics.by_id) == {a, b, c}


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (6, ErrorCode.TOPIC_DELETION_DISABLED)]
)
def test_deletion_can_be_switched_off(version: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        deleted(Cluster(delete_topic_enable=False), version, names=["a"])
    assert raised.value.code == code


def test_deleting_writes_one_record_for_each_topic() -> None:
    cluster = Cluster().brokers(1)
    cluster.topic("a", [1], [1], [1])
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="a")])
    assert [type(record) for record in cluster.run(delete_topics, request).records] == [RemoveTopicRecord]


# -- CreatePartitions


def add(
    cluster: Cluster, count: int, assignments: list[list[int]] | None = None, name: str = "t", **changes: Any
) -> Any:
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
    )
    return cluster.run(create_partitions, CreatePartitionsRequest(topics=[wanted], **changes))


@pytest.mark.parametrize(
    ("count", "assignments", "name", "code"),
    [
        (3, None, "zzz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, None, "t", ErrorCode.INVALID_PARTITIONS),
        (1, None, "t", ErrorCode.INVALID_PARTITIONS),
        (4, [[1, 2]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 1]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 9]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[3, 4]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_additions_that_are_refused(
    count: int, assignments: list[list[int]] | None, name: str, code: ErrorCode
) -> None:
    cluster = Cluster().brokers(1, 2).brokers(3, 4, fenced=True)
    cluster.topic("t", [1, 2], [2, 1])
    result = add(cluster, count, assignments, name)
    assert (result.response.results[0].error_code, result.records) == (code, [])


def test_added_partitions_have_the_replication_factor_of_the_first() -> None:
    cluster = Cluster().brokers(1, 2, 3)
    cluster.topic("t", [1, 2])
    assert add(cluster, 4, validate_only=True).records == []
    assert len(add(cluster, 4).records) == 3
    assert [len(cluster.partition("t", index).replicas) for index in range(4)] == [2, 2, 2, 2]


def test_added_partitions_where_they_are_assigned() -> None:
    cluster = Cluster().brokers(1, 2).brokers(3, fenced=True)
    cluster.topic("t", [1, 2])
    add(cluster, 2, [[3, 2]])
    assert (cluster.partition("t", 1).replicas, cluster.partition("t", 1).isr) == ((3, 2), (2,))


def test_a_topic_named_twice_is_refused() -> None:
    cluster = Cluster().brokers(1)
    cluster.topic("t", [1])
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2, assignments=None)
    result = cluster.run(create_partitions, CreatePartitionsRequest(topics=[wanted, wanted]))
    assert [answer.error_code for answer in result.response.results] == [ErrorCode.INVALID_REQUEST]
