"""The smaller handlers, on real logs and constructed metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.broker.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from quorate.net import turns
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.delete_records import DeleteRecordsRequest
from quorate.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest
from quorate.protocol.messages.describe_configs import DescribeConfigsRequest
from quorate.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from quorate.protocol.messages.describe_producers import DescribeProducersRequest
from quorate.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from quorate.protocol.messages.list_config_resources import ListConfigResourcesRequest
from quorate.protocol.messages.list_offsets import ListOffsetsRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from quorate.records.batch import build_batch

from .fakes import broker, registration
from .world import Broker, batch_of, image_of, produce, topic_id_of

TOPIC, BROKER = 2, 4


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Broker]:
    image = image_of(
        {
            "t": {0: registration(), 1: registration(replicas=(2,), leader=2)},
            "__consumer_offsets": {0: registration()},
            "dead": {0: registration(replicas=(9,), leader=-1, leader_epoch=4)},
        },
        configs={
            (TOPIC, "t"): {"retention.ms": "1000", "cleanup.policy": "delete"},
            (BROKER, ""): {"log.cleaner.threads": "2"},
            (BROKER, "1"): {"message.max.bytes": "2000000"},
        },
    )
    made = Broker(tmp_path, image, log_retention_hours="24")
    yield made
    made.close()


# -- Metadata


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_all_topics_in_every_version(world, version):
    answer = world.ask(MetadataRequest(topics=[] if version == 0 else None), version)
    assert {topic.name for topic in answer.topics} == {"t", "__consumer_offsets", "dead"}
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(i, f"host{i}", 9092) for i in (1, 2, 3)]
    by_name = {topic.name: topic for topic in answer.topics}
    assert [(p.partition_index, p.leader_id) for p in by_name["t"].partitions] == [(0, 1), (1, 2)]
    assert by_name["dead"].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    if version >= 1:
        assert by_name["__consumer_offsets"].is_internal
        assert answer.controller_id == 1
    if version >= 10:
        assert by_name["t"].topic_id == topic_id_of("t")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("t", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no good!", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_metadata_of_one_topic(world, name, error):
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    (topic,) = world.ask(request).topics
    assert (topic.name, topic.error_code) == (name, error)


def test_metadata_by_topic_id(world):
    ids = [topic_id_of("t"), bytes(range(16))]
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=None, topic_id=i) for i in ids]
    )
    answer = world.ask(request, 12)
    assert {(topic.name, topic.error_code) for topic in answer.topics} == {
        ("t", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    }


def test_metadata_by_topic_id_is_refused_where_the_version_does_not_allow_it(world):
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name="t", topic_id=topic_id_of("t"))]
    )
    with pytest.raises(KafkaError) as refused:
        world.ask(request, 10)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_a_fenced_broker_is_in_no_metadata(tmp_path):
    world = Broker(tmp_path, image_of({}, brokers=(broker(1), broker(2, fenced=True))))
    assert [b.node_id for b in world.ask(MetadataRequest(topics=None)).brokers] == [1]
    world.close()


def test_an_encoded_topic_is_encoded_again_when_it_changes(world):
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name="t")], allow_auto_topic_creation=False
    )
    assert len(world.ask(request).topics[0].partitions) == 2
    world.publish(image_of({"t": {0: registration(leader_epoch=5, partition_epoch=1)}}))
    (part,) = world.ask(request).topics[0].partitions
    assert part.leader_epoch == 5


def test_authorized_operations_are_returned_on_request_only(world):
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
    assert world.ask(request).topics[0].topic_authorized_operations == -(2**31)
    request.include_topic_authorized_operations = True
    assert world.ask(request).topics[0].topic_authorized_operations == TOPIC_OPERATIONS == 3576
    request.include_cluster_authorized_operations = True
    assert world.ask(request, 10).cluster_authorized_operations == CLUSTER_OPERATIONS == 8096


# -- DescribeTopicPartitions


def test_partitions_are_described_in_pages(world):
    request = DescribeTopicPartitionsRequest(response_partition_limit=2)
    first = world.ask(request)
    assert [(topic.name, len(topic.partitions)) for topic in first.topics] == [
        ("__consumer_offsets", 1),
        ("dead", 1),
    ]
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("t", 0)
    request.cursor = DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=1)
    rest = world.ask(request)
    assert [(topic.name, [p.partition_index for p in topic.partitions]) for topic in rest.topics] == [
        ("t", [1])
    ]
    assert rest.next_cursor is None


@pytest.mark.parametrize(("topic", "index"), [("missing", 0), ("t", -1)])
def test_an_invalid_cursor_is_refused(world, topic, index):
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")],
        cursor=DescribeTopicPartitionsRequest.Cursor(topic_name=topic, partition_index=index),
    )
    with pytest.raises(KafkaError) as refused:
        world.ask(request)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


# -- ListOffsets, OffsetForLeaderEpoch, DeleteRecords


def list_offsets(world, timestamp, version=10, partition=0, **request):
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[part])
    return (
        world.ask(ListOffsetsRequest(replica_id=-1, topics=[topic], **request), version)
        .topics[0]
        .partitions[0]
    )


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize(
    ("timestamp", "since", "found"),
    [
        (-1, 1, (-1, 3)),
        (-2, 1, (-1, 0)),
        (-3, 7, (1_000_002, 2)),
        (-4, 8, (-1, 0)),
        (-5, 9, (-1, -1)),
        (-6, 11, (-1, -1)),
        (-7, 99, None),
        (0, 1, (1_000_000, 0)),
        (1_000_001, 1, (1_000_001, 1)),
        (1_000_003, 1, (-1, -1)),
    ],
    ids=[
        "latest",
        "earliest",
        "max timestamp",
        "earliest local",
        "latest tiered",
        "earliest pending upload",
        "unknown",
        "first",
        "exact",
        "none",
    ],
)
def test_offsets_by_time(world, version, timestamp, since, found):
    world.ask(produce("t", (0, batch_of(b"a", b"b", b"c"))))
    answer = list_offsets(world, timestamp, version)
    if version < since:
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    else:
        assert (answer.error_code, (answer.timestamp, answer.offset)) == (ErrorCode.NONE, found)


def wait_and_count_turns(world, future):
    """The answer to a ListOffsets request, and the turns that others had meanwhile."""
    counted = 0

    async def others() -> None:
        nonlocal counted
        while True:
            counted += 1
            await asyncio.sleep(0)

    task = world.loop.create_task(others())
    answer = world.wait(future, ApiKey.LIST_OFFSETS, 10)
    task.cancel()
    return answer, counted


def test_offsets_of_very_many_partitions_are_looked_up_in_several_turns(world, monkeypatch):
    """One client's request of some megabytes would keep everybody else waiting for seconds."""
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    world.ask(produce("t", (0, batch_of(b"a", b"b", b"c"))))
    make = ListOffsetsRequest.ListOffsetsPartition
    known = make(partition_index=0, timestamp=-1)
    unknown = [make(partition_index=index, timestamp=-1) for index in range(1000, 1200)]
    asked = [
        ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=partitions)
        for name, partitions in (("nope", unknown), ("t", [known]), ("none", []))
    ]
    future = world.ask(ListOffsetsRequest(replica_id=-1, topics=asked), 10)
    answer, counted = wait_and_count_turns(world, future)
    assert [topic.name for topic in answer.topics] == ["nope", "t", "none"]
    assert [len(topic.partitions) for topic in answer.topics] == [200, 1, 0]
    assert [part.partition_index for part in answer.topics[0].partitions] == list(range(1000, 1200))
    assert answer.topics[1].partitions[0].offset == 3
    assert counted >= 3 * 201


def test_very_many_topics_without_partitions_are_answered_in_several_turns(world, monkeypatch):
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    asked = [ListOffsetsRequest.ListOffsetsTopic(name=f"t{number}") for number in range(500)]
    answer, counted = wait_and_count_turns(world, world.ask(ListOffsetsRequest(topics=asked), 10))
    assert [topic.name for topic in answer.topics] == [topic.name for topic in asked]
    assert counted >= 1000


def test_a_search_through_very_many_batches_is_made_in_several_turns(world, monkeypatch):
    """The time index leads to the first of 1,000 batches with equal timestamps, and the next one is later."""
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    log = world.replicas.partition("t", 0).log
    for _ in range(1000):
        log.append_as_leader(build_batch([(None, b"", [], 1000)]), 0, 1000)
    log.append_as_leader(build_batch([(None, b"", [], 2000)]), 0, 2000)
    log.high_watermark = 1001
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=1500)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[part])
    future = world.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 10)
    answer, counted = wait_and_count_turns(world, future)
    found = answer.topics[0].partitions[0]
    assert (found.timestamp, found.offset) == (2000, 1000)
    assert counted >= 9


def test_the_latest_offset_by_isolation(tmp_path):
    world = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2))}}))
    world.ask(produce("t", (0, batch_of(b"a")), acks=1))
    assert list_offsets(world, -1).offset == 0
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[part])
    follower = world.ask(ListOffsetsRequest(replica_id=2, topics=[topic])).topics[0].partitions[0]
    assert follower.offset == 1
    world.close()


@pytest.mark.parametrize(
    ("version", "error"), [(5, ErrorCode.OFFSET_NOT_AVAILABLE), (4, ErrorCode.LEADER_NOT_AVAILABLE)]
)
def test_a_new_leader_whose_high_watermark_lags_returns_an_error(tmp_path, version, error):
    world = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2))}}))
    world.ask(produce("t", (0, batch_of(b"a")), acks=1))
    world.publish(image_of({"t": {0: registration(replicas=(1, 2), leader_epoch=1, partition_epoch=1)}}))
    assert list_offsets(world, -1, version).error_code == error
    world.close()


def test_a_repeated_partition_is_refused(world):
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[part, part])
    answers = world.ask(ListOffsetsRequest(replica_id=-1, topics=[topic])).topics[0].partitions
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize(
    ("partition", "current", "epoch", "error", "found"),
    [
        (0, -1, 0, ErrorCode.NONE, (0, 2)),
        (0, -1, 1, ErrorCode.NONE, (1, 3)),
        (0, -1, 5, ErrorCode.NONE, (-1, -1)),
        (0, 0, 1, ErrorCode.FENCED_LEADER_EPOCH, (-1, -1)),
        (0, 2, 1, ErrorCode.UNKNOWN_LEADER_EPOCH, (-1, -1)),
        (1, -1, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER, (-1, -1)),
        (7, -1, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (-1, -1)),
    ],
)
def test_where_an_epoch_ends(world, partition, current, epoch, error, found):
    world.ask(produce("t", (0, batch_of(b"a", b"b"))))
    changed = {0: registration(leader_epoch=1, partition_epoch=1), 1: registration(replicas=(2,), leader=2)}
    world.publish(image_of({"t": changed}))
    world.ask(produce("t", (0, batch_of(b"c"))))
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic="t",
                partitions=[
                    OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                        partition=partition, current_leader_epoch=current, leader_epoch=epoch
                    )
                ],
            )
        ]
    )
    answer = world.ask(request).topics[0].partitions[0]
    assert (answer.error_code, (answer.leader_epoch, answer.end_offset)) == (error, found)


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "error", "low"),
    [
        ("t", 0, 2, ErrorCode.NONE, 2),
        ("t", 0, -1, ErrorCode.NONE, 3),
        ("t", 0, 4, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        ("t", 1, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        ("t", 9, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("__consumer_offsets", 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
    ],
)
def test_deleting_records(world, topic, partition, offset, error, low):
    world.ask(produce("t", (0, batch_of(b"a", b"b", b"c"))))
    answer = delete_records(world, topic, partition, offset)
    assert (answer.error_code, answer.low_watermark) == (error, low)


def delete_records(world, topic, partition, offset):
    part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[part])]
    )
    answer = world.ask(request)
    if asyncio.iscoroutine(answer):
        answer = world.wait(answer, ApiKey.DELETE_RECORDS)
    return answer.topics[0].partitions[0]


def test_deleted_records_are_answered_when_the_checkpoint_has_the_log_start(world):
    world.ask(produce("t", (0, batch_of(b"a", b"b", b"c"))))
    delete_records(world, "t", 0, 2)
    (checkpoint,) = world.logs.online_dirs()[0].glob("log-start-offset-checkpoint")
    assert checkpoint.read_text() == "0\n1\nt 0 2\n"


def test_a_failed_checkpoint_is_answered_with_a_storage_error(world):
    world.ask(produce("t", (0, batch_of(b"a", b"b", b"c"))))
    failures = []
    world.replicas.storage_failed = failures.append
    (world.logs.online_dirs()[0] / "log-start-offset-checkpoint.tmp").mkdir()
    part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=2)
    answer = world.ask(
        DeleteRecordsRequest(topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[part])])
    )
    with pytest.raises(KafkaError) as refused:
        world.wait(answer, ApiKey.DELETE_RECORDS)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [failure.directory for failure in failures] == [str(world.logs.online_dirs()[0])]


def test_compacted_topics_keep_their_records(tmp_path):
    image = image_of({"t": {0: registration()}}, configs={(TOPIC, "t"): {"cleanup.policy": "compact"}})
    world = Broker(tmp_path, image)
    assert delete_records(world, "t", 0, 0).error_code == ErrorCode.POLICY_VIOLATION
    world.close()


# -- DescribeCluster


def test_the_cluster_is_described(world):
    answer = world.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert (answer.cluster_id, answer.controller_id, answer.cluster_authorized_operations) == (
        "c",
        1,
        CLUSTER_OPERATIONS,
    )
    assert [b.broker_id for b in answer.brokers] == [1, 2, 3]


@pytest.mark.parametrize(("include", "ids"), [(False, [1]), (True, [1, 2])])
def test_fenced_brokers_are_described_on_request(tmp_path, include, ids):
    world = Broker(tmp_path, image_of({}, brokers=(broker(1), broker(2, fenced=True))))
    answer = world.ask(DescribeClusterRequest(include_fenced_brokers=include))
    assert [b.broker_id for b in answer.brokers] == ids
    world.close()


@pytest.mark.parametrize(
    ("kind", "error"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_a_broker_does_not_describe_controllers(world, kind, error):
    assert world.ask(DescribeClusterRequest(endpoint_type=kind)).error_code == error


def test_one_metadata_request_creates_no_more_topics_than_one_creation_may(tmp_path):
    world = Broker(tmp_path, image_of({}), num_partitions="10")
    asked = []

    class Creator:
        def create_all(self, names, context):
            asked.extend(names)
            return [world.loop.create_future()]

    world.services.creator = Creator()
    for count in (1_001, 1_000):
        topics = [MetadataRequest.MetadataRequestTopic(name=f"t{index}") for index in range(count)]
        answer = world.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True))
        if count > 1_000:
            if asyncio.iscoroutine(answer):  # made in steps
                answer = world.wait(answer, ApiKey.METADATA)
            assert {topic.error_code for topic in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert asked == []
        else:
            world.loop.run_until_complete(answer)
            assert len(asked) == count
    world.close()


# -- DescribeConfigs


def described(world, kind, name, keys=None, **request):
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return world.ask(DescribeConfigsRequest(resources=[resource], **request)).results[0]


def test_a_repeated_resource_is_described_once(world):
    make = DescribeConfigsRequest.DescribeConfigsResource
    whole = make(resource_type=TOPIC, resource_name="t", configuration_keys=None)
    part = make(resource_type=TOPIC, resource_name="t", configuration_keys=["retention.ms"])
    answer = world.ask(DescribeConfigsRequest(resources=[whole, part] * 1_000))
    results = world.wait(answer, ApiKey.DESCRIBE_CONFIGS).results
    assert [(result.resource_name, len(result.configs) > 1) for result in results] == [
        ("t", True),
        ("t", False),
    ]


@pytest.mark.parametrize(
    ("key", "value", "source", "synonyms"),
    [
        ("retention.ms", "1000", 1, [("retention.ms", "1000", 1)]),
        (
            "cleanup.policy",
            "delete",
            1,
            [("cleanup.policy", "delete", 1), ("log.cleanup.policy", "delete", 5)],
        ),
        (
            "max.message.bytes",
            "2000000",
            2,
            [("message.max.bytes", "2000000", 2), ("message.max.bytes", "1048588", 5)],
        ),
        ("segment.bytes", "1073741824", 5, [("log.segment.bytes", "1073741824", 5)]),
        ("segment.ms", "604800000", 5, []),
    ],
)
def test_a_topics_configs_and_their_sources(world, key, value, source, synonyms):
    (entry,) = described(world, TOPIC, "t", [key], include_synonyms=True).configs
    assert (entry.value, entry.config_source, entry.read_only) == (value, source, False)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == synonyms


def test_an_alias_in_the_properties_applies_and_is_described_as_the_default(tmp_path):
    world = Broker(tmp_path, image_of({"t": {0: registration()}}), log_retention_hours="24")
    (entry,) = described(world, TOPIC, "t", ["retention.ms"], include_synonyms=True).configs
    assert (entry.value, entry.config_source, entry.synonyms) == ("86400000", 5, [])
    world.close()


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no good!", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "seven", ErrorCode.INVALID_REQUEST),
        (8, "", ErrorCode.INVALID_REQUEST),
        (32, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_configs_that_cannot_be_described(world, kind, name, error):
    assert described(world, kind, name).error_code == error


def test_a_brokers_configs(world):
    by_name = {
        entry.name: entry for entry in described(world, BROKER, "1", include_documentation=True).configs
    }
    assert (by_name["message.max.bytes"].value, by_name["message.max.bytes"].config_source) == ("2000000", 2)
    assert (by_name["log.cleaner.threads"].value, by_name["log.cleaner.threads"].config_source) == ("2", 3)
    assert (by_name["node.id"].config_source, by_name["node.id"].read_only) == (4, True)
    assert (by_name["num.io.threads"].config_source, by_name["num.io.threads"].read_only) == (5, False)
    assert by_name["node.id"].documentation
    assert all(entry.value is None for entry in by_name.values() if entry.is_sensitive)


def test_the_cluster_wide_default_shows_only_configs_that_are_set(world):
    entries = described(world, BROKER, "").configs
    assert [(entry.name, entry.value, entry.config_source) for entry in entries] == [
        ("log.cleaner.threads", "2", 3)
    ]


def test_broker_loggers_have_levels(world):
    names = {entry.name for entry in described(world, 8, "1").configs}
    assert "root" in names
    assert any(name.startswith("quorate.") for name in names)


def test_config_resources_are_listed(world):
    answer = world.ask(ListConfigResourcesRequest(resource_types=[TOPIC, BROKER]))
    assert [(r.resource_type, r.resource_name) for r in answer.config_resources] == [
        (BROKER, "1"),
        (BROKER, "2"),
        (BROKER, "3"),
        (TOPIC, "__consumer_offsets"),
        (TOPIC, "dead"),
        (TOPIC, "t"),
    ]
    assert (
        world.ask(ListConfigResourcesRequest(resource_types=[99])).error_code == ErrorCode.UNSUPPORTED_VERSION
    )


# -- log directories, producers, quotas


def test_log_directories_are_described(world):
    world.ask(produce("t", (0, batch_of(b"a" * 100))))
    (directory,) = world.ask(DescribeLogDirsRequest(topics=None)).results
    assert directory.log_dir == str(world.config.log_dirs[0])
    assert directory.total_bytes >= directory.usable_bytes > 0
    found = {
        (topic.name, part.partition_index): part for topic in directory.topics for part in topic.partitions
    }
    assert found.keys() == {("t", 0), ("__consumer_offsets", 0)}
    assert found["t", 0].partition_size > 100
    assert found["__consumer_offsets", 0].partition_size == 0  # nobody has written to it: it has no files yet


def test_producers_are_described(world):
    world.ask(produce("t", (0, batch_of(b"a", b"b", producer_id=5, producer_epoch=1, base_sequence=0))))
    topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 1])
    first, second = world.ask(DescribeProducersRequest(topics=[topic])).topics[0].partitions
    (state,) = first.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (5, 1, 1)
    assert second.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", 0, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "a"), ("user", 0, "b")], ErrorCode.INVALID_REQUEST),
        ([("ip", 0, "a"), ("user", 0, "b")], ErrorCode.INVALID_REQUEST),
        ([("planet", 0, "a")], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_quota_filters_are_refused(world, components, error):
    made = [
        DescribeClientQuotasRequest.ComponentData(entity_type=t, match_type=m, match=v)
        for t, m, v in components
    ]
    with pytest.raises(KafkaError) as refused:
        world.ask(DescribeClientQuotasRequest(components=made))
    assert refused.value.code == error
