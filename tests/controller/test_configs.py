"""AlterConfigs, IncrementalAlterConfigs, DescribeConfigs and UpdateFeatures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from quorate.controller.handlers.alter_configs import alter_configs
from quorate.controller.handlers.config_changes import Operation
from quorate.controller.handlers.describe_cluster import describe_cluster
from quorate.controller.handlers.describe_configs import describe_configs
from quorate.controller.handlers.incremental_alter_configs import incremental_alter_configs
from quorate.controller.handlers.update_features import MAX_BLOCKERS, update_features
from quorate.metadata.image import MetadataImage
from quorate.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    RegisterControllerRecord,
)
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_configs import AlterConfigsRequest
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest
from quorate.protocol.messages.describe_configs import DescribeConfigsRequest
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from quorate.protocol.messages.update_features import UpdateFeaturesRequest

from .support import CLUSTER, Cluster, uid

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = Operation


def request(
    *resources: tuple[int, str, list[tuple[str, int, str | None]]], **changes: Any
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(
                        name=key, config_operation=operation, value=value
                    )
                    for key, operation, value in operations
                ],
            )
            for kind, name, operations in resources
        ],
        **changes,
    )


def alter(
    cluster: Cluster, kind: int, name: str, *operations: tuple[str, int, str | None], forwarded: bool = False
) -> ErrorCode:
    change = request((kind, name, list(operations)))
    result = cluster.run(incremental_alter_configs, change, forwarded=forwarded)
    return ErrorCode(result.response.responses[0].error_code)


def a_cluster(**config: Any) -> Cluster:
    cluster = Cluster(**config).brokers(1, 2)
    cluster.topic("t", [1])
    return cluster


@pytest.mark.parametrize(
    ("kind", "name", "operation", "code"),
    [
        (TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "a b", ("retention.ms", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "zzz", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "t", ("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, "-2"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", 7, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("remote.storage.enable", SET, "true"), ErrorCode.INVALID_CONFIG),
        (
            TOPIC,
            "t",
            ("leader.replication.throttled.replicas", SET, "0:1," * 10_000 + "0:1"),
            ErrorCode.INVALID_CONFIG,
        ),
        (BROKER, "x", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "-3", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "9", ("log.retention.ms", SET, "1"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "1", ("log.retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (METRICS, "", ("interval.ms", SET, "1000"), ErrorCode.INVALID_REQUEST),
        (METRICS, "m", ("no.such", SET, "1"), ErrorCode.INVALID_REQUEST),
        (METRICS, "m", ("interval.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        (77, "x", ("a", SET, "b"), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_changes_that_are_refused(
    kind: int, name: str, operation: tuple[str, int, str | None], code: ErrorCode
) -> None:
    cluster = a_cluster()
    offset = cluster.offset
    assert alter(cluster, kind, name, operation) == code
    assert cluster.offset == offset


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, SET, "compact", "compact"),
        ("compact", DELETE, None, None),
        (None, APPEND, "compact", "delete,compact"),  # to the default
        ("compact", APPEND, "delete", "compact,delete"),
        ("compact", APPEND, "compact", "compact"),
        ("compact,delete", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "delete", "compact"),
    ],
)
def test_operations_on_a_list(
    before: str | None, operation: int, value: str | None, after: str | None
) -> None:
    cluster = a_cluster()
    if before is not None:
        cluster.apply(
            [ConfigRecord(resource_type=TOPIC, resource_name="t", name="cleanup.policy", value=before)]
        )
    assert alter(cluster, TOPIC, "t", ("cleanup.policy", operation, value)) == ErrorCode.NONE
    assert cluster.image.configs.topic("t").get("cleanup.policy") == after


def test_an_unchanged_key_is_written_only_for_a_broker() -> None:
    cluster = a_cluster()
    for kind, name, key, records in ((TOPIC, "t", "retention.ms", 0), (BROKER, "1", "log.retention.ms", 1)):
        alter(cluster, kind, name, (key, SET, "5"))
        offset = cluster.offset
        alter(cluster, kind, name, (key, SET, "5"))
        assert cluster.offset - offset == records


def test_errors_are_reported_for_each_resource() -> None:
    cluster = a_cluster()
    wanted = request((TOPIC, "t", [("retention.ms", SET, "5")]), (TOPIC, "zzz", [("retention.ms", SET, "5")]))
    result = cluster.run(incremental_alter_configs, wanted)
    assert [answer.error_code for answer in result.response.responses] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert len(result.records) == 1


def test_a_resource_named_twice_and_a_key_named_twice_are_refused() -> None:
    cluster = a_cluster()
    one = (TOPIC, "t", [("retention.ms", SET, "5")])
    result = cluster.run(incremental_alter_configs, request(one, one))
    assert [answer.error_code for answer in result.response.responses] == [ErrorCode.INVALID_REQUEST]
    twice = ("retention.ms", SET, "5")
    assert alter(cluster, TOPIC, "t", twice, twice) == ErrorCode.INVALID_REQUEST


def test_validate_only_writes_nothing() -> None:
    cluster = a_cluster()
    wanted = request((TOPIC, "t", [("retention.ms", SET, "5")]), validate_only=True)
    assert cluster.run(incremental_alter_configs, wanted).records == []


def test_controllers_may_be_configured_by_their_ids() -> None:
    cluster = Cluster(node_id=1)
    assert alter(cluster, BROKER, "1", ("log.retention.ms", SET, "5")) == ErrorCode.NONE
    observer = ("7", ("log.retention.ms", SET, "5"))
    assert alter(cluster, BROKER, *observer) == ErrorCode.BROKER_ID_NOT_REGISTERED
    cluster.apply([RegisterControllerRecord(controller_id=7)])
    assert alter(cluster, BROKER, *observer) == ErrorCode.NONE


def test_altering_a_whole_resource_removes_what_is_not_named() -> None:
    cluster = a_cluster()
    alter(cluster, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "6"))
    wanted = AlterConfigsRequest(
        resources=[
            AlterConfigsRequest.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="t",
                configs=[AlterConfigsRequest.AlterableConfig(name="segment.ms", value="7")],
            )
        ]
    )
    result = cluster.run(alter_configs, wanted)
    assert result.response.responses[0].error_code == ErrorCode.NONE
    assert dict(cluster.image.configs.topic("t")) == {"segment.ms": "7"}


def test_with_eligible_leader_replicas_changes_of_the_minimum_are_restricted() -> None:
    cluster = a_cluster().elr()
    assert alter(cluster, BROKER, "1", ("min.insync.replicas", SET, "1")) == ErrorCode.INVALID_CONFIG
    assert alter(cluster, BROKER, "", ("min.insync.replicas", DELETE, None)) == ErrorCode.INVALID_CONFIG
    for kind, name, cleared in ((BROKER, "", ""), (TOPIC, "t", "t")):
        wanted = request((kind, name, [("min.insync.replicas", SET, "2")]))
        *_, last = cluster.run(incremental_alter_configs, wanted).records
        assert isinstance(last, ClearElrRecord)
        assert last.topic_name == cleared


# -- reading


def described(cluster: Cluster, kind: int, name: str, **changes: Any) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=changes.pop("keys", None)
    )
    wanted = DescribeConfigsRequest(resources=[resource], **changes)
    return describe_configs(cluster.image, wanted, cluster.config).results[0]


def test_a_topics_configuration_is_described_with_its_sources() -> None:
    cluster = a_cluster(static={"log.retention.ms": "9"})
    alter(cluster, TOPIC, "t", ("retention.ms", SET, "5"))
    alter(cluster, BROKER, "", ("log.segment.bytes", SET, "1048576"))
    result = described(cluster, TOPIC, "t", keys=["retention.ms", "segment.bytes"], include_synonyms=True)
    found = {
        c.name: (c.value, c.config_source, [(s.name, s.source) for s in c.synonyms]) for c in result.configs
    }
    assert found == {
        "retention.ms": (
            "5",
            1,
            [("retention.ms", 1), ("log.retention.ms", 4), ("log.retention.hours", 5)],
        ),
        "segment.bytes": ("1048576", 3, [("log.segment.bytes", 3), ("log.segment.bytes", 5)]),
    }


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", ErrorCode.INVALID_CONFIG),
        ("1", ErrorCode.INVALID_CONFIG),
        ("2", ErrorCode.INVALID_CONFIG),
        ("3", ErrorCode.NONE),
    ],
    ids=["all nodes", "this controller", "a broker of ours", "a broker of Apache Kafka"],
)
def test_a_key_without_an_effect_may_be_set_for_a_node_of_apache_kafka(name: str, code: ErrorCode) -> None:
    cluster = a_cluster().brokers(3)
    brokers = cluster.image.cluster.brokers
    ours = brokers.set(2, replace(brokers[2], start_time_ms=5))
    cluster.image = replace(cluster.image, cluster=replace(cluster.image.cluster, brokers=ours))
    assert alter(cluster, BROKER, name, ("num.io.threads", SET, "9")) == code
    assert alter(cluster, BROKER, name, ("num.io.threads", SET, "9"), forwarded=True) == ErrorCode.NONE
    assert alter(cluster, BROKER, name, ("num.io.threads", SET, "9")) == ErrorCode.NONE, "it is stored"


def test_secrets_are_not_described() -> None:
    cluster = a_cluster(static={"ssl.keystore.password": "hush"})
    (config,) = described(cluster, BROKER, "1", keys=["ssl.keystore.password"], include_synonyms=True).configs
    assert (config.value, config.is_sensitive, config.synonyms[0].value) == (None, True, None)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "zzz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (77, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_descriptions_that_are_refused(kind: int, name: str, code: ErrorCode) -> None:
    assert described(a_cluster(), kind, name).error_code == code


@pytest.mark.parametrize(
    ("kind", "name", "key"), [(GROUP, "g", "consumer.session.timeout.ms"), (METRICS, "m", "interval.ms")]
)
def test_groups_and_metrics_are_described(kind: int, name: str, key: str) -> None:
    cluster = a_cluster()
    assert alter(cluster, kind, name, (key, SET, "50000")) == ErrorCode.NONE
    (config,) = described(cluster, kind, name, keys=[key]).configs
    assert (config.value, config.config_source) == ("50000", 8 if kind == GROUP else 7)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("consumer.session.timeout.ms", "1000", "must be in the range 45000 to 60000 inclusive."),
        ("consumer.session.timeout.ms", "60001", "must be in the range 45000 to 60000 inclusive."),
        ("consumer.assignment.interval.ms", "15001", "must be in the range 0 to 15000 inclusive."),
        ("share.delivery.count.limit", "11", "must be in the range 2 to 10 inclusive."),
        ("share.partition.max.record.locks", "4001", "must be in the range 100 to 4000 inclusive."),
        ("streams.num.standby.replicas", "3", "must be less than or equal to 2"),
        ("streams.num.warmup.replicas", "21", "must be less than or equal to 20"),
        ("streams.task.offset.interval.ms", "14999", "must be greater than or equal to 15000"),
        ("streams.rack.aware.assignment.tags", "a, b,a", "must not contain duplicate tag keys."),
        ("streams.assignor.name", "own", "Registered assignors are: [sticky]."),
        ("errors.deadletterqueue.topic.name", "__dlq", "DLQ topic name must not start with '__'"),
    ],
)
def test_a_groups_key_outside_of_the_limits_of_the_node_is_refused(
    key: str, value: str, message: str
) -> None:
    result = a_cluster().run(incremental_alter_configs, request((GROUP, "g", [(key, SET, value)])))
    (response,) = result.response.responses
    assert response.error_code == ErrorCode.INVALID_CONFIG
    assert response.error_message.startswith(key)
    assert response.error_message.endswith(message)


def test_the_limits_of_groups_are_those_of_the_nodes_properties() -> None:
    static = {
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "1000",
    }
    cluster = a_cluster(static=static)
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert alter(cluster, GROUP, "g", (session, SET, "900")) == ErrorCode.INVALID_CONFIG, "below 1000"
    assert alter(cluster, GROUP, "g", (session, SET, "900"), (heartbeat, SET, "300")) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("static", "dynamic", "own", "value", "source", "synonyms"),
    [
        ({}, None, None, "1000", 5, [("group.share.assignment.interval.ms", 5)]),
        (
            {"group.share.assignment.interval.ms": "2000"},
            None,
            None,
            "2000",
            4,
            [("group.share.assignment.interval.ms", 4), ("group.share.assignment.interval.ms", 5)],
        ),
        (
            {},
            "3000",
            "4000",
            "4000",
            8,
            [
                ("share.assignment.interval.ms", 8),
                ("group.share.assignment.interval.ms", 2),
                ("group.share.assignment.interval.ms", 5),
            ],
        ),
    ],
)
def test_a_groups_default_is_the_value_of_the_nodes_key(
    static: dict[str, str],
    dynamic: str | None,
    own: str | None,
    value: str,
    source: int,
    synonyms: list[tuple[str, int]],
) -> None:
    cluster = a_cluster(static=static)
    key = "share.assignment.interval.ms"
    if dynamic is not None:
        # A broker of Apache Kafka, which applies the key, has checked it.
        change = (f"group.{key}", SET, dynamic)
        assert alter(cluster, BROKER, "1", change, forwarded=True) == ErrorCode.NONE
    if own is not None:
        assert alter(cluster, GROUP, "g", (key, SET, own)) == ErrorCode.NONE
    (config,) = described(cluster, GROUP, "g", keys=[key], include_synonyms=True).configs
    assert (config.value, config.config_source) == (value, source)
    assert [(s.name, s.source) for s in config.synonyms] == synonyms


def test_internal_keys_of_a_group_are_described_once_they_are_set() -> None:
    key = "streams.num.warmup.replicas"
    cluster = a_cluster()
    assert described(cluster, GROUP, "g", keys=[key]).configs == []
    assert alter(cluster, GROUP, "g", (key, SET, "3")) == ErrorCode.NONE
    (config,) = described(cluster, GROUP, "g", keys=[key]).configs
    assert (config.value, config.config_source) == ("3", 8)


def test_describing_the_controllers() -> None:
    cluster = Cluster()
    endpoint = RegisterControllerRecord.ControllerEndpoint(
        name="CONTROLLER", host="h", port=9093, security_protocol=0
    )
    cluster.apply([RegisterControllerRecord(controller_id=1, incarnation_id=uid(1), end_points=[endpoint])])

    def ask(kind: int, version: int = 1, leader: int = 1) -> Any:
        wanted = DescribeClusterRequest(endpoint_type=kind)
        return describe_cluster(cluster.image, wanted, version, "CONTROLLER", CLUSTER, leader)

    response = ask(2)
    assert (response.controller_id, response.cluster_id, response.endpoint_type) == (1, CLUSTER, 2)
    assert [(node.broker_id, node.host, node.port) for node in response.brokers] == [(1, "h", 9093)]
    assert response.cluster_authorized_operations == -(2**31)  # not asked for
    assert ask(2, leader=3).controller_id == -1
    everything = DescribeClusterRequest(endpoint_type=2, include_cluster_authorized_operations=True)
    assert (
        describe_cluster(cluster.image, everything, 1, "CONTROLLER", CLUSTER, 1).cluster_authorized_operations
        == 8096
    )
    assert ask(1).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert ask(1, version=0).error_code == ErrorCode.INVALID_REQUEST
    assert ask(3).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    old = Cluster(14)
    with pytest.raises(KafkaError) as raised:
        describe_cluster(old.image, DescribeClusterRequest(endpoint_type=2), 1, "CONTROLLER", CLUSTER, 1)
    assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(KafkaError) as raised:  # what has just started has no level at all: to be asked again
        describe_cluster(
            MetadataImage(), DescribeClusterRequest(endpoint_type=2), 1, "CONTROLLER", CLUSTER, -1
        )
    assert raised.value.code == ErrorCode.NOT_CONTROLLER


# -- features

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(cluster: Cluster, *updates: tuple[str, int, int], version: int = 2, **changes: Any) -> Any:
    key = UpdateFeaturesRequest.FeatureUpdateKey
    wanted = UpdateFeaturesRequest(
        feature_updates=[
            key(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates
        ],
        **changes,
    )
    return cluster.run(update_features, wanted, version)


@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        (27, ("metadata.version", 34, UPGRADE)),
        (33, ("metadata.version", 32, SAFE)),
        (33, ("metadata.version", 31, UNSAFE)),
        (31, ("share.version", 3, UPGRADE)),
        (31, ("streams.version", 2, UPGRADE)),
        (27, ("metadata.version", 6, SAFE)),
        (27, ("metadata.version", 26, UPGRADE)),
        (27, ("metadata.version", 20, SAFE)),
        (27, ("metadata.version", 20, UNSAFE)),
        (20, ("metadata.version", 21, SAFE)),
        (27, ("group.version", 2, UPGRADE)),
        (27, ("group.version", -1, SAFE)),
        (27, ("group.version", 1, 0)),
        (27, ("no.such", 1, UPGRADE)),
        (22, ("eligible.leader.replicas.version", 1, UPGRADE)),
        (27, ("kraft.version", 0, SAFE)),
    ],
)
def test_levels_that_are_refused(level: int, wanted: tuple[str, int, int]) -> None:
    result = update(Cluster(level), wanted)
    assert (result.response.error_code, result.records) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert result.response.error_message.startswith("The update failed for all features since")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (SAFE, "Refusing to perform the requested downgrade because it might delete metadata information."),
        (UNSAFE, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
def test_a_downgrade_that_loses_metadata_names_both_levels(kind: int, why: str) -> None:
    result = update(Cluster(33), ("metadata.version", 31, kind))
    assert result.response.error_message.endswith(
        f"Unsupported metadata.version downgrade from 33 to 31. {why} The lowest level without loss "
        "is 33, which changed the format of records."
    )


def test_levels_of_groups_that_are_not_served_are_taken() -> None:
    result = update(Cluster(27), ("share.version", 2, UPGRADE), ("streams.version", 1, UPGRADE))
    assert result.response.error_code == 0
    assert [(r.name, r.feature_level) for r in result.records] == [
        ("share.version", 2),
        ("streams.version", 1),
    ]


def test_a_level_that_a_broker_lacks_is_refused_and_the_broker_named() -> None:
    cluster = Cluster(25).brokers(7)
    result = update(cluster, ("group.version", 1, UPGRADE))
    assert "Broker 7 does not support this feature." in result.response.error_message


def test_every_node_that_blocks_an_upgrade_is_named() -> None:
    cluster = Cluster(25).brokers(7, 8)
    cluster.config.node_id = 2  # voter 1 is another node now
    message = update(
        cluster, ("group.version", 1, UPGRADE), ("share.version", 1, UPGRADE), validate_only=True
    ).response.error_message
    assert message.startswith(
        "The update failed for all features since the following feature had an error: Invalid "
        "update version 1 for feature group.version. Broker 7 does not support this feature. Also: "
    )
    for feature in ("group.version", "share.version"):
        assert (
            f"Invalid update version 1 for feature {feature}. Broker 7 does not support this "
            "feature. Also: Broker 8 does not support this feature; controller 1 has not "
            "registered, and may not support this feature."
        ) in message


def test_a_refused_upgrade_says_what_to_do_with_the_nodes_that_block() -> None:
    message = update(Cluster(25).brokers(7), ("group.version", 1, UPGRADE)).response.error_message
    assert "Restart these nodes with a release that supports it." in message
    assert "kafka-cluster unregister --id ID" in message


def test_the_blockers_in_a_message_are_limited() -> None:
    message = update(
        Cluster(25).brokers(*range(10, 60)), ("group.version", 1, UPGRADE)
    ).response.error_message
    assert message.count("does not support this feature") == MAX_BLOCKERS


def test_a_voter_that_has_not_registered_blocks() -> None:
    cluster = Cluster()
    cluster.config.node_id = 2  # voter 1 is another node now
    result = update(cluster, ("group.version", 1, UPGRADE))
    assert "controller 1 has not registered" in result.response.error_message


def test_levels_go_up_and_down() -> None:
    cluster = Cluster(25)
    for wanted, level in (
        (("metadata.version", 27, UPGRADE), 27),
        (("metadata.version", 27, UPGRADE), 27),
        (("metadata.version", 25, SAFE), 25),
    ):
        assert update(cluster, wanted).response.error_code == ErrorCode.NONE
        assert cluster.image.features.metadata_version == level
    update(cluster, ("group.version", 1, UPGRADE))
    assert cluster.image.features.level("group.version") == 1
    update(cluster, ("group.version", 0, SAFE))
    assert cluster.image.features.level("group.version") == 0


def test_a_request_changes_all_features_or_none() -> None:
    cluster = Cluster(25)
    result = update(cluster, ("group.version", 1, UPGRADE), ("no.such", 1, UPGRADE))
    assert (result.response.error_code, result.records) == (ErrorCode.INVALID_UPDATE_VERSION, [])


def test_a_dependency_may_be_met_by_the_same_request() -> None:
    cluster = Cluster(22)
    wanted = (("eligible.leader.replicas.version", 1, UPGRADE), ("metadata.version", 27, UPGRADE))
    assert update(cluster, *wanted).response.error_code == ErrorCode.NONE


def test_below_version_2_the_response_has_each_feature() -> None:
    assert [
        r.feature for r in update(Cluster(), ("group.version", 1, UPGRADE), version=1).response.results
    ] == ["group.version"]
    assert update(Cluster(), ("group.version", 1, UPGRADE)).response.results == []


@pytest.mark.parametrize("version", [0, 1])
def test_the_result_of_a_feature_that_was_updated_has_kafkas_message(version: int) -> None:
    (result,) = update(Cluster(), ("group.version", 1, UPGRADE), version=version).response.results
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, "NONE")


def test_version_0_allows_no_downgrade() -> None:
    cluster = Cluster()
    update(cluster, ("group.version", 1, UPGRADE))
    key = UpdateFeaturesRequest.FeatureUpdateKey
    wanted = key(feature="group.version", max_version_level=0, allow_downgrade=True)
    result = cluster.run(update_features, UpdateFeaturesRequest(feature_updates=[wanted]), 0)
    assert (result.response.error_code, result.records) == (ErrorCode.INVALID_UPDATE_VERSION, [])


def test_validate_only_changes_no_level() -> None:
    assert update(Cluster(), ("group.version", 1, UPGRADE), validate_only=True).records == []


def test_eligible_leader_replicas_make_the_minimum_cluster_wide() -> None:
    cluster = Cluster(static={"min.insync.replicas": "2"})
    cluster.apply(
        [ConfigRecord(resource_type=BROKER, resource_name="1", name="min.insync.replicas", value="3")]
    )
    result = update(cluster, ("eligible.leader.replicas.version", 1, UPGRADE))
    assert [type(record) for record in result.records] == [ConfigRecord, ConfigRecord, FeatureLevelRecord]
    assert dict(cluster.image.configs.cluster_default()) == {"min.insync.replicas": "2"}
    assert dict(cluster.image.configs.broker(1)) == {}


def test_kraft_version_is_left_to_raft() -> None:
    cluster = Cluster()
    cluster.kraft_version = 0
    result = update(cluster, ("kraft.version", 1, UPGRADE))
    assert (result.upgrade_kraft_version, [type(r) for r in result.records]) == (1, [])
    cluster.kraft_version = 1
    assert update(cluster, ("kraft.version", 1, UPGRADE)).upgrade_kraft_version is None
