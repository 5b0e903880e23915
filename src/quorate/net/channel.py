"""Connections to one address, made on demand and with back-off between attempts."""

from __future__ import annotations

import asyncio
import random
import ssl as ssl_module
from collections.abc import Awaitable, Callable
from typing import Any, cast

from quorate.net.client import Connection
from quorate.net.errors import KafkaConnectionError, RequestTimedOut
from quorate.protocol.schema import Request

_MAX_SETUP_TIMEOUT_S = 30.0
"""After each connection that was opened but not set up in time, the next one gets twice the time, up to this
(`socket.connection.setup.timeout.max.ms`, KIP-601). A busy server accepts connections in their order: if all
clients gave up and came again, it would only see connections that are already closed."""


class NodeChannel:
    """At most one connection to an address, opened on demand and again after it was lost.

    The back-off after a failed attempt, also one that failed in TLS or in `sasl`, doubles from
    `backoff_min_s` to `backoff_max_s`. It varies by a fifth, so that many channels do not retry at the
    same time.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str | None = None,
        connect_timeout_s: float = 10.0,
        backoff_min_s: float = 0.05,
        backoff_max_s: float = 1.0,
        ssl: ssl_module.SSLContext | None = None,
        sasl: Callable[[Connection], Awaitable[None]] | None = None,
        on_lost: Callable[[Exception | None], None] | None = None,
        on_receiving: Callable[[], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id
        self._connect_timeout_s = connect_timeout_s
        self._backoff_min_s = backoff_min_s
        self._backoff_max_s = backoff_max_s
        self._ssl = ssl
        self._sasl = sasl
        self._on_lost = on_lost
        self._on_receiving = on_receiving
        self._rng = rng or random.Random()
        self._connection: Connection | None = None
        self._retired: set[Connection] = set()
        """Connections that were replaced and still have requests in flight."""
        self._connecting: asyncio.Task[Connection] | None = None
        self._failures = 0
        self._timeouts = 0
        self._not_before = 0.0
        self._closed = False

    @property
    def connection(self) -> Connection | None:
        """The established connection, or None.

        None also if its session ends soon (KIP-368). That connection is closed after the answers to the
        requests in flight, and the next call makes another one.
        """
        found = self._connection
        if found is None or found.replace_at is None or asyncio.get_running_loop().time() < found.replace_at:
            return found
        self._connection = None
        self._retired.add(found)
        found.closed.add_done_callback(lambda _: self._retired.discard(found))
        found.retire()
        return None

    async def connected(self) -> Connection:
        """The established connection. Connects if there is none, after the back-off. Raises
        KafkaConnectionError, RequestTimedOut, TlsError, and what `sasl` raises."""
        connection = self.connection
        if connection is not None:
            return connection
        if self._closed:
            raise KafkaConnectionError(f"channel to {self.host}:{self.port} is closed")
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._connect_ended)
        connecting = self._connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled() and not cast(asyncio.Task[Any], asyncio.current_task()).cancelling():
                raise KafkaConnectionError(f"channel to {self.host}:{self.port} is closed") from None
            raise

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        wait = self._not_before - loop.time()
        if wait > 0:
            await asyncio.sleep(wait)
        try:
            connection = await Connection.connect(
                self.host,
                self.port,
                client_id=self._client_id,
                timeout_s=self._connect_timeout_s,
                ssl=self._ssl,
                sasl=self._sasl,
                on_lost=self._lost,
                on_receiving=self._on_receiving,
                close_when_silent=True,
                setup_timeout_s=min(_MAX_SETUP_TIMEOUT_S, self._connect_timeout_s * 2**self._timeouts),
            )
        except Exception as error:
            self._timeouts = min(self._timeouts + 1, 16) if isinstance(error, RequestTimedOut) else 0
            backoff = min(self._backoff_max_s, self._backoff_min_s * 2 ** min(self._failures, 16))
            self._failures += 1
            self._not_before = loop.time() + backoff * self._rng.uniform(0.8, 1.2)
            raise
        if self._closed:  # just when the connection was opened: `wait_for` then ignores the cancellation
            connection.close()
            raise KafkaConnectionError(f"channel to {self.host}:{self.port} is closed")
        self._failures = self._timeouts = 0
        self._connection = connection
        if connection.closed.done():
            self._lost(connection.closed.result())
            raise KafkaConnectionError(f"{connection.peer} closed the connection")
        return connection

    def _connect_ended(self, task: asyncio.Task[Connection]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # retrieved, even if every caller was cancelled

    def _lost(self, error: Exception | None) -> None:
        if self._connection is None:  # closed by `_connect` itself
            return
        self._connection = None
        if self._on_lost is not None:
            self._on_lost(error)

    async def call(self, request: Request, timeout_s: float = 30.0, version: int | None = None) -> Any:
        """Like `Connection.call`; the timeout includes connecting."""
        loop = asyncio.get_running_loop()
        connection = self.connection
        if connection is None:
            deadline = loop.time() + timeout_s
            try:
                async with asyncio.timeout(timeout_s):
                    connection = await self.connected()
            except RequestTimedOut:
                raise
            except TimeoutError as e:
                raise RequestTimedOut(
                    f"no connection to {self.host}:{self.port} within {timeout_s:g} s"
                ) from e
            timeout_s = max(0.001, deadline - loop.time())
        return await connection.call(request, timeout_s, version)

    def disconnect(self) -> None:
        """Closes the connection, if any. The next call makes another one."""
        if self._connection is not None:
            self._connection.close()

    def close(self) -> None:
        """Closes the connections. The channel makes no other one."""
        self._closed = True
        for retired in tuple(self._retired):
            retired.close()
        if self._connecting is not None:
            self._connecting.cancel()
        self.disconnect()
