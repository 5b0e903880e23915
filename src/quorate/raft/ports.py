"""What the driver reaches the world through: network, clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from quorate.raft.types import Address

if TYPE_CHECKING:
    from quorate.protocol.schema import Request, Response


class Transport(Protocol):
    """How requests reach other nodes. `on_lost` is called with an address whose connection was reset."""

    on_lost: Callable[[Address], None] | None

    async def call(self, address: Address, request: Request, timeout_s: float) -> Response: ...
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
