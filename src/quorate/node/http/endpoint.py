"""Starts and stops the HTTP server of a node without a delay of the node's start.

The libraries of the server take a quarter of a second to import. They are imported in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from quorate.config.listeners import shown_address
from quorate.lazy import lazy_module
from quorate.net.sockets import bind_sockets
from quorate.node.monitoring.metrics import MetricsCollector

if TYPE_CHECKING:
    from quorate.node.http import server
    from quorate.node.monitoring import loop_lag
else:
    loop_lag = lazy_module("quorate.node.monitoring.loop_lag")
    server = lazy_module("quorate.node.http.server")

logger = logging.getLogger(__name__)


class HttpEndpoint:
    """/metrics and /health of a node, and the measurement of its event loop's lag."""

    def __init__(
        self,
        node_id: int,
        metrics: MetricsCollector,
        health: server.Health,
        readiness: server.Health,
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._node_id = node_id
        self._metrics = metrics
        self._health = health
        self._readiness = readiness
        self._on_fault = on_fault
        self._server: server.HttpServer | None = None
        self._starting: asyncio.Task[None] | None = None
        self._loop_lag: loop_lag.LoopLagMonitor | None = None

    def start(self, host: str, port: int) -> None:
        """Listens at once and answers requests as soon as the libraries are imported.

        Raises ListenerError if the port is in use. A later error is given to `on_fault`.
        """
        [sock] = bind_sockets(host, port, "HTTP")
        sock.listen()
        address = shown_address(host, sock.getsockname()[1])
        logger.info("[KafkaServer id=%d] /metrics and /health on %s", self._node_id, address)
        self._starting = asyncio.create_task(self._serve(sock))
        self._loop_lag = loop_lag.LoopLagMonitor(asyncio.get_running_loop(), self._node_id)
        self._loop_lag.start()
        self._metrics.add("quorate_node", self._loop_lag.metrics)
        self._metrics.add_families(self._loop_lag.families)

    async def close(self) -> None:
        """Stops the server and the measurement. Does nothing if they were not started."""
        if self._loop_lag is not None:
            self._loop_lag.close()
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._server is not None:
            await self._server.close()
            self._server = None

    async def _serve(self, sock: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, import_module, server.__name__)
            self._server = server.HttpServer(self._metrics, self._health, self._readiness)
            await self._server.start(sock)
        except Exception as e:
            sock.close()
            self._on_fault(e)
