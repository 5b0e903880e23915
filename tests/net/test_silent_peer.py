"""A peer that no longer answers: its link is cut, it is suspended, or it has lost its end of the
connection."""

from __future__ import annotations

import asyncio

import pytest

from quorate.net.channel import NodeChannel
from quorate.net.errors import KafkaConnectionError, RequestTimedOut
from quorate.protocol.api import ApiKey
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tests.broker.controllers import ScriptedController, run


class Peer:
    """Answers heartbeats, but none of broker 0."""

    def __init__(self) -> None:
        self.never: asyncio.Future[BrokerHeartbeatResponse] = asyncio.get_running_loop().create_future()
        self.connections: list[object] = []
        self.server = ScriptedController({ApiKey.BROKER_HEARTBEAT: self._answer})

    def _answer(self, context, request):  # type: ignore[no-untyped-def]
        if context.connection not in self.connections:
            self.connections.append(context.connection)
        return BrokerHeartbeatResponse() if request.broker_id else self.never

    async def close(self) -> None:
        self.never.cancel()
        await self.server.close()


def test_a_connection_without_any_response_during_a_request_timeout_is_closed() -> None:
    """TCP repeats its segments with growing pauses, so a connection would recover only half a minute after
    the link."""

    async def body() -> None:
        peer = Peer()
        channel = NodeChannel("127.0.0.1", await peer.server.start())
        waiting = asyncio.ensure_future(channel.call(BrokerHeartbeatRequest(broker_id=0), 30))
        while not peer.server.asked:
            await asyncio.sleep(0)
        with pytest.raises(RequestTimedOut):
            await channel.call(BrokerHeartbeatRequest(broker_id=0), 0.1)
        with pytest.raises(KafkaConnectionError):
            await waiting
        assert await channel.call(BrokerHeartbeatRequest(broker_id=1), 5) == BrokerHeartbeatResponse()
        assert len(peer.connections) == 2
        channel.close()
        await peer.close()

    run(body)


def test_a_connection_on_which_others_are_answered_is_kept() -> None:
    async def body() -> None:
        peer = Peer()
        channel = NodeChannel("127.0.0.1", await peer.server.start())
        answered = asyncio.ensure_future(channel.call(BrokerHeartbeatRequest(broker_id=1), 5))
        late = asyncio.ensure_future(channel.call(BrokerHeartbeatRequest(broker_id=0), 0.3))
        await answered
        connection = channel.connection
        with pytest.raises(RequestTimedOut):
            await late
        assert channel.connection is connection
        channel.close()
        await peer.close()

    run(body)
