"""The interfaces of the driver to network and clock."""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from quorate.raft.types import Address

if TYPE_CHECKING:
    from quorate.protocol.schema import Request, Response


class Transport(Protocol):
    """Sends requests to other nodes.

    The driver sets `on_lost`, which is called with an address whose connection was reset, and
    `on_receiving`, which is called with an address whenever a part of a response to a Fetch or
    FetchSnapshot has arrived from it, and the rest is still to come.
    """

    on_lost: Callable[[Address], None] | None
    on_receiving: Callable[[Address], None] | None

    async def call(self, address: Address, request: Request, timeout_s: float) -> Response: ...

    def post(self, address: Address, request: Request, timeout_s: float) -> Future[Response] | None:
        """Sends at once if there is a connection. Returns None if there is none: then use `call`.

        Fails as `call` does.
        """
        ...

    def warm(self, addresses: Iterable[Address]) -> None:
        """Opens missing connections, and ignores failures."""
        ...

    def close(self) -> None: ...


class Clock(Protocol):
    """Monotonic time in seconds, and wall-clock time in milliseconds."""

    def now(self) -> float: ...
    def now_ms(self) -> int: ...


class LoopClock:
    """The time of the running loop, which a simulation may replace, and the wall clock."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
