"""The HTTP endpoint of a node, served by aiohttp: /metrics for Prometheus, /health for operators,
and the probes /live and /ready for orchestrators.

aiohttp and prometheus_client together take a quarter of a second to import. So only nodes that set
quorate.http.listen import this module, and they do so in a thread while the rest of the node starts.

Each connection carries one request. It is closed when it sends more than MAX_REQUEST_BYTES, after
CONNECTION_S seconds, and at once where MAX_CONNECTIONS are open: an endpoint that a stranger can reach
must not cost the node memory or descriptors without bound.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import cast

from aiohttp import web
from aiohttp.http import HttpProcessingError
from prometheus_client import Metric, exposition
from prometheus_client.registry import Collector

from quorate.net.turns import SLICE_S
from quorate.node.monitoring.metrics import MetricsCollector

logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 8192
"""Request line and headers: RFC 9112, section 3, recommends to accept at least 8000 bytes of request
line. No page takes a body.
"""

CONNECTION_S = 5.0
"""A scraper needs milliseconds. Prometheus itself gives up after ten seconds by default."""

MAX_CONNECTIONS = 64
"""A scraper needs one."""

Health = Callable[[], tuple[bool, Mapping[str, object]]]
"""Returns whether the node is ready, and the members of the JSON object that is the response."""


class HttpServer:
    """Serves the pages on a socket."""

    def __init__(self, metrics: MetricsCollector, health: Health, readiness: Health) -> None:
        self._metrics = metrics
        app = web.Application()
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/health", _page(health))
        app.router.add_get("/ready", _page(readiness))
        app.router.add_get("/live", _page(lambda: (True, {"live": True})))
        app.router.add_get("/{path:.*}", _not_found)
        app.on_response_prepare.append(_close_after_response)
        self._runner = web.AppRunner(
            app, access_log=None, logger=_AIOHTTP_LOGGER, lingering_time=0, shutdown_timeout=0.1
        )
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    async def start(self, sock: socket.socket) -> None:
        """Serves on a bound socket, which `close` closes."""
        await self._runner.setup()
        self._server = await asyncio.get_running_loop().create_server(self._connect, sock=sock)

    async def close(self) -> None:
        """Closes the socket and every connection."""
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _connect(self) -> _Connection:
        assert self._runner.server is not None
        return _Connection(self._runner.server, self._connections)

    async def _get_metrics(self, request: web.Request) -> web.Response:
        """Writes the metrics in slices, since a large broker has a hundred thousand series."""
        encoder, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        open_metrics = "openmetrics" in content_type

        def encode(family: Metric) -> str:
            return encoder(_Only(family)).decode().removesuffix(_END)

        pieces: list[bytes] = []
        slice_ends = time.monotonic() + SLICE_S
        for piece in self._metrics.text(encode, open_metrics=open_metrics):
            pieces.append(piece.encode())
            if time.monotonic() >= slice_ends:
                await asyncio.sleep(0)
                slice_ends = time.monotonic() + SLICE_S
        if open_metrics:
            pieces.append(_END.encode())
        response = web.Response(body=b"".join(pieces), headers={"Content-Type": content_type})
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(web.ContentCoding.gzip)  # in a thread if the page is large
        return response


def _page(health: Health) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def get(_request: web.Request) -> web.Response:
        ready, members = health()
        return web.Response(
            status=200 if ready else 503, text=json.dumps(members) + "\n", content_type="application/json"
        )

    return get


_END = "# EOF\n"
"""The last line of OpenMetrics."""


class _Only(Collector):
    """A registry of one family, for the encoders of prometheus_client."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


async def _not_found(_request: web.Request) -> web.Response:
    return web.Response(status=404, text="The pages are /metrics, /health, /live and /ready.\n")


async def _close_after_response(_request: web.Request, response: web.StreamResponse) -> None:
    response.force_close()


class _Connection(asyncio.Protocol):
    """Enforces the limits of a connection in front of aiohttp, which limits neither number nor duration."""

    def __init__(self, new_handler: Callable[[], asyncio.Protocol], connections: set[_Connection]) -> None:
        self._new_handler = new_handler
        self._handler: asyncio.Protocol | None = None
        self._connections = connections
        self._received_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        if len(self._connections) >= MAX_CONNECTIONS:
            transport.abort()
            return
        self._connections.add(self)
        self._deadline = asyncio.get_running_loop().call_later(CONNECTION_S, transport.abort)
        self._handler = self._new_handler()
        self._handler.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._connections.discard(self)
        if self._handler is not None:
            self._handler.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        if self._received_bytes > MAX_REQUEST_BYTES:
            self._transport.abort()
        elif self._handler is not None:
            self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received() if self._handler is not None else None

    def pause_writing(self) -> None:
        if self._handler is not None:
            self._handler.pause_writing()

    def resume_writing(self) -> None:
        if self._handler is not None:
            self._handler.resume_writing()


def _is_own_fault(record: logging.LogRecord) -> bool:
    """False for a request that is not HTTP: any stranger can send one, and aiohttp answers it with 400."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


_AIOHTTP_LOGGER = logging.getLogger(f"{__name__}.aiohttp")
_AIOHTTP_LOGGER.addFilter(_is_own_fault)
