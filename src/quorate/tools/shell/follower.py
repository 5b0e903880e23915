"""The metadata of a running quorum, which a thread keeps up to date.

A follower that loses the active controller keeps what it has, and continues with the next one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from quorate.admin.client import AdminClient
from quorate.admin.errors import error_text
from quorate.admin.metadata_log import MetadataObserver
from quorate.admin.quorum_log import QuorumLog
from quorate.metadata.image.image import EMPTY_WITHOUT_INDEXES
from quorate.tools.command_line import ToolError
from quorate.tools.shell.nodes import Control
from quorate.tools.shell.source import Metadata, Replay

RETRY_S = 0.1


class Follower:
    """The metadata of a quorum. A thread keeps it up to date until `close`."""

    def __init__(self, create_client: Callable[[], AdminClient]) -> None:
        """Returns when the committed log has been read. Raises ToolError if that fails."""
        self._create_client = create_client
        self._replay = Replay(EMPTY_WITHOUT_INDEXES, Control(), 0)
        self._log = QuorumLog(self._replay)
        self._caught_up = threading.Event()
        self._task: asyncio.Task[None]
        self._failure: Exception | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="metadata-follower", daemon=True)
        self._thread.start()
        try:
            self._caught_up.wait()
        except BaseException:
            self.close()
            raise
        if self._failure is not None:
            self.close()
            raise ToolError(f"Error: {error_text(self._failure)}") from self._failure

    @property
    def metadata(self) -> Metadata:
        """The newest image, and what the control records say."""
        return self._replay.image, self._replay.control

    def notice(self) -> str | None:
        """Returns a text if the quorum is away, so that the metadata may be old."""
        lost = self._failure or self._log.lost
        if lost is None:
            return None
        last = self._replay.image.provenance.offset
        return f"(the quorum is away, this is the metadata up to offset {last}: {error_text(lost)})"

    def close(self) -> None:
        """Stops following the quorum, and waits for the thread."""
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._task = self._loop.create_task(self._follow())
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._task)
        finally:
            self._loop.close()

    async def _follow(self) -> None:
        try:
            async with self._create_client() as admin:
                observer = MetadataObserver(admin)
                while True:
                    await self._step(observer)
        except Exception as error:
            self._failure = error
        finally:
            self._caught_up.set()

    async def _step(self, observer: MetadataObserver) -> None:
        progress = await self._log.step(observer)
        if self._log.caught_up:
            self._caught_up.set()
        if not progress:
            await asyncio.sleep(RETRY_S)
