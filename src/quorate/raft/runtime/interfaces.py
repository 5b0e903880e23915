"""The interface of the driver to the network."""

from __future__ import annotations

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
