"""Ends requests that wait long when their clients hang up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quorate.raft.core.messages import Token

if TYPE_CHECKING:
    from quorate.net.dispatch import ClientConnection


class HangUps:
    """The requests that wait on each connection. `abandoned` is called with the token of each when the
    connection ends."""

    def __init__(self, abandoned: Callable[[Token], None]) -> None:
        self._abandoned = abandoned
        self._waiting: dict[ClientConnection, list[Token]] = {}

    def watch(self, connection: ClientConnection, token: Token, answer: asyncio.Future[Any]) -> None:
        """Watches the connection of a request until the request is answered."""
        waiting = self._waiting.get(connection)
        if waiting is None:
            waiting = self._waiting[connection] = []
            connection.on_close(lambda: self._ended(connection))
        waiting.append(token)
        answer.add_done_callback(lambda _: waiting.remove(token))

    def _ended(self, connection: ClientConnection) -> None:
        for token in list(self._waiting.pop(connection)):
            self._abandoned(token)
