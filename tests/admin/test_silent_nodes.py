"""Nodes that die, or fall silent with their connections open, while the admin client is at work:
another one is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, RequestTimedOut, check
from quorate.admin.types import NewTopic
from quorate.protocol.api import ApiKey
from quorate.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.broker.controllers import ScriptedController, run


class World:
    """Controllers 1, 2, ... `controller` is who is said to be the active one, `says` what one of them
    says instead; those in `silent` take requests and answer none; one that is not `active` refuses to
    create."""

    def __init__(self, count: int = 2) -> None:
        self.controller = 1
        self.says: dict[int, int] = {}
        self.silent: set[int] = set()
        self.deposed: dict[int, ErrorCode] = {}  # what those answer who are asked, but lead no more
        self.ports: dict[int, int] = {}
        self.created: list[tuple[int, str]] = []  # (by whom, what)
        self.never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answers = {ApiKey.DESCRIBE_CLUSTER: self.describe, ApiKey.CREATE_TOPICS: self.create}
        ids = range(1, count + 1)
        self.nodes = {
            i: ScriptedController({k: self._as(i, answer) for k, answer in answers.items()}) for i in ids
        }

    def _as(self, node_id: int, answer: Callable[[int, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda _context, request: self.never if node_id in self.silent else answer(node_id, request)

    def describe(self, node_id: int, _request: Any) -> DescribeClusterResponse:
        brokers = [
            DescribeClusterResponse.DescribeClusterBroker(broker_id=i, host="127.0.0.1", port=port)
            for i, port in self.ports.items()
        ]
        controller = self.says.get(node_id, self.controller)
        return DescribeClusterResponse(
            cluster_id="c", controller_id=controller, brokers=brokers, endpoint_type=2
        )

    def create(self, node_id: int, request: Any) -> CreateTopicsResponse:
        error = self.deposed.get(node_id, ErrorCode.NONE)
        self.created.append((node_id, request.topics[0].name))
        return CreateTopicsResponse(
            topics=[CreateTopicsResponse.CreatableTopicResult(name=request.topics[0].name, error_code=error)]
        )

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
        async with AdminClient(
            bootstrap_controllers=servers, request_timeout_s=0.3, api_timeout_s=15
        ) as admin:
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


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_the_successor_of_a_controller_that_was_deposed(code: ErrorCode) -> None:
    """It lives, and answers; what it says of itself is not the same for all requests."""

    async def body() -> None:
        world = World()
        servers = await world.start()
        async with AdminClient(bootstrap_controllers=servers, api_timeout_s=5) as admin:
            await admin.create_topics([NewTopic("before", 1, 1)])
            world.controller, world.deposed = 2, {1: code}

            def look(answer: Any) -> None:
                check(answer.topics[0].error_code)

            request = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="after")])
            await admin.transport.call(request, look)
        assert world.created == [(1, "before"), (1, "after"), (2, "after")]
        await world.close()

    run(body)


def test_a_successor_that_comes_late_though_only_the_dead_one_was_known_at_first() -> None:
    """Without a majority there is no controller for a while; who the others are is not forgotten
    meanwhile."""

    async def body() -> None:
        world = World()
        servers = await world.start()
        async with AdminClient(bootstrap_controllers=servers[0], api_timeout_s=15) as admin:
            await admin.create_topics([NewTopic("before", 1, 1)])
            await world.nodes[1].close()
            world.controller = -1
            after = asyncio.create_task(admin.create_topics([NewTopic("after", 1, 1)]))
            asked = len(world.nodes[2].asked)
            while len(world.nodes[2].asked) < asked + 3:
                await asyncio.sleep(0.01)
            world.controller = 2
            assert await asyncio.wait_for(after, 3) == {"after": None}
        await world.close()

    run(body)


@pytest.mark.parametrize("by_broker", [True, False])
def test_a_timeout_of_a_broker_that_answers_nothing_names_the_command_that_shows_the_quorum(
    by_broker: bool,
) -> None:
    async def body() -> None:
        world = World(1)
        servers = await world.start()
        where: dict[str, Any] = {"bootstrap_servers" if by_broker else "bootstrap_controllers": servers}
        async with AdminClient(**where, request_timeout_s=0.1, api_timeout_s=0.5) as admin:
            await admin.describe_cluster()
            world.silent.add(1)
            with pytest.raises(
                RequestTimedOut, match="Timed out waiting for an answer to CreateTopics"
            ) as found:
                await admin.create_topics([NewTopic("t", 1, 1)])
        assert ("kafka-metadata-quorum describe --status" in str(found.value)) is by_broker
        await world.close()

    run(body)


def test_a_follower_that_goes_on_naming_the_dead_one_is_not_believed_for_ever() -> None:
    async def body() -> None:
        world = World(3)
        servers = await world.start()
        world.says = {2: 1}
        async with AdminClient(bootstrap_controllers=servers, api_timeout_s=15) as admin:
            await admin.create_topics([NewTopic("before", 1, 1)])
            await world.nodes[1].close()
            world.controller = 3
            assert await asyncio.wait_for(admin.create_topics([NewTopic("after", 1, 1)]), 3) == {
                "after": None
            }
        assert world.created[-1] == (3, "after")
        await world.close()

    run(body)


def test_those_that_accept_connections_and_say_nothing_are_not_waited_for_while_there_are_others() -> None:
    async def body() -> None:
        world = World()
        servers = await world.start()
        mute = [await asyncio.start_server(lambda _r, w: w.wait_closed(), "127.0.0.1", 0) for _ in range(4)]
        addresses = [f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in mute]
        async with AdminClient([*addresses, *servers], api_timeout_s=15) as admin:
            assert await asyncio.wait_for(admin.create_topics([NewTopic("t", 1, 1)]), 4) == {"t": None}
        for server in mute:
            server.close()
        await world.close()

    run(body)


def test_a_description_is_asked_of_others_too_when_a_connected_node_falls_silent() -> None:
    async def body() -> None:
        world = World()
        servers = await world.start()
        async with AdminClient(servers) as admin:
            await admin.describe_cluster()
            (asked,) = [i for i, node in world.nodes.items() if node.asked]
            world.silent.add(asked)
            for _ in range(3):
                assert (await asyncio.wait_for(admin.describe_cluster(), 4)).cluster_id == "c"
            described = [r for r in world.nodes[asked].asked if isinstance(r, DescribeClusterRequest)]
            assert len(described) == 2, "the silent one is not tried again"
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
        assert len([r for r in world.nodes[asked].asked if getattr(r, "topics", None)]) == 2, (
            "the silent one is not tried again"
        )
        await world.close()

    run(body)
