"""What an accepted connection needs of the listener that accepted it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any, Protocol

from quorate.net.dispatch import Dispatcher
from quorate.net.limits import ConnectionLimits
from quorate.net.turns import TurnQueue


class ConnectionOwner(Protocol):
    """The members of a `Listener` that its connections use."""

    name: str
    tls: bool
    security_protocol: int
    limits: ConnectionLimits
    dispatcher: Dispatcher
    loop: asyncio.AbstractEventLoop
    turns: TurnQueue

    def next_number(self) -> int: ...
    def accept(self, connection: Any, fd: int) -> bool: ...
    def remove(self, connection: Any) -> None: ...
    def check_drained(self) -> None: ...
    def decoder(self) -> Executor: ...
    def release(self, messages: list[Any]) -> None: ...
