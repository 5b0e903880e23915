"""A broker forgets idle producers after `producer.id.expiration.ms`, which may be changed while it runs."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from quorate.net.client import Connection
from quorate.protocol.messages.describe_producers import DescribeProducersRequest
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from quorate.testing import ClusterFactory, KafkaCluster
from tests.support.cluster import wait_for
from tests.support.ledger import QUIET, admin_client


async def connect(cluster: KafkaCluster) -> Connection:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return await Connection.connect(host, int(port), client_id="test")


def active_producers(cluster: KafkaCluster, topic: str) -> int:
    async def ask() -> int:
        connection = await connect(cluster)
        wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
        answer = await connection.call(DescribeProducersRequest(topics=[wanted]))
        connection.close()
        partition = answer.topics[0].partitions[0]
        assert partition.error_code == 0, answer
        return len(partition.active_producers)

    return asyncio.run(ask())


def set_for_the_cluster(cluster: KafkaCluster, name: str, value: str) -> None:
    """Sets the config for all brokers. librdkafka refuses the empty name of this resource."""

    async def ask() -> None:
        connection = await connect(cluster)
        Request = IncrementalAlterConfigsRequest  # noqa: N806
        config = Request.AlterableConfig(name=name, config_operation=0, value=value)
        resource = Request.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
        answer = await connection.call(Request(resources=[resource]))
        connection.close()
        assert answer.responses[0].error_code == 0, answer

    asyncio.run(ask())


@pytest.mark.timeout(120)
def test_the_expiration_time_of_producers_is_a_dynamic_config_of_the_cluster(
    kafka_cluster_factory: ClusterFactory,
) -> None:
    """With the default of one day the producer is kept. After the config was lowered for the cluster, the
    next check removes it permanently."""
    cluster = kafka_cluster_factory(config={"producer.id.expiration.check.interval.ms": 50})
    admin = admin_client(cluster.bootstrap_servers)
    admin.create_topics([NewTopic("t", 1, 1)], operation_timeout=20)["t"].result()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, **QUIET})
    producer.produce("t", b"v", partition=0)
    assert producer.flush(30) == 0
    assert active_producers(cluster, "t") == 1
    set_for_the_cluster(cluster, "producer.id.expiration.ms", "1")
    wait_for("the producer to be forgotten", lambda: active_producers(cluster, "t") == 0, 20)
    cluster.stop(1)  # raises an error unless the exit status is 0
    cluster.start(1)
    assert active_producers(cluster, "t") == 0
