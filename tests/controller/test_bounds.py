"""The cost of one request for the active controller is limited, or proportional to the size of the
request.

The cost is counted in function calls, which do not depend on the machine. One turn of the event loop may
make about as many calls as a change of ten thousand records. A request that needs more is rejected
before the work begins, or handled in portions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from quorate.controller.handlers.alter_partition_reassignments import alter_partition_reassignments
from quorate.controller.handlers.alter_user_scram_credentials import alter_user_scram_credentials
from quorate.controller.handlers.assign_replicas_to_dirs import assign_replicas_to_dirs
from quorate.controller.handlers.create_acls import create_acls
from quorate.controller.handlers.create_partitions import create_partitions
from quorate.controller.handlers.create_topics import create_topics
from quorate.controller.handlers.delete_acls import delete_acls
from quorate.controller.handlers.describe_configs import describe_configs
from quorate.controller.handlers.elect_leaders import elect_leaders
from quorate.controller.handlers.incremental_alter_configs import incremental_alter_configs
from quorate.controller.handlers.list_partition_reassignments import list_partition_reassignments
from quorate.controller.handlers.update_features import update_features
from quorate.controller.replication.broker_changes import CHANGES_PER_TURN, VISITS_PER_TURN
from quorate.metadata.records import (
    AccessControlEntryRecord,
    ConfigRecord,
    PartitionChangeRecord,
)
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from quorate.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from quorate.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from quorate.protocol.messages.create_acls import CreateAclsRequest
from quorate.protocol.messages.create_partitions import CreatePartitionsRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.delete_acls import DeleteAclsRequest
from quorate.protocol.messages.describe_configs import DescribeConfigsRequest
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from quorate.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from quorate.protocol.messages.update_features import UpdateFeaturesRequest

from .support import Cluster, directory, uid

LARGEST = 2**31 - 1
TOPIC, BROKER, CLIENT_METRICS = 2, 4, 16
APPEND, SUBTRACT = 2, 3


def counted(call: Callable[[], Any]) -> tuple[Any, int]:
    """The result or the exception of a call, and the number of functions that it calls, including
    built-in ones."""
    calls = 0

    def see(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        outcome = call()
    except KafkaError as error:
        outcome = error
    finally:
        sys.setprofile(None)
    return outcome, calls


def cost(cluster: Cluster, handler: Any, request: Any) -> tuple[Any, int]:
    """The result or the exception of one turn of a handler, and the number of calls."""
    view, context = cluster.view, cluster.ctx(request.MAX_VERSION)
    return counted(lambda: handler(view, request, context))


def in_turns(cluster: Cluster, handler: Any, request: Any) -> tuple[Any, list[int]]:
    """The last result of a handler that takes several turns, and the number of records of each turn."""
    continuation, written = None, []
    while True:
        context = cluster.ctx(request.MAX_VERSION)
        object.__setattr__(context, "continuation", continuation)
        result = handler(cluster.view, request, context)
        cluster.apply(result.records)
        written.append(len(result.records))
        continuation = result.continuation
        if continuation is None:
            return result, written


def with_topic(partitions: int, brokers: tuple[int, ...] = (1, 2)) -> Cluster:
    """A cluster with topic t, led by the last of its brokers."""
    cluster = Cluster().brokers(*brokers)
    cluster.topic("t", *([list(brokers)] * partitions), leader=brokers[-1])
    return cluster


# -- numbers: a few bytes of request


def add_partitions(count: int) -> CreatePartitionsRequest:
    make = CreatePartitionsRequest.CreatePartitionsTopic
    return CreatePartitionsRequest(topics=[make(name="t", count=count, assignments=None)])


def new_topic(count: int) -> CreateTopicsRequest:
    make = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(topics=[make(name="new", num_partitions=count, replication_factor=1)])


def new_topic_with_factor(factor: int) -> CreateTopicsRequest:
    make = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[make(name="new", num_partitions=1, replication_factor=min(factor, 32_767))]
    )


def with_iterations(iterations: int) -> AlterUserScramCredentialsRequest:
    make = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    one = make(name="u", mechanism=1, iterations=iterations, salt=b"s", salted_password=b"p")
    return AlterUserScramCredentialsRequest(upsertions=[one])


@pytest.mark.parametrize(
    ("handler", "request_of"),
    [
        (create_partitions, add_partitions),
        (create_topics, new_topic),
        (create_topics, new_topic_with_factor),
        (alter_user_scram_credentials, with_iterations),
    ],
)
def test_the_cost_of_rejecting_a_number_does_not_depend_on_its_size(
    handler: Any, request_of: Callable[[int], Any]
) -> None:
    cluster = with_topic(3)
    cost(cluster, handler, request_of(LARGEST))  # imports on first use do not count
    _, small = cost(cluster, handler, request_of(20_000))
    outcome, large = cost(cluster, handler, request_of(LARGEST))
    assert (small, large <= small + 5) == (small, True)
    assert small < 500
    assert isinstance(outcome, KafkaError) or not outcome.records


def test_the_limit_of_new_partitions_applies_to_the_sum_of_all_topics() -> None:
    cluster = Cluster().brokers(1)
    for name in ("a", "b", "c"):
        cluster.topic(name, [1])
    make = CreatePartitionsRequest.CreatePartitionsTopic

    def asked(a: int, b: int) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(
            topics=[make(name="a", count=a, assignments=None), make(name="b", count=b, assignments=None)]
        )

    outcome, calls = cost(cluster, create_partitions, asked(5_001, 5_002))
    assert isinstance(outcome, KafkaError)
    assert (outcome.code, calls < 500) == (ErrorCode.POLICY_VIOLATION, True)
    outcome, _ = cost(cluster, create_partitions, asked(5_001, 5_001))
    assert [len(outcome.records), {topic.error_code for topic in outcome.response.results}] == [
        10_000,
        {ErrorCode.NONE},
    ]


@pytest.mark.parametrize(
    ("count", "code"),
    [(LARGEST, ErrorCode.POLICY_VIOLATION), (10_001, ErrorCode.INVALID_REPLICA_ASSIGNMENT)],
)
def test_the_partition_limit_is_checked_before_the_number_of_assignments(count: int, code: ErrorCode) -> None:
    """As Kafka 4.4.0 does, by the topic's new size alone."""
    assignment = CreatePartitionsRequest.CreatePartitionsAssignment
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(
        name="t", count=count, assignments=[assignment(broker_ids=[1])]
    )
    outcome, calls = cost(with_topic(3), create_partitions, CreatePartitionsRequest(topics=[wanted]))
    found = outcome.code if isinstance(outcome, KafkaError) else outcome.response.results[0].error_code
    assert (found, calls < 500) == (code, True)


# -- everything that there is: no byte of request for each


def test_an_election_of_all_partitions_is_made_in_portions() -> None:
    count = 2 * CHANGES_PER_TURN + 10
    cluster = with_topic(count)
    request = ElectLeadersRequest(election_type=0, topic_partitions=None)
    result, written = in_turns(cluster, elect_leaders, request)
    assert written == [CHANGES_PER_TURN, CHANGES_PER_TURN, 10]
    (answered,) = result.response.replica_election_results
    assert [part.partition_id for part in answered.partition_result] == list(range(count))
    assert {part.error_code for part in answered.partition_result} == {ErrorCode.NONE}
    assert {partition.leader for partition in cluster.image.topics.by_name["t"].partitions} == {1}


@pytest.mark.parametrize("everything", [True, False])
def test_partitions_that_need_no_election_are_visited_in_portions(everything: bool) -> None:
    count = VISITS_PER_TURN + 10
    cluster = Cluster().brokers(1)
    cluster.topic("t", *([[1]] * count))
    asked = (
        None
        if everything
        else [ElectLeadersRequest.TopicPartitions(topic="t", partitions=list(range(count)))]
    )
    result, written = in_turns(
        cluster, elect_leaders, ElectLeadersRequest(election_type=0, topic_partitions=asked)
    )
    assert written == [0, 0]
    (answered,) = result.response.replica_election_results
    assert len(answered.partition_result) == (0 if everything else count)


def test_elections_that_find_no_leader_count_as_changes() -> None:
    count = CHANGES_PER_TURN + 10
    cluster = with_topic(count).fence(1)
    result, written = in_turns(
        cluster, elect_leaders, ElectLeadersRequest(election_type=0, topic_partitions=None)
    )
    assert written == [0, 0]
    codes = {part.error_code for part in result.response.replica_election_results[0].partition_result}
    assert codes == {ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_reassignments_are_listed_in_portions() -> None:
    count = 2 * VISITS_PER_TURN + 1
    cluster = with_topic(count)
    topic_id = cluster.image.topics.by_name["t"].id
    moving = (7, VISITS_PER_TURN + 7)
    cluster.apply(
        [
            PartitionChangeRecord(topic_id=topic_id, partition_id=index, removing_replicas=[2])
            for index in moving
        ]
    )
    result, written = in_turns(
        cluster, list_partition_reassignments, ListPartitionReassignmentsRequest(topics=None)
    )
    assert len(written) == 3
    (answered,) = result.response.topics
    assert [part.partition_index for part in answered.partitions] == list(moving)


def test_a_later_portion_of_listed_reassignments_takes_no_longer_than_the_first() -> None:
    """A cursor that each turn wraps once more would make every later step slower."""
    cluster = with_topic(3 * VISITS_PER_TURN)
    cursors = []
    continuation = None
    for _ in range(2):
        context = cluster.ctx(0)
        object.__setattr__(context, "continuation", continuation)
        request = ListPartitionReassignmentsRequest(topics=None)
        continuation = list_partition_reassignments(cluster.view, request, context).continuation
        assert continuation is not None
        cursors.append(continuation.cursor[1])
    assert cursors[0] is cursors[1]


# -- lists: in proportion to the request


def test_replicas_are_assigned_to_directories_in_portions() -> None:
    count = CHANGES_PER_TURN + 10
    cluster = Cluster().brokers(1, directories=2)
    cluster.topic("t", *([[1]] * count))
    make = AssignReplicasToDirsRequest
    topic = make.TopicData(
        topic_id=cluster.image.topics.by_name["t"].id,
        partitions=[make.PartitionData(partition_index=n) for n in range(count)],
    )
    request = make(
        broker_id=1, broker_epoch=101, directories=[make.DirectoryData(id=directory(1, 1), topics=[topic])]
    )
    result, written = in_turns(cluster, assign_replicas_to_dirs, request)
    assert written == [CHANGES_PER_TURN, 10]
    assert len(result.response.directories[0].topics[0].partitions) == count
    assert {partition.directories for partition in cluster.image.topics.by_name["t"].partitions} == {
        (directory(1, 1),)
    }


@pytest.mark.slow
def test_no_more_reassignments_are_computed_than_a_request_may_have() -> None:
    cluster = Cluster().brokers(1, 2)
    cluster.topic("t", *([[1]] * 12_000))
    make = AlterPartitionReassignmentsRequest

    def asked(count: int) -> Any:
        moved = [make.ReassignablePartition(partition_index=index, replicas=[2]) for index in range(count)]
        return make(topics=[make.ReassignableTopic(name="t", partitions=moved)])

    outcome, calls = cost(cluster, alter_partition_reassignments, asked(10_001))
    further, more_calls = cost(cluster, alter_partition_reassignments, asked(12_000))
    assert (outcome.code, further.code) == (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION)
    assert more_calls < calls + 100


def test_a_partition_is_reassigned_once_in_a_request() -> None:
    """Two records that are computed independently would leave a list of directories that does not match
    the replicas."""
    cluster = Cluster().brokers(1, 2, 3, directories=2)
    cluster.topic("t", [1, 2])
    make = AlterPartitionReassignmentsRequest
    moves = [
        make.ReassignablePartition(partition_index=0, replicas=replicas)
        for replicas in ([3, 1, 2], [2, 1], [3, 1, 2])
    ]
    result = cluster.run(
        alter_partition_reassignments, make(topics=[make.ReassignableTopic(name="t", partitions=moves)])
    )
    codes = [part.error_code for part in result.response.responses[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert len(result.records) == 1
    partition = cluster.partition("t")
    assert (partition.replicas, len(partition.directories)) == ((3, 1, 2), 3)


def with_acls(count: int) -> Cluster:
    cluster = Cluster()
    cluster.apply(
        [
            AccessControlEntryRecord(
                id=uid(index + 1),
                resource_type=TOPIC,
                resource_name=f"topic-{index}",
                pattern_type=3,
                principal=f"User:{index % 7}",
                host="*",
                operation=3,
                permission_type=3,
            )
            for index in range(count)
        ]
    )
    return cluster


def acl_filter(**changes: Any) -> Any:
    fields: dict[str, Any] = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DeleteAclsRequest.DeleteAclsFilter(**{**fields, **changes})


@pytest.mark.parametrize("pattern_type", [1, 2, 3])
def test_filters_with_a_resource_name_are_not_compared_with_every_acl(pattern_type: int) -> None:
    cluster = with_acls(2_000)
    filters = [
        acl_filter(resource_name_filter=f"topic-{index}", pattern_type_filter=pattern_type)
        for index in range(1_000)
    ]
    outcome, calls = cost(cluster, delete_acls, DeleteAclsRequest(filters=filters))
    assert (
        len(outcome.records),
        [len(result.matching_acls) for result in outcome.response.filter_results],
    ) == (
        1_000,
        [1] * 1_000,
    )
    assert calls < 200_000


def test_the_same_filter_many_times_is_applied_once() -> None:
    cluster = with_acls(2_000)
    outcome, calls = cost(
        cluster, delete_acls, DeleteAclsRequest(filters=[acl_filter(host_filter="nowhere")] * 5_000)
    )
    assert (outcome.records, len(outcome.response.filter_results)) == ([], 5_000)
    assert calls < 200_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "hosts", [None, "*"], ids=["all different, none of which matches", "all the same, which match everything"]
)
def test_the_comparisons_and_results_of_filters_are_limited(hosts: str | None) -> None:
    cluster = with_acls(2_000)
    filters = [acl_filter(host_filter=hosts or f"10.0.{index >> 8}.{index & 255}") for index in range(5_000)]
    outcome, calls = cost(cluster, delete_acls, DeleteAclsRequest(filters=filters))
    assert outcome.code == ErrorCode.INVALID_REQUEST
    assert calls < 5_000_000


def test_an_acl_is_created_without_computing_the_identity_of_every_other() -> None:
    creation = CreateAclsRequest.AclCreation(
        resource_type=TOPIC,
        resource_name="new",
        resource_pattern_type=3,
        principal="User:x",
        host="*",
        operation=3,
        permission_type=3,
    )
    outcome, calls = cost(with_acls(5_000), create_acls, CreateAclsRequest(creations=[creation]))
    assert (len(outcome.records), calls < 500) == (1, True)


def test_a_feature_that_is_named_many_times_is_checked_once() -> None:
    cluster = Cluster().brokers(*range(100, 200))
    key = UpdateFeaturesRequest.FeatureUpdateKey
    updates = [key(feature="metadata.version", max_version_level=33)] * 1_000
    outcome, calls = cost(cluster, update_features, UpdateFeaturesRequest(feature_updates=updates))
    assert (outcome.response.error_code, calls < 10_000) == (ErrorCode.NONE, True)


def test_what_blocks_an_upgrade_is_looked_up_for_a_limited_number_of_features() -> None:
    cluster = Cluster().brokers(*range(100, 200))
    key = UpdateFeaturesRequest.FeatureUpdateKey
    updates = [key(feature=f"unknown.{index}", max_version_level=1) for index in range(1_000)]
    outcome, calls = cost(cluster, update_features, UpdateFeaturesRequest(feature_updates=updates))
    assert (outcome.response.error_code, calls < 20_000) == (ErrorCode.INVALID_UPDATE_VERSION, True)


def test_the_states_of_all_brokers_are_listed_once_for_a_request() -> None:
    cluster = Cluster().brokers(*range(1_000))
    make = CreateTopicsRequest.CreatableTopic
    wanted = [make(name=f"t{index}", num_partitions=1, replication_factor=2_000) for index in range(1_000)]
    outcome, calls = cost(cluster, create_topics, CreateTopicsRequest(topics=wanted))
    assert "Brokers active: 0, 1, 2" in outcome.response.topics[-1].error_message
    assert calls < 100_000


def test_many_names_that_may_collide_are_compared_with_all_topics() -> None:
    make = CreateTopicsRequest.CreatableTopic
    wanted = [
        make(name=f"a_b_c_d_e_f_{index}", num_partitions=0, replication_factor=1) for index in range(1_000)
    ]
    outcome, calls = cost(with_topic(1), create_topics, CreateTopicsRequest(topics=wanted))
    assert len(outcome.response.topics) == 1_000
    assert calls < 40_000


@pytest.mark.parametrize("racks", [1, 400])
def test_a_topic_is_placed_without_a_list_of_every_broker(racks: int) -> None:
    cluster = Cluster()
    for broker_id in range(400):
        cluster.brokers(broker_id, rack=str(broker_id % racks))
    make = CreateTopicsRequest.CreatableTopic

    def calls_for(topics: int) -> int:
        wanted = [make(name=f"t{index}", num_partitions=1, replication_factor=3) for index in range(topics)]
        outcome, calls = cost(cluster, create_topics, CreateTopicsRequest(topics=wanted))
        assert len(outcome.records) == 2 * topics
        return calls

    assert calls_for(110) - calls_for(10) < 100 * 150


# -- values


def alter(kind: int, name: str, key: str, value: str, operation: int = 0) -> IncrementalAlterConfigsRequest:
    make = IncrementalAlterConfigsRequest
    config = make.AlterableConfig(name=key, config_operation=operation, value=value)
    return make(
        resources=[make.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])]
    )


@pytest.mark.timeout(20)
@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_a_list_is_changed_in_time_proportional_to_its_length(operation: int) -> None:
    """A comparison of all pairs of items would take minutes."""
    cluster = with_topic(1)
    present = ",".join(f"i{index}" for index in range(5_000))
    cluster.apply(
        [ConfigRecord(resource_type=TOPIC, resource_name="t", name="cleanup.policy", value=present)]
    )
    items = ",".join(f"item{index}" for index in range(500_000))
    outcome, _ = cost(
        cluster, incremental_alter_configs, alter(TOPIC, "t", "cleanup.policy", items, operation)
    )
    assert (
        outcome.response.responses[0].error_code == ErrorCode.INVALID_CONFIG
    )  # these are no policies of a topic


def test_each_subtracted_item_removes_one_occurrence() -> None:
    cluster = with_topic(1)
    cluster.apply(
        [
            ConfigRecord(
                resource_type=TOPIC, resource_name="t", name="cleanup.policy", value="delete,compact,delete"
            )
        ]
    )
    cluster.run(incremental_alter_configs, alter(TOPIC, "t", "cleanup.policy", "delete", SUBTRACT))
    assert cluster.image.configs.topic("t")["cleanup.policy"] == "compact,delete"
    cluster.run(
        incremental_alter_configs, alter(TOPIC, "t", "cleanup.policy", "delete,delete,compact", APPEND)
    )
    assert cluster.image.configs.topic("t")["cleanup.policy"] == "compact,delete"


@pytest.mark.timeout(20)
def test_a_pattern_of_client_metrics_is_parsed_without_compilation() -> None:
    """The compilation of each of these character sets takes 16 ms, and the value has room for six
    thousand of them."""
    value = "client_id=(?i)" + "[\u0001-\uffff]" * 6_000
    outcome, _ = cost(Cluster(), incremental_alter_configs, alter(CLIENT_METRICS, "m", "match", value))
    assert outcome.response.responses[0].error_code == ErrorCode.NONE
    outcome, _ = cost(
        Cluster(), incremental_alter_configs, alter(CLIENT_METRICS, "m", "match", "client_id=(a")
    )
    assert outcome.response.responses[0].error_code == ErrorCode.INVALID_CONFIG


DIGITS = "9" * 5_000
"""More than Python turns into a number without being told to."""


@pytest.mark.parametrize(
    ("kind", "name", "key", "code"),
    [
        (TOPIC, "t", "retention.ms", ErrorCode.INVALID_CONFIG),
        (BROKER, "1", "log.retention.ms", ErrorCode.INVALID_CONFIG),
        (BROKER, DIGITS, "log.retention.ms", ErrorCode.INVALID_REQUEST),
        (BROKER, "2147483648", "log.retention.ms", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_number_of_thousands_of_digits_is_an_error_of_its_resource_only(
    kind: int, name: str, key: str, code: ErrorCode
) -> None:
    outcome, _ = cost(with_topic(1), incremental_alter_configs, alter(kind, name, key, DIGITS))
    assert outcome.response.responses[0].error_code == code


# -- answers


def test_a_repeated_resource_is_described_once() -> None:
    cluster = with_topic(1)
    make = DescribeConfigsRequest.DescribeConfigsResource
    resources = [make(resource_type=BROKER, resource_name="1", configuration_keys=None)] * 1_000
    resources.append(make(resource_type=BROKER, resource_name="1", configuration_keys=["log.retention.ms"]))
    request = DescribeConfigsRequest(resources=resources, include_documentation=True)
    response, calls = counted(lambda: describe_configs(cluster.image, request, cluster.config))
    assert [len(result.configs) > 1 for result in response.results] == [True, False]
    assert calls < 20_000


@pytest.mark.parametrize("name", [DIGITS, "2147483648"])
def test_a_broker_id_of_thousands_of_digits_is_an_unexpected_broker_id(name: str) -> None:
    cluster = with_topic(1)
    make = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[make(resource_type=BROKER, resource_name=name, configuration_keys=None)]
    )
    response, _ = counted(lambda: describe_configs(cluster.image, request, cluster.config))
    assert response.results[0].error_code == ErrorCode.INVALID_REQUEST
