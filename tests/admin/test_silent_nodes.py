"""Nodes that die, or fall silent with their connections open, while the admin client is at work: another one is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from quorate.admin.client import AdminClient
from quorate.admin.types import NewTopic
from quorate.protocol.api import ApiKey
from quorate.protocol.messages.create_topics import CreateTopicsResponse
from quorate.protocol.messages.describe_cluster import DescribeClusterResponse
from tests.broker.controllers import ScriptedController, run


class World:
    """Two nodes. `controller` is who both say is the active one; those in `silent` take requests and answer none."""

    def __init__(self) -> None:
        self.controller = 1
        self.silent: set[int] = set()
        self.ports: dict[int, int] = {}
        self.created: list[tuple[int, str]] = []  # (by whom, what)
        self.never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answers = {ApiKey.DESCRIBE_CLUSTER: self.describe, ApiKey.CREATE_TOPICS: self.create}
        self.nodes = {i: ScriptedController({k: self._as(i, answer) for k, answer in answers.items()}) for i in (1, 2)}

    def _as(self, node_id: int, answer: Callable[[int, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda _context, request: self.never if node_id in self.silent else answer(node_id, request)

    def describe(self, _node_id: int, _request: Any) -> DescribeClusterResponse:
        brokers = [
            DescribeClusterResponse.DescribeClusterBroker(broker_id=i, host="127.0.0.1", port=port)
            for i, port in self.ports.items()
        ]
        return DescribeClusterResponse(cluster_id="c", controller_id=self.controller, brokers=brokers, endpoint_type=2)

    def create(self, node_id: int, request: Any) -> CreateTopicsResponse:
        self.created.append((node_id, request.topics[0].name))
        return CreateTopicsResponse(topics=[CreateTopicsResponse.CreatableTopicResult(name=request.topics[0].name)])

    async def start(self) -> list[str]:
        for i, node in self.nodes.items():
            self.ports[i] = await node.start()
        return [f"127.0.0.1:{port}" for port in self.ports.values()]

    async def close(self) -> None:
        self.never.cancel()
        for node in self.nodes.values():
            await node.close()


@pytest.mark.parametrize("how", ["dead", "silent"])
def test_the_successor_of_a_controller_that_is(how: str) -> None:
    async def body() -> None:
        world = World()
        servers = await world.start()
        async with AdminClient(bootstrap_controllers=servers, request_timeout_s=0.3, api_timeout_s=15) as admin:
            assert await admin.create_topics([NewTopic("before", 1, 1)]) == {"before": None}
            world.controller = 2
            if how == "dead":
                await world.nodes[1].close()
            else:
                world.silent.add(1)
            assert await admin.create_topics([NewTopic("after", 1, 1)]) == {"after": None}
        assert world.created == [(1, "before"), (2, "after")]
        await world.close()

    run(body)


def test_another_broker_than_the_one_that_fell_silent() -> None:
    async def body() -> None:
        world = World()
        servers = await world.start()
        async with AdminClient(servers, request_timeout_s=0.3, api_timeout_s=15) as admin:
            await admin.create_topics([NewTopic("before", 1, 1)])
            asked = world.created[0][0]
            world.silent.add(asked)
            for i in range(3):
                await admin.create_topics([NewTopic(f"after-{i}", 1, 1)])
        assert [by for by, _ in world.created] == [asked, *[3 - asked] * 3]
        assert len([r for r in world.nodes[asked].asked if getattr(r, "topics", None)]) == 2, "the silent one is not tried again"
        await world.close()

    run(body)
