"""A controller of a newer version answers with error codes that this version does not know. Brokers repeat
their requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from quorate.protocol.api import ApiKey
from quorate.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from quorate.protocol.messages.broker_registration import BrokerRegistrationResponse
from tests.support.cluster import Node, free_ports, running, wait_for
from tests.support.intercepting import InterceptingProxy
from tests.support.ledger import Ledger, read_partition

pytestmark = pytest.mark.timeout(120)

FROM_THE_FUTURE = 30_000
"""An error code that Apache Kafka 4.1 does not know."""


def refused(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda _request: kind(error_code=FROM_THE_FUTURE)


def refused_partitions(request: AlterPartitionRequest) -> AlterPartitionResponse:
    Response = AlterPartitionResponse  # noqa: N806
    return Response(
        topics=[
            Response.TopicData(
                topic_id=topic.topic_id,
                partitions=[
                    Response.PartitionData(
                        partition_index=partition.partition_index, error_code=FROM_THE_FUTURE
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_brokers_repeat_requests_after_unknown_error_codes(tmp_path: Path) -> None:
    proxied, port = free_ports(2)
    controller = Node(
        tmp_path / "c",
        node_id=1,
        roles="controller",
        controller_port=port,
        extra={"advertised.listeners": f"CONTROLLER://127.0.0.1:{proxied}"},
    )
    quick = {"broker.heartbeat.interval.ms": 200}
    brokers = [
        Node(tmp_path / f"b{i}", node_id=i, roles="broker", voters={1: proxied}, extra=quick) for i in (2, 3)
    ]
    answers = {
        ApiKey.BROKER_REGISTRATION: [refused(BrokerRegistrationResponse)],
        ApiKey.BROKER_HEARTBEAT: [refused(BrokerHeartbeatResponse)] * 3,
        ApiKey.ALTER_PARTITION: [refused(AlterPartitionResponse), refused_partitions],
    }
    with (
        InterceptingProxy(proxied, port, answers).running() as proxy,
        running(controller),
        running(brokers[0]),
        running(brokers[1]),
    ):
        admin = brokers[0].admin()
        topic = NewTopic("t", 1, replica_assignment=[[2, 3]])
        next(iter(admin.create_topics([topic], operation_timeout=20).values())).result(30)

        def in_sync() -> list[int]:
            return sorted(admin.list_topics("t", timeout=5).topics["t"].partitions[0].isrs)

        ledger = Ledger(partitions={"t": 1})
        ledger.produce(brokers[0].bootstrap, "t", 50, "x")
        assert brokers[1].stop() == 0
        assert in_sync() == [2]
        brokers[1].start()
        wait_for("it to be in sync again", lambda: in_sync() == [2, 3])
        assert proxy.left == {}
        assert brokers[0].stop() == 0
        assert read_partition(brokers[1].bootstrap, "t", 0) == ledger.records["t", 0]
        assert brokers[1].stop() == 0
