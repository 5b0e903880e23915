"""Follows the metadata log of a running quorum, as an observer without an id.

The active controller sends its snapshot and the committed log after it, and then each change. A follower that
loses the controller keeps what it has, and continues with the next one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError, NetError, check, error_text
from quorate.admin.transport import Transport
from quorate.metadata.errors import MetadataError
from quorate.metadata.image import EMPTY
from quorate.metadata.snapshot import read_snapshot
from quorate.protocol import messages
from quorate.protocol.uuids import METADATA_TOPIC_ID
from quorate.tools.command_line import ToolError
from quorate.tools.shell.nodes import Control
from quorate.tools.shell.source import Metadata, Replay, image_of

METADATA_TOPIC = "__cluster_metadata"
MAX_WAIT_MS = 500
"""How long the controller may wait for new records before it answers a Fetch."""

MAX_FETCH_BYTES = 8 << 20
RETRY_S = 0.1
_ELSEWHERE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
"""The errors after which the leader and its epoch must be found again."""


class Follower:
    """The metadata of a quorum. A thread keeps it up to date until `close`."""

    def __init__(self, create_client: Callable[[], AdminClient]) -> None:
        """Returns when the committed log has been read. Raises ToolError if that fails."""
        self._create_client = create_client
        self._replay = Replay(EMPTY, Control(), 0)
        self._leader_epoch = -1
        self._caught_up = threading.Event()
        self._task: asyncio.Task[None]
        self._failure: Exception | None = None
        self._lost: Exception | None = None
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
        if self._lost is None:
            return None
        last = self._replay.image.provenance.offset
        return f"(the quorum is away, this is the metadata up to offset {last}: {error_text(self._lost)})"

    def close(self) -> None:
        """Ends the thread."""
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
                while True:
                    await self._step(admin)
        except Exception as error:
            self._failure = self._lost = error
        finally:
            self._caught_up.set()

    async def _step(self, admin: AdminClient) -> None:
        """Fetches once. An error of the network is kept for `notice` once the log has been read."""
        try:
            if self._leader_epoch < 0:
                self._leader_epoch = (await admin.describe_quorum()).leader_epoch
            progress = await self._fetch(admin.transport)
            self._lost = None
        except (KafkaError, NetError) as error:
            if not self._caught_up.is_set() and not (
                isinstance(error, KafkaError) and error.code in _ELSEWHERE
            ):
                raise
            self._leader_epoch = -1
            self._lost = error
            admin.transport.doubt()
            progress = False
        if not progress:
            await asyncio.sleep(RETRY_S)

    async def _fetch(self, transport: Transport) -> bool:
        """Reads the next records. Returns whether there were any."""
        image = self._replay.image
        partition = messages.FetchRequest.FetchPartition(
            partition=0,
            current_leader_epoch=self._leader_epoch,
            fetch_offset=self._replay.end_offset,
            last_fetched_epoch=max(image.provenance.epoch, 0),
            partition_max_bytes=MAX_FETCH_BYTES,
        )
        request = messages.FetchRequest(
            max_wait_ms=MAX_WAIT_MS if self._caught_up.is_set() else 0,
            max_bytes=MAX_FETCH_BYTES,
            topics=[
                messages.FetchRequest.FetchTopic(
                    topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
                )
            ],
        )
        answer = await transport.ask(await transport.controller_address(), request)
        check(answer.error_code)
        found = answer.responses[0].partitions[0]
        check(found.error_code)
        if found.snapshot_id.end_offset >= 0:
            await self._fetch_snapshot(transport, found.snapshot_id)
            return True
        if found.diverging_epoch.end_offset >= 0:  # only committed records were read: another cluster
            raise MetadataError("the metadata log of the quorum is another than before")
        before = self._replay.end_offset
        if found.records:
            self._replay.take(bytes(found.records), METADATA_TOPIC, end=found.high_watermark)
        if self._replay.end_offset >= found.high_watermark:
            self._caught_up.set()
        return self._replay.end_offset > before

    async def _fetch_snapshot(self, transport: Transport, wanted: Any) -> None:
        data = bytearray()
        size = -1
        while size < 0 or len(data) < size:
            part = messages.FetchSnapshotRequest.PartitionSnapshot(
                partition=0,
                current_leader_epoch=self._leader_epoch,
                snapshot_id=messages.FetchSnapshotRequest.SnapshotId(
                    end_offset=wanted.end_offset, epoch=wanted.epoch
                ),
                position=len(data),
            )
            request = messages.FetchSnapshotRequest(
                max_bytes=MAX_FETCH_BYTES,
                topics=[messages.FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=[part])],
            )
            answer = await transport.ask(await transport.controller_address(), request)
            check(answer.error_code)
            found = answer.topics[0].partitions[0]
            check(found.error_code)
            size = found.size
            if not found.unaligned_records and len(data) < size:
                raise MetadataError("the active controller sent an empty part of its snapshot")
            data += found.unaligned_records
        image, control = image_of(read_snapshot(memoryview(bytes(data))), wanted.end_offset, wanted.epoch)
        self._replay = Replay(image, control, wanted.end_offset)
