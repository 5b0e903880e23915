"""Requests of some megabytes with 300,000 elements: the event loop, which Raft, heartbeats and all other
clients share, pauses for at most BOUND_S."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from quorate.net.channel import NodeChannel
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.delete_groups import DeleteGroupsRequest
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.join_group import JoinGroupRequest
from quorate.protocol.messages.offset_commit import OffsetCommitRequest
from quorate.protocol.messages.offset_delete import OffsetDeleteRequest
from tests.support.cluster import Node, running
from tests.support.loop_probe import probing

pytestmark = pytest.mark.timeout(280)

BOUND_S = 0.05
COUNT = 300_000
HOSTED = 2000
"""Partitions of the topic. Those of the requests are these again and again, or beyond them."""
RETRIED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
PATIENCE_S = 200.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    with running(node):
        asyncio.run(prepare(node))
        yield node


async def prepare(node: Node) -> None:
    """Creates topic t, and commits offsets of group g for many topics."""
    admin = node.admin()
    admin.create_topics([NewTopic("t", HOSTED, 1)])["t"].result(60)
    for topic in range(10):
        admin.create_topics([NewTopic(f"t{topic}", HOSTED, 1)])[f"t{topic}"].result(60)
    with contextlib.closing(NodeChannel("127.0.0.1", node.broker_port, client_id="test")) as channel:
        await channel.call(FindCoordinatorRequest(key="g"), PATIENCE_S, 0)
        for topic in range(10):
            await answered(channel, commit(f"t{topic}"), 8, committed)


def commit(topic: str) -> OffsetCommitRequest:
    make = OffsetCommitRequest
    partitions = [
        make.OffsetCommitRequestPartition(partition_index=p, committed_offset=1) for p in range(HOSTED)
    ]
    return make(group_id="g", topics=[make.OffsetCommitRequestTopic(name=topic, partitions=partitions)])


def committed(response: Any) -> int:
    return int(response.topics[0].partitions[0].error_code)


async def answered(channel: NodeChannel, request: Any, version: int, code: Any) -> Any:
    while True:
        response = await channel.call(request, PATIENCE_S, version)
        if code(response) not in RETRIED:
            assert code(response) == ErrorCode.NONE
            return response
        await asyncio.sleep(0.05)


def join() -> JoinGroupRequest:
    make = JoinGroupRequest.JoinGroupRequestProtocol
    return JoinGroupRequest(
        group_id="joined",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[make(name=f"p{i}", metadata=b"x") for i in range(COUNT)],
    )


def fetch(session_epoch: int) -> FetchRequest:
    make = FetchRequest.FetchPartition
    partitions = [make(partition=i, fetch_offset=0, partition_max_bytes=100) for i in range(COUNT)]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=session_epoch,
        topics=[FetchRequest.FetchTopic(topic="t", partitions=partitions)],
    )


def deletion() -> OffsetDeleteRequest:
    make = OffsetDeleteRequest.OffsetDeleteRequestPartition
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name=f"t{topic}", partitions=[make(partition_index=i % HOSTED) for i in range(COUNT // 5)]
        )
        for topic in range(5)
    ]
    return OffsetDeleteRequest(group_id="g", topics=topics)


def groups_deletion() -> DeleteGroupsRequest:
    return DeleteGroupsRequest(groups_names=["g"])


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        pytest.param(join, 3, id="JoinGroup"),
        pytest.param(lambda: fetch(-1), 12, id="Fetch"),
        pytest.param(lambda: fetch(0), 12, id="Fetch with a session"),
        pytest.param(deletion, 0, id="OffsetDelete"),
        pytest.param(groups_deletion, 2, id="DeleteGroups"),
    ],
)
def test_a_large_request_lets_the_loop_run(node: Node, request_: Any, version: int) -> None:
    request = request_()

    async def call() -> Any:
        with contextlib.closing(NodeChannel("127.0.0.1", node.broker_port, client_id="test")) as channel:
            await channel.call(FindCoordinatorRequest(key="g"), PATIENCE_S, 0)
            return await channel.call(request, PATIENCE_S, version)

    assert node.proc is not None
    with probing(node.broker_port, node.proc.pid) as probe:
        response = asyncio.run(call())
    errors = {getattr(response, "error_code", 0), *(r.error_code for r in getattr(response, "results", []))}
    assert errors <= {ErrorCode.NONE, ErrorCode.INVALID_REQUEST}
    assert probe.longest_s < BOUND_S, probe.slowest
