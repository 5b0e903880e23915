"""The active controller with real sockets: connections and probes of a broker decide when it is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quorate.clock import LoopClock
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.broker_registration import BrokerRegistrationRequest
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.schema import Response

from .requests import beat, registration, run
from .support import Connection, FakeRaft, Harness

LONG_S = 3600.0
"""Sessions and grace: nothing but a probe can fence a broker in these tests."""


class FetchingRaft(FakeRaft):
    def handle(self, ctx: Any, request: Any) -> Response:
        return FetchResponse()


class World:
    """A controller with a real clock, and broker 1 with a listener."""

    def __init__(self, **config: Any) -> None:
        settings = {
            "broker_session_timeout_s": LONG_S,
            "lost_connection_grace_s": LONG_S,
            "probe_brokers": True,
        }
        self.h = Harness(FetchingRaft(), real_clock=LoopClock(), **(settings | config))
        self.accepted = 0
        self.server: asyncio.Server
        self.epoch = -1
        self.heartbeats, self.fetches = Connection(), Connection()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        h = self.h
        await h.controller.start()
        h.raft.become_leader(1)
        h.raft.commit()
        h.raft.commit()
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        request = registration()
        request.listeners = [
            BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=port)
        ]
        self.epoch = (await h.call(request)).broker_epoch
        await beat(h, 1, self.epoch)
        try:
            yield self
        finally:
            self.server.close()
            await h.controller.close()

    def _accept(self, reader: Any, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        writer.close()

    def heartbeat(self) -> None:
        """Sends a heartbeat over a new connection."""
        self.heartbeats = Connection()
        request = BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=self.epoch, current_metadata_offset=self.h.raft.log.end
        )
        self.h.send(request, connection=self.heartbeats)

    def fetch(self, version: int = FetchRequest.MAX_VERSION) -> None:
        """Sends a Fetch of the metadata replica over a new connection."""
        self.fetches = Connection()
        request = FetchRequest(replica_id=1, replica_state=FetchRequest.ReplicaState(replica_id=1))
        if self.h.controller.state.config.probe_brokers:  # else the request goes to Raft only
            self.h.send(request, version, connection=self.fetches)

    async def reached(self) -> None:
        """Waits until the controller has connected to the listener."""
        async with asyncio.timeout(10):
            while not self.accepted:
                await asyncio.sleep(0.01)

    async def fenced_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while not self.h.controller.state.image.cluster.brokers[1].fenced:
                    await asyncio.sleep(0.01)
                    self.h.raft.commit()
        except TimeoutError:
            return False
        return True


@pytest.mark.parametrize("version", [FetchRequest.MAX_VERSION, 14])
def test_a_broker_whose_connections_are_closed_and_whose_host_refuses_others_is_fenced(version: int) -> None:
    async def test() -> None:
        async with World().running() as world:
            world.heartbeat()
            world.fetch(version)
            await world.reached()
            world.server.close()
            world.heartbeats.lose()
            world.fetches.lose()
            assert await world.fenced_within(15)

    run(test())


@pytest.mark.parametrize(
    ("probes", "listens", "heartbeats", "fetches"),
    [
        pytest.param(False, False, False, False, id="probes are turned off"),
        pytest.param(True, True, False, False, id="its listener accepts"),
        pytest.param(True, False, True, False, id="it is connected for heartbeats"),
        pytest.param(True, False, False, True, id="its metadata replica is connected"),
    ],
)
def test_less_evidence_does_not_fence_a_broker(
    probes: bool, listens: bool, heartbeats: bool, fetches: bool
) -> None:
    async def test() -> None:
        async with World(probe_brokers=probes).running() as world:
            world.heartbeat()
            world.fetch()
            if probes:
                await world.reached()
            if not listens:
                world.server.close()
            world.heartbeats.lose()
            world.fetches.lose()
            if heartbeats:
                world.heartbeat()
            if fetches:
                world.fetch()
            assert not await world.fenced_within(1.0)  # twice as long as the probes take

    run(test())


def test_a_broker_that_was_never_reached_is_not_fenced() -> None:
    async def test() -> None:
        async with World().running() as world:
            world.server.close()  # before the first probe
            world.heartbeat()
            await asyncio.sleep(0.5)
            world.heartbeats.lose()
            assert not await world.fenced_within(1.0)
            assert not world.accepted

    run(test())
