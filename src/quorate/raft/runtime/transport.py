"""Connections for Raft's requests: for each peer one for long-polled Fetches and one for all others."""

from __future__ import annotations

from asyncio import Future, Task, get_running_loop
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from quorate.net.channel import NodeChannel
from quorate.protocol.api import ApiKey
from quorate.raft.types import Address

if TYPE_CHECKING:
    from quorate.protocol.schema import Request, Response

BACKOFF_MIN_S = 0.02  # between attempts to connect: a restarting controller is back in a third of a second
BACKOFF_MAX_S = 0.5


def is_polled(request: Request) -> bool:
    return type(request).KEY in (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT)


class NetTransport:
    """Connections by address, opened when they are needed or in advance.

    `on_lost` is called only for the Fetch connections. A leader always owes a follower a response there,
    so a lost connection means that its process has ended. The others are also closed when they are idle.
    `on_receiving` is called only for the Fetch connections too: all other responses are small.
    """

    def __init__(self, client_id: str, connect_timeout_s: float, **options: Any) -> None:
        self.on_lost: Callable[[Address], None] | None = None
        self.on_receiving: Callable[[Address], None] | None = None
        self._client_id = client_id
        self._connect_timeout_s = connect_timeout_s
        self._options = options  # ssl, sasl
        self._channels: dict[tuple[Address, bool], NodeChannel] = {}
        self._warming: dict[tuple[Address, bool], Task[Any]] = {}
        self._closed = False

    async def call(self, address: Address, request: Request, timeout_s: float) -> Response:
        """Raises KafkaConnectionError, RequestTimedOut, UnsupportedVersion, EncodeError."""
        response: Response = await self._channel(address, is_polled(request)).call(request, timeout_s)
        return response

    def post(self, address: Address, request: Request, timeout_s: float) -> Future[Response] | None:
        """Sends a request if the address is connected (`Transport.post`)."""
        connection = self._channel(address, is_polled(request)).connection
        return None if connection is None else connection.send(request, timeout_s=timeout_s)

    def warm(self, addresses: Iterable[Address]) -> None:
        """Opens missing connections. A failed attempt is repeated by the next call, or by a request."""
        for address in addresses:
            for polled in (False, True):
                channel = self._channel(address, polled)
                if channel.connection is None and (address, polled) not in self._warming:
                    self._warming[address, polled] = task = get_running_loop().create_task(
                        channel.connected()
                    )
                    task.add_done_callback(partial(self._warmed, (address, polled)))

    def _warmed(self, key: tuple[Address, bool], task: Task[Any]) -> None:
        del self._warming[key]
        if not task.cancelled():
            task.exception()  # mark it as retrieved

    def _channel(self, address: Address, polled: bool) -> NodeChannel:
        channel = self._channels.get((address, polled))
        if channel is None:
            channel = self._channels[address, polled] = NodeChannel(
                address[0],
                address[1],
                client_id=self._client_id,
                connect_timeout_s=self._connect_timeout_s,
                backoff_min_s=BACKOFF_MIN_S,
                backoff_max_s=BACKOFF_MAX_S,
                on_lost=(lambda error: self._lost(address, error)) if polled else None,
                on_receiving=(lambda: self._receiving(address)) if polled else None,
                **self._options,
            )
        return channel

    def _lost(self, address: Address, error: Exception | None) -> None:
        if error is not None and self.on_lost is not None and not self._closed:
            self.on_lost(address)

    def _receiving(self, address: Address) -> None:
        if self.on_receiving is not None and not self._closed:
            self.on_receiving(address)

    def close(self) -> None:
        self._closed = True
        for task in self._warming.values():
            task.cancel()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
