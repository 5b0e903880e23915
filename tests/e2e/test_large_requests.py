"""Small requests with a very large effect are refused, or carried out while other changes continue, on real
processes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from quorate.net.channel import NodeChannel
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from quorate.protocol.messages.create_partitions import CreatePartitionsRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.describe_configs import DescribeConfigsRequest
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from quorate.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.e2e.campaign_quorum import Quorum, running

pytestmark = pytest.mark.timeout(180)

PATIENCE_S = 60.0
CLIENT_METRICS, BROKER = 16, 4


def creation(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def partitions(count: int) -> CreatePartitionsRequest:
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=count, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=30_000)


def patterns(number: int) -> IncrementalAlterConfigsRequest:
    """Sets of characters that take a compiler of regular expressions 16 ms each."""
    make = IncrementalAlterConfigsRequest
    config = make.AlterableConfig(
        name="match", config_operation=0, value="client_id=(?i)" + "[\u0001-\uffff]" * number
    )
    return make(
        resources=[
            make.AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="m", configs=[config])
        ]
    )


def descriptions(number: int) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER, resource_name="9", configuration_keys=None
    )
    return DescribeConfigsRequest(
        resources=[resource] * number, include_documentation=True, include_synonyms=True
    )


def moves(number: int) -> AlterPartitionReassignmentsRequest:
    make = AlterPartitionReassignmentsRequest
    wanted = [make.ReassignablePartition(partition_index=0, replicas=[9])] * number
    return make(topics=[make.ReassignableTopic(name="t", partitions=wanted)], timeout_ms=30_000)


async def asked_meanwhile(port: int, request: Any) -> tuple[Any, float, list[float]]:
    """Returns the outcome and duration in seconds of a request, and the duration of each creation of a topic
    meanwhile."""
    clients = [NodeChannel("127.0.0.1", port, client_id=f"client-{number}") for number in range(2)]
    creations: list[float] = []
    try:
        await clients[1].call(creation(f"before-{time.monotonic_ns()}"), PATIENCE_S)
        begun = time.perf_counter()
        answer = asyncio.create_task(clients[0].call(request, PATIENCE_S))
        while not answer.done() or not creations:
            at = time.perf_counter()
            created = await clients[1].call(creation(f"meanwhile-{time.monotonic_ns()}"), PATIENCE_S)
            assert created.topics[0].error_code == ErrorCode.NONE
            creations.append(time.perf_counter() - at)
        return await answer, time.perf_counter() - begun, creations
    finally:
        for client in clients:
            client.close()


def test_other_changes_continue_during_a_very_large_request(tmp_path: Path) -> None:
    with running(Quorum(tmp_path)) as quorum:
        before = quorum.controllers[quorum.leader()].told(5)
        port = quorum.broker.broker_port

        async def test() -> dict[str, tuple[Any, float, list[float]]]:
            client = NodeChannel("127.0.0.1", port, client_id="client")
            assert (await client.call(creation("t", 9_000), PATIENCE_S)).topics[
                0
            ].error_code == ErrorCode.NONE
            client.close()
            requests = {
                "partitions": partitions(2_000_000),
                "patterns": patterns(3_000),
                "descriptions": descriptions(2_000),
                "moves": moves(20_000),
                "elections": ElectLeadersRequest(election_type=0, topic_partitions=None),
                "reassignments": ListPartitionReassignmentsRequest(topics=None),
            }
            return {what: await asked_meanwhile(port, request) for what, request in requests.items()}

        seen = asyncio.run(test())
        after = quorum.controllers[quorum.leader()].told(5)
    print({what: (round(took, 3), round(max(creations), 3)) for what, (_, took, creations) in seen.items()})
    (refused,) = seen["partitions"][0].results
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert len(seen["descriptions"][0].results) == 1
    assert {part.error_code for part in seen["moves"][0].responses[0].partitions} == {ErrorCode.NONE}
    assert seen["reassignments"][0].topics == []
    assert max(took for _, took, _ in seen.values()) < 5.0
    assert max(max(creations) for _, _, creations in seen.values()) < 2.0
    assert before is not None
    assert after is not None
    assert (after.leader, after.epoch) == (before.leader, before.epoch)
