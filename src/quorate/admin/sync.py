"""The blocking admin client. It runs the asyncio client on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Self

from quorate.admin.client import AdminClient as AsyncAdminClient


class AdminClient:
    """Has the methods of `quorate.admin.client.AdminClient` as blocking methods. It is thread-safe.

    with AdminClient("localhost:9092") as admin:
        admin.create_topics([NewTopic("t")])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="quorate-admin", daemon=True)
        self._thread.start()
        try:
            self._client = self._run(_create(args, kwargs))
        except BaseException:
            self._stop()
            raise

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if not inspect.iscoroutinefunction(method):
            return method

        @wraps(method)
        def blocking(*args: Any, **kwargs: Any) -> Any:
            return self._run(method(*args, **kwargs))

        return blocking

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def close(self) -> None:
        """Closes the connections and ends the thread. A second call does nothing."""
        if self._thread.is_alive():
            self._run(self._client.close())
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _create(args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncAdminClient:
    return AsyncAdminClient(*args, **kwargs)
