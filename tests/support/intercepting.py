"""A TCP proxy in front of a node that answers some of the requests itself. The node never sees these."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from quorate.protocol.api import ApiKey, decode_request, encode_response

Answer = Callable[[Any], Any]
"""Gives the response to a decoded request."""


class InterceptingProxy:
    """Listens on `port` in a thread of its own. Each of `answers[api key]` is given to one request, in
    order; what comes after them, and all other requests, go to the node."""

    def __init__(self, port: int, upstream_port: int, answers: dict[ApiKey, list[Answer]]) -> None:
        self.port = port
        self._upstream_port = upstream_port
        self._answers: dict[int, list[Answer]] = defaultdict(
            list, {int(key): list(todo) for key, todo in answers.items()}
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._pumps: set[asyncio.Task[None]] = set()

    @property
    def left(self) -> dict[str, int]:
        """How many answers were not given yet, by the name of their API."""
        return {ApiKey(key).name: len(todo) for key, todo in self._answers.items() if todo}

    @contextlib.contextmanager
    def running(self) -> Iterator[InterceptingProxy]:
        self._thread.start()
        serve = asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        server = asyncio.run_coroutine_threadsafe(serve, self._loop).result(10)
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._close(server), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        except OSError:
            writer.close()
            return

        def intercept(frame: bytes) -> bool:
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            if not self._answers[key]:
                return False
            response = self._answers[key].pop(0)(decode_request(memoryview(frame))[1])
            answer = b"".join(bytes(part) for part in encode_response(correlation_id, key, version, response))  # type: ignore[arg-type]
            writer.write(struct.pack(">i", len(answer)) + answer)
            return True

        for pump in (
            self._pump(reader, upstream_writer, intercept),
            self._pump(upstream_reader, writer, lambda _frame: False),
        ):
            task = asyncio.ensure_future(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    @staticmethod
    async def _pump(
        source: asyncio.StreamReader, target: asyncio.StreamWriter, taken: Callable[[bytes], bool]
    ) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await source.readexactly(4))
                frame = await source.readexactly(size)
                if not taken(frame):
                    target.write(struct.pack(">i", size) + frame)
                    await target.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            target.close()
