"""What the driver reaches the world through: network, clock."""

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
    """How requests reach other nodes. `on_lost` is called with an address whose connection was reset."""

    on_lost: Callable[[Address], None] | None

    async def call(self, address: Address, request: Request, timeout_s: float) -> Response: ...

    def post(self, address: Address, request: Request, timeout_s: float) -> Future[Response] | None:
        """Writes at once where there is a connection, else gives None: `call` then. Raises and fails as
        `call` does."""
        ...

    def warm(self, addresses: Iterable[Address]) -> None:
        """Sees to it that there are connections; says nothing where there cannot be."""
        ...

    def close(self) -> None: ...


class Clock(Protocol):
    def now(self) -> float: ...
    def now_ms(self) -> int: ...


class LoopClock:
    """The running loop's time, which a simulation may replace, and the wall clock."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
