"""A blocking client of the active controller of a quorum.

It works through a change of the active controller: each request is repeated until
`default.api.timeout.ms` has elapsed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import IO, Self, TypeVar

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError
from quorate.admin.metadata_log import MAX_FETCH_BYTES, Fetched, MetadataObserver, SnapshotId
from quorate.pipeline.live.offsets import UNKNOWN_EPOCH, OffsetError

T = TypeVar("T")


class Quorum:
    """Connections to the controllers of one cluster, which `close` ends."""

    def __init__(
        self, controllers: str, properties: Mapping[str, str], cluster_id: str | None = None
    ) -> None:
        """`controllers` are addresses with commas, `properties` Kafka's properties of clients.

        Raises OffsetError if the cluster has another id, ValueError, KafkaError and NetError.
        """
        self.name = f"the metadata log of {controllers}"
        self._runner = asyncio.Runner()
        try:
            self._admin = self._runner.run(_connect(controllers, properties))
            self.cluster_id = self._runner.run(MetadataObserver(self._admin).cluster_id())
            if cluster_id is not None and cluster_id != self.cluster_id:
                raise OffsetError(
                    f"the stream has read cluster {cluster_id}, but {controllers} is cluster "
                    f"{self.cluster_id}"
                )
        except BaseException:
            self._runner.close()
            raise
        self._observer = MetadataObserver(self._admin, self.cluster_id)

    def fetch(
        self, offset: int, epoch: int, *, max_wait_ms: int = 0, max_bytes: int = MAX_FETCH_BYTES
    ) -> Fetched:
        """Fetches from an offset on. `epoch` is that of the record before it, or UNKNOWN_EPOCH.

        Raises OffsetError if the log of the quorum does not contain the record before the offset.
        """
        known = None if epoch == UNKNOWN_EPOCH else epoch

        async def attempt() -> Fetched:
            return await self._observer.fetch(offset, known, max_wait_ms=max_wait_ms, max_bytes=max_bytes)

        found = self._runner.run(self._retried(attempt))
        if found.diverging_end_offset is not None:
            raise OffsetError(
                f"{self.name} has another history than what was read up to offset {offset}"
                + (f" in epoch {epoch}" if known is not None else "")
                + f": it ends at offset {found.diverging_end_offset}"
                + (" in that epoch" if known is not None else "")
            )
        return found

    def download(self, snapshot: SnapshotId, file: IO[bytes]) -> int:
        """Writes a snapshot to a file and returns its size."""
        size = self._runner.run(self._observer.download(snapshot, file, self._retried))
        file.flush()
        return size

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._admin.transport.until_answered(attempt, "records of the metadata log")
        except KafkaError as error:
            if error.code is ErrorCode.INCONSISTENT_CLUSTER_ID:
                raise OffsetError(f"{self.name} is no longer that of cluster {self.cluster_id}") from error
            raise

    def close(self) -> None:
        """Closes the connections to the controllers."""
        self._runner.run(self._admin.close())
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _connect(controllers: str, properties: Mapping[str, str]) -> AdminClient:
    return AdminClient.from_properties(properties, bootstrap_controllers=controllers)
