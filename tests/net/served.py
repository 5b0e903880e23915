"""A listener with handlers of a test, on each event loop."""

from __future__ import annotations

import asyncio
import struct
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
from quorate.protocol.api import ApiKey, encode_request
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


class ServedListener:
    """A listener with handlers that a test may replace: `metadata`, `coordinator`, `fetch`, `produce`.

    With `fetches_wait`, each Fetch waits until the test completes its future in `fetches`.
    """

    def __init__(self, *, fetches_wait: bool = False, kind: ListenerKind = ListenerKind.BROKER) -> None:
        self.listener = Listener()
        self.fetches: list[asyncio.Future[Any]] = []
        self.seen: list[RequestContext] = []
        self.metadata: Callable[[RequestContext, MetadataRequest], Any] = lambda c, r: MetadataResponse(
            cluster_id="here"
        )
        self.coordinator: Callable[[RequestContext, FindCoordinatorRequest], Any] = lambda c, r: (
            FindCoordinatorResponse()
        )
        self.fetch: Callable[[RequestContext, FetchRequest], Any] = lambda c, r: FetchResponse()
        if fetches_wait:
            self.fetch = self._wait
        self.produce: Callable[[RequestContext, ProduceRequest], Any] = lambda c, r: ProduceResponse()
        self.dispatcher = Dispatcher(kind, features=self.features)
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

    def _wait(self, context: RequestContext, request: FetchRequest) -> asyncio.Future[Any]:
        self.fetches.append(asyncio.get_running_loop().create_future())
        return self.fetches[-1]

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

    async def half_closed(self, *sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection whose client has sent these bytes and closed its direction."""
        reader, writer = await self.raw()
        writer.write(b"".join(sent))
        writer.write_eof()
        return reader, writer

    async def fetching(self, count: int = 1) -> None:
        """Waits until so many Fetch requests wait."""
        while len(self.fetches) < count:
            await asyncio.sleep(0)

    async def end_read(self) -> None:
        """Waits until the listener has read the end of the last connection's stream."""
        connection: Any = self.seen[-1].connection
        while connection is not None and not connection.ended:
            await asyncio.sleep(0)

    async def sweeps(self, count: int) -> None:
        """Waits until the listener has checked its connections so many times."""
        checked = 0
        check_all = self.listener._check_all

        def counted() -> None:
            nonlocal checked
            checked += 1
            check_all()

        self.listener._check_all = counted  # type: ignore[method-assign]
        while checked < count:
            await asyncio.sleep(0.001)

    async def serves_others(self) -> None:
        """Waits until another client is served."""
        connection = await Connection.connect("127.0.0.1", self.listener.port, timeout_s=10)
        await connection.call(FindCoordinatorRequest(key="g"), 10, 2)
        connection.close()


def run(
    test: Callable[[ServedListener], Awaitable[None]],
    limits: ConnectionLimits | None = None,
    *,
    fetches_wait: bool = False,
    until_all_closed: bool = False,
    kind: ListenerKind = ListenerKind.BROKER,
) -> None:
    """Runs a test with a listener in the chosen event loop. With `until_all_closed`, it waits until all
    connections have ended."""

    async def main() -> None:
        world = ServedListener(fetches_wait=fetches_wait, kind=kind)
        await world.listener.start("127.0.0.1", 0, world.dispatcher, "TEST", limits)
        try:
            await asyncio.wait_for(test(world), 20)
            while until_all_closed and world.listener.connections:
                await asyncio.sleep(0.001)
        finally:
            await world.listener.close()

    in_loop(asyncio.wait_for(main(), 30))


async def served_for(connection: Connection, seconds: float) -> None:
    """Lets a connection be older than `seconds`, and in use."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    while loop.time() <= ends:
        await connection.call(MetadataRequest(), 10)
        await asyncio.sleep(0.01)


def frame(correlation_id: int, request: Any, version: int) -> bytes:
    """A request with its length prefix."""
    data = encode_request(correlation_id, "test", request, version)
    return struct.pack(">i", len(data)) + data


async def closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionError:
        return b""
