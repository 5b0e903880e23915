"""A broker forgets idle producers after `producer.id.expiration.ms`, which may be changed while it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from quorate.net.client import Connection
from quorate.protocol.messages.describe_producers import DescribeProducersRequest
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.support.cluster import Node, running, wait_for
from tests.support.ledger import QUIET


def active_producers(node: Node, topic: str) -> int:
    async def ask() -> int:
        connection = await Connection.connect("127.0.0.1", node.broker_port, client_id="test")
        wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
        answer = await connection.call(DescribeProducersRequest(topics=[wanted]))
        connection.close()
        partition = answer.topics[0].partitions[0]
        assert partition.error_code == 0, answer
        return len(partition.active_producers)

    return asyncio.run(ask())


def set_for_the_cluster(node: Node, name: str, value: str) -> None:
    """Sets the config for all brokers. librdkafka refuses the empty name of this resource."""

    async def ask() -> None:
        connection = await Connection.connect("127.0.0.1", node.broker_port, client_id="test")
        Request = IncrementalAlterConfigsRequest  # noqa: N806
        config = Request.AlterableConfig(name=name, config_operation=0, value=value)
        resource = Request.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
        answer = await connection.call(Request(resources=[resource]))
        connection.close()
        assert answer.responses[0].error_code == 0, answer

    asyncio.run(ask())


@pytest.mark.timeout(120)
def test_the_expiration_time_of_producers_is_a_dynamic_config_of_the_cluster(tmp_path: Path) -> None:
    """With the default of one day the producer is kept. After the config was lowered for the cluster, the
    next check removes it permanently."""
    with running(Node(tmp_path, extra={"producer.id.expiration.check.interval.ms": 50})) as node:
        admin = node.admin()
        admin.create_topics([NewTopic("t", 1, 1)], operation_timeout=20)["t"].result()
        producer = Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": True, **QUIET})
        producer.produce("t", b"v", partition=0)
        assert producer.flush(30) == 0
        assert active_producers(node, "t") == 1
        set_for_the_cluster(node, "producer.id.expiration.ms", "1")
        wait_for("the producer to be forgotten", lambda: active_producers(node, "t") == 0, 20)
        assert node.stop() == 0
        node.start()
        assert active_producers(node, "t") == 0
