"""Raft's requests over TCP: for each peer one connection for long-polled Fetches and one for everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quorate.net.client import NodeChannel
from quorate.protocol.api import ApiKey
from quorate.raft.types import Address

if TYPE_CHECKING:
    from quorate.protocol.schema import Request, Response

BACKOFF_MIN_S = 0.02  # between attempts to connect: a restarting controller is back in a third of a second
BACKOFF_MAX_S = 0.5


class NetTransport:
    """Connections by address, made when needed."""

    def __init__(self, client_id: str, connect_timeout_s: float, **options: Any) -> None:
        self.on_lost: Callable[[Address], None] | None = None
        self._client_id = client_id
        self._connect_timeout_s = connect_timeout_s
        self._options = options  # ssl, sasl
        self._channels: dict[tuple[Address, bool], NodeChannel] = {}
        self._closed = False

    async def call(self, address: Address, request: Request, timeout_s: float) -> Response:
        """Raises KafkaConnectionError, RequestTimedOut, UnsupportedVersion, EncodeError."""
        polled = type(request).KEY in (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT)
        channel = self._channels.get((address, polled))
        if channel is None:
            channel = self._channels[address, polled] = NodeChannel(
                address[0],
                address[1],
                client_id=self._client_id,
                connect_timeout_s=self._connect_timeout_s,
                backoff_min_s=BACKOFF_MIN_S,
                backoff_max_s=BACKOFF_MAX_S,
                on_lost=lambda error: self._lost(address, error),
                **self._options,
            )
        response: Response = await channel.call(request, timeout_s)
        return response

    def _lost(self, address: Address, error: Exception | None) -> None:
        if error is not None and self.on_lost is not None and not self._closed:
            self.on_lost(address)

    def close(self) -> None:
        self._closed = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
