"""A small HTTP listener for operators: /metrics and /health. GET and HEAD only, one request a connection, every size bounded.

It serves from the first moment of the start on, so that a node that takes long to come up can be asked what it is doing.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from quorate.net.sockets import bind_sockets

if TYPE_CHECKING:
    from quorate.node.exposition import Exposition

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 8192  # request line and headers: what every HTTP server takes at least
REQUEST_WITHIN_S = 5.0  # a client that is silent for longer is a mistake or an attack
MAX_CONNECTIONS = 64  # a scraper needs one
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error",
            503: "Service Unavailable"}  # fmt: skip


class HttpEndpoint:
    """health gives (whether the node is ready, what to tell)."""

    def __init__(self, metrics: Exposition, health: Callable[[], tuple[bool, Mapping[str, object]]]) -> None:
        self._metrics = metrics
        self._health = health
        self._server: asyncio.Server | None = None
        self._open = 0
        self._import: asyncio.Future[object] | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Raises ListenerError where the port is taken."""
        loop = asyncio.get_running_loop()
        [first, *others] = bind_sockets(host, port, "HTTP")
        for other in others:
            other.close()
        self._server = await asyncio.start_server(self._serve, sock=first, limit=MAX_HEAD_BYTES)
        self.port = first.getsockname()[1]
        self._import = loop.run_in_executor(None, _load)  # so that the first question need not wait
        log.info("[Http] /metrics and /health on %s:%d", host, self.port)

    async def close(self) -> None:
        if self._import is not None:
            await asyncio.wait([self._import])
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_WITHIN_S):
                    writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # nothing that could be answered
        finally:
            self._open -= 1
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        try:
            line, *headers = head.decode("latin-1").split("\r\n")
            method, target, version = line.split(" ")
            if not version.startswith("HTTP/1."):
                raise ValueError(version)
        except ValueError:
            return _response(400, "text/plain", b"what is this?\n")
        if method not in ("GET", "HEAD"):
            return _response(405, "text/plain", b"GET or HEAD\n", extra="Allow: GET, HEAD\r\n")
        accept = next((h.partition(":")[2].strip() for h in headers if h.lower().startswith("accept:")), "")
        try:
            status, kind, body = self._page(target.partition("?")[0], accept)
        except Exception:
            log.exception("[Http] %s failed", target)
            status, kind, body = 500, "text/plain", b"see the log\n"
        return _response(status, kind, body, head_only=method == "HEAD")

    def _page(self, path: str, accept: str) -> tuple[int, str, bytes]:
        if path == "/metrics":
            body, kind = self._metrics.render(accept)
            return 200, kind, body
        if path == "/health":
            ready, told = self._health()
            return 200 if ready else 503, "application/json", json.dumps(told).encode() + b"\n"
        return 404, "text/plain", b"/metrics, /health\n"


def _load() -> object:
    import prometheus_client.exposition

    return prometheus_client.exposition


def _response(status: int, kind: str, body: bytes, *, head_only: bool = False, extra: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"{extra}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if head_only else body)
