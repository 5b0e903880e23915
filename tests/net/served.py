"""A listener with handlers of a test, on each event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import uvloop

from quorate.net.client import (
    Connection,
)
from quorate.net.dispatch import (
    Dispatcher,
    FeatureLevel,
    FeatureRange,
    FeatureState,
    ListenerKind,
    RequestContext,
)
from quorate.net.limits import ConnectionLimits
from quorate.net.server import Listener
from quorate.protocol.api import ApiKey
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.protocol.messages.produce import ProduceRequest, ProduceResponse

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
_current = "asyncio"


def use_loop(name: str) -> None:
    """Chooses the event loop of `run` and `in_loop`."""
    global _current
    _current = name


def in_loop(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[_current]) as runner:
        runner.run(test)


class World:
    """One listener; `metadata` and `coordinator` are what a test wants their handlers to do."""

    def __init__(self) -> None:
        self.listener = Listener()
        self.seen: list[RequestContext] = []
        self.metadata: Callable[[RequestContext, MetadataRequest], Any] = lambda c, r: MetadataResponse(
            cluster_id="here"
        )
        self.coordinator: Callable[[RequestContext, FindCoordinatorRequest], Any] = lambda c, r: (
            FindCoordinatorResponse()
        )
        self.fetch: Callable[[RequestContext, FetchRequest], Any] = lambda c, r: FetchResponse()
        self.produce: Callable[[RequestContext, ProduceRequest], Any] = lambda c, r: ProduceResponse()
        self.dispatcher = Dispatcher(ListenerKind.BROKER, features=self.features)
        for key, name in (
            (ApiKey.METADATA, "metadata"),
            (ApiKey.FIND_COORDINATOR, "coordinator"),
            (ApiKey.FETCH, "fetch"),
            (ApiKey.PRODUCE, "produce"),
        ):
            self.dispatcher.register(key, self.handler(name))

    def handler(self, name: str) -> Callable[[RequestContext, Any], Any]:
        def run(context: RequestContext, request: Any) -> Any:
            self.seen.append(context)
            return getattr(self, name)(context, request)

        return run

    def features(self) -> FeatureState:
        return FeatureState(
            [FeatureRange("metadata.version", 7, 27), FeatureRange("kraft.version", 0, 1)],
            [FeatureLevel("metadata.version", 27)],
            epoch=12,
        )

    async def connect(self, **options: Any) -> Connection:
        return await Connection.connect(
            "127.0.0.1", self.listener.port, client_id="test", timeout_s=5, **options
        )

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.port)


def run(test: Callable[[World], Awaitable[None]], limits: ConnectionLimits | None = None) -> None:
    async def main() -> None:
        world = World()
        await world.listener.start("127.0.0.1", 0, world.dispatcher, "TEST", limits)
        try:
            await asyncio.wait_for(test(world), 20)
        finally:
            await world.listener.close()

    in_loop(main())


async def closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionError:
        return b""
