"""A scripted controller listener on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from quorate.broker.controller_channel import ControllerLocator
from quorate.net.dispatch import Dispatcher, ListenerKind
from quorate.net.server import Listener
from quorate.protocol.api import ApiKey


class ScriptedController:
    """Serves the APIs of the given handlers and keeps the requests."""

    def __init__(self, handlers: dict[ApiKey, Callable[[Any, Any], Any]]) -> None:
        self.asked: list[Any] = []
        self._listener = Listener()
        self._dispatcher = Dispatcher(ListenerKind.CONTROLLER)
        for key, handler in handlers.items():
            self._dispatcher.register(key, self._noting(handler))

    def _noting(self, handler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def note(context: Any, request: Any) -> Any:
            self.asked.append(request)
            return handler(context, request)

        return note

    async def start(self) -> int:
        await self._listener.start("127.0.0.1", 0, self._dispatcher, "CONTROLLER")
        return self._listener.port

    @property
    def connections(self) -> int:
        return len(self._listener.connections)

    async def close(self) -> None:
        await self._listener.close()


class Leader:
    """The leader, which the test sets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.address: tuple[int, str, int] | None = None
        self.locator = ControllerLocator(lambda: self.address, loop)

    def set(self, address: tuple[int, str, int] | None) -> None:
        self.address = address
        self.locator.leader_changed()


def run(body: Callable[[], Awaitable[None]]) -> None:
    """Runs a test's coroutine, with a timeout of 20 s."""

    async def bounded() -> None:
        await asyncio.wait_for(body(), 20)

    asyncio.run(bounded())
