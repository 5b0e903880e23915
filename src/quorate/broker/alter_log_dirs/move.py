"""The move of one replica to another log directory (`ReplicaAlterLogDirsThread` in Kafka).

The records are copied from the current log to the future log. When these are equal, the new directory is
reported to the controller, and when the metadata has it, the future log replaces the current one (KIP-858).
Until then the current log serves all requests.

Everything runs on the event loop, except the disk work, which runs in a thread. At most one thread works on
a future log at a time, and nothing on the event loop changes the log meanwhile. A truncation of the current
log is therefore noted, and done on the future log before anything else is copied.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.log.errors import LogDirFailure
from quorate.log.partition.results import UnexpectedAppendOffset
from quorate.metadata.features import FIRST_DIRECTORIES
from quorate.threads import in_thread

if TYPE_CHECKING:
    from quorate.broker.replication.partition import Partition
    from quorate.broker.replication.replica_manager import ReplicaManager
    from quorate.log.partition.partition_log import PartitionLog
    from quorate.log.scheduler import Step
    from quorate.protocol.file_region import ReadAhead

logger = logging.getLogger("quorate.broker.alter_log_dirs")

_COPY_BYTES = 256 << 10
"""The most bytes of one copy, so that its thread does not hold the interpreter for long."""
_TAIL_BYTES = 128 << 10
"""The records that were appended during the last copy are copied on the event loop if they are at most so
many bytes. So the future log catches up although the current one grows without a pause."""
_MAX_DOUBLINGS = 6
"""The backoff after unexpected errors doubles at most this often: up to 64 s with the default of 1 s."""


class ReassignmentState(enum.Enum):
    """How far the report of the new directory is."""

    NONE = "not reported"
    QUEUED = "reported, the controller may have the new directory"
    ACCEPTED = "the metadata has the new directory"
    EFFECTIVE = "the replica is in the new directory"

    @property
    def may_be_inconsistent(self) -> bool:
        """Whether the metadata may name another directory than that of the current log."""
        return self in (ReassignmentState.QUEUED, ReassignmentState.ACCEPTED)


class LogDirMove:
    """Moves one replica. It is cancelled by `cancel`, and ends by itself when the replica has moved."""

    def __init__(
        self,
        partition: Partition,
        future: PartitionLog,
        replicas: ReplicaManager,
        *,
        slots: asyncio.Semaphore,
        max_bytes: int,
        backoff_s: float,
    ) -> None:
        """`slots` limits the number of replicas that are copied at once."""
        self.partition = partition
        self.future = future
        self.target: Path = future.log_dir
        self.state = ReassignmentState.NONE
        self.created: asyncio.Future[None] = replicas.loop.create_future()
        """Done when the future log has files. Has the LogDirFailure if they cannot be created."""
        self._replicas = replicas
        self._loop = replicas.loop
        self._quota = replicas.quotas.alter_log_dirs
        self._slots = slots
        self._max_bytes = min(max_bytes, _COPY_BYTES)
        self._backoff_s = backoff_s
        self._source_id = replicas.directories.id_of(partition.log.log_dir)
        self._target_id = replicas.directories.id_of(self.target)
        self._truncate_to: int | None = None
        """The lowest offset to which the current log was truncated, if the future log was not yet."""
        self._saved_start = future.log_start_offset
        """The log start offset that the future log would have after a crash."""
        self._copied_from_end = -1
        """The end of the current log when the last copy began, or -1 after a pause."""
        self._changed = asyncio.Event()
        self._cancelled = False
        self._deletes_future = False
        partition.move = self
        self.task = self._loop.create_task(self._run())
        self.task.add_done_callback(self._finished)

    def __repr__(self) -> str:
        return f"LogDirMove({self.partition.topic}-{self.partition.partition} to {self.target})"

    # --- called by the replica manager and the partition ------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """The log start offset that the future log keeps even after a crash, or that of the current log while
        nothing is copied. DeleteRecords waits for it."""
        future = self.future
        if future.log_end_offset == future.log_start_offset:
            return self.partition.log.log_start_offset
        return min(self._saved_start, future.log_start_offset)

    @property
    def awaits_metadata(self) -> bool:
        """Whether the new directory was reported to the controller and is not in the metadata yet."""
        return self.state is ReassignmentState.QUEUED

    def truncated(self, offset: int) -> None:
        """Notes that the current log was truncated to `offset`."""
        self._truncate_to = offset if self._truncate_to is None else min(self._truncate_to, offset)
        self._changed.set()

    def assigned(self, directory_id: bytes) -> None:
        """Notes the directory that the metadata assigns to the replica."""
        if directory_id == self._target_id and self.state is not ReassignmentState.EFFECTIVE:
            self.state = ReassignmentState.ACCEPTED
            self._changed.set()

    def cancel(self, *, delete: bool) -> None:
        """Ends the move. `delete` deletes the future log. Otherwise it stays for the next start of the
        broker, because its directory or that of the current log has failed."""
        if self._cancelled or self.state is ReassignmentState.EFFECTIVE:
            return
        self._cancelled, self._deletes_future = True, delete
        partition = self.partition
        partition.move = None
        # A little later, because the caller may take the partition offline or delete it.
        self._loop.call_soon(partition.complete_deletions)
        if delete:
            self._replicas.logs.futures.remove(partition.topic, partition.partition)
        if self.state.may_be_inconsistent and self._replicas.directories.assign is not None:
            self._replicas.directories.assign(partition.topic_id, partition.partition, self._source_id)
        logger.info("[ReplicaAlterLogDirs] The move of %s-%d to %s was cancelled", *self._names())
        self.task.cancel()

    def _finished(self, task: asyncio.Task[None]) -> None:
        if not self.created.done():
            self.created.cancel()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("[ReplicaAlterLogDirs] %r failed", self, exc_info=error)
        if self._deletes_future:
            self._replicas.logs.futures.delete_files(self.future)

    def _names(self) -> tuple[str, int, Path]:
        return self.partition.topic, self.partition.partition, self.target

    # --- the task ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                if not self.future.has_files:
                    await self._create_files()
                if not self.created.done():
                    self.created.set_result(None)
                async with self._slots:
                    await self._move()
                return
            except LogDirFailure as failure:
                if not self.created.done():
                    self.created.set_exception(failure)
                logger.error("[ReplicaAlterLogDirs] %s", failure)
                self._replicas.handle_storage_failure(failure)
                self.cancel(delete=False)
                return
            except Exception:
                delay_s = self._backoff_s * (1 << min(failures, _MAX_DOUBLINGS))
                failures += 1
                logger.exception("[ReplicaAlterLogDirs] %r failed; trying again in %.1f s", self, delay_s)
                await asyncio.sleep(delay_s)

    async def _create_files(self) -> None:
        await self._take(self._replicas.logs.futures.purge_checkpoints(self.future))
        await in_thread(self.future.create_files)

    async def _move(self) -> None:
        """Copies until the future log has replaced the current one."""
        topic, partition, target = self._names()
        logger.info(
            "[ReplicaAlterLogDirs] Copying %s-%d to %s from offset %d",
            *(topic, partition, target, self.future.log_end_offset),
        )
        self.truncated(self._certain_end())
        self._take_assignment()
        while True:
            if self._truncate_to is not None:
                await self._truncate()
                continue
            log, future = self.partition.log, self.future
            if self._follow_offsets(log):
                await in_thread(self._delete_old_segments)
                await self._save_log_start()
            elif future.log_end_offset == log.log_end_offset:
                if self.state is ReassignmentState.ACCEPTED:
                    self._replace_current()
                    return
                await self._report()
            elif not log.log_start_offset <= future.log_end_offset <= log.log_end_offset:
                await self._restart(log)
            elif self._quota.is_exceeded(self._replicas.clock.now()):
                await self._pause(min(self._quota.delay_s(self._replicas.clock.now()), self._backoff_s))
            else:
                await self._copy(log)

    # --- truncation and offsets -------------------------------------------------------------------

    def _certain_end(self) -> int:
        """The offset up to which the future log is certainly a copy of the current one. A power failure may
        have left a gap in it."""
        end, gap = self._common_end(), self.future.gap_start
        return end if gap is None else min(end, gap)

    def _common_end(self) -> int:
        """The offset up to which the leader epochs of both logs are the same. The current log may have been
        truncated and written again while the future log was closed."""
        log, future = self.partition.log, self.future
        end, epoch = future.log_end_offset, future.latest_epoch
        if epoch is None:
            return min(future.high_watermark, log.log_end_offset)
        while True:
            found, found_end = log.end_offset_for_epoch(epoch)
            if found_end < 0:
                return min(future.high_watermark, log.log_end_offset)
            own, own_end = future.end_offset_for_epoch(found)
            if own_end < 0:
                return min(found_end, end)
            end = min(end, own_end)
            if own == found:
                return min(found_end, end)
            epoch = own

    async def _truncate(self) -> None:
        """Truncates the future log like the current one."""
        offset, self._truncate_to = self._truncate_to, None
        assert offset is not None
        if offset < self.future.log_end_offset:
            await in_thread(self.future.truncate_to, offset)
            self._replicas.logs.lower_checkpoints([self.future])
            self._copied_from_end = -1

    async def _restart(self, log: PartitionLog) -> None:
        """Begins again at the start of the current log, or ends where it ends."""
        start, end = log.log_start_offset, log.log_end_offset
        if self.future.log_end_offset > end:
            self.truncated(end)
            return
        await in_thread(self.future.truncate_fully_and_start_at, start)
        self._replicas.logs.lower_checkpoints([self.future])
        await self._save_log_start()

    def _follow_offsets(self, log: PartitionLog) -> bool:
        """Takes over the high watermark and the log start offset. Returns whether the latter has moved."""
        future = self.future
        future.high_watermark = log.high_watermark
        if not future.log_start_offset < log.log_start_offset <= future.high_watermark:
            return False
        future.increment_log_start_offset(log.log_start_offset, "the log start offset of the current log")
        return True

    def _delete_old_segments(self) -> None:
        self.future.delete_old_segments(self._replicas.clock.now_ms())

    async def _save_log_start(self) -> None:
        """Makes the log start offset durable, and completes the deletions that wait for it. Deleted records
        would otherwise come back if the broker crashed after the move."""
        start = self.future.log_start_offset
        if self.future.log_start_to_checkpoint is not None:
            await self._take(self._replicas.logs.futures.checkpoint_log_starts(self.future))
        self._saved_start = start
        self.partition.complete_deletions()

    # --- copying ----------------------------------------------------------------------------------

    async def _copy(self, log: PartitionLog) -> None:
        """Copies the next records of the current log."""
        start = self.future.log_end_offset
        try:
            cold = log.cold_regions(start)
        except OSError:
            cold = []  # the read below rebuilds a missing index and raises any other error again
        if cold:
            await in_thread(_read, log, cold)
            if self._truncate_to is not None or not log.log_start_offset <= start <= log.log_end_offset:
                return
        data = log.read(start, self._max_bytes)
        if not data.size:  # a gap before the log end: the next append comes after it
            await self._pause(self._backoff_s)
            return
        is_tail = 0 <= self._copied_from_end <= start and data.size <= _TAIL_BYTES
        self._copied_from_end = log.log_end_offset
        try:
            if is_tail:
                self._append(log, data.parts)
            else:
                await in_thread(self._append, log, data.parts)
        except Exception:
            if self._truncate_to is None:  # otherwise the file may have changed while it was read
                raise
        self._quota.record(data.size, self._replicas.clock.now())

    def _append(self, log: PartitionLog, parts: Sequence[ReadAhead]) -> None:
        """Appends parts of the current log. Called in a thread, or on the event loop for a few records."""
        records = _read(log, parts)
        future, now_ms = self.future, self._replicas.clock.now_ms()
        try:
            future.append_as_follower(records, now_ms)
        except UnexpectedAppendOffset as unexpected:
            if (
                future.log_end_offset != future.log_start_offset
                or unexpected.last_offset < future.log_end_offset
            ):
                raise
            # The current log starts inside of this batch.
            self._saved_start = unexpected.first_offset
            future.truncate_fully_and_start_at(unexpected.first_offset)
            future.append_as_follower(records, now_ms)

    # --- promotion --------------------------------------------------------------------------------

    def _take_assignment(self) -> None:
        """Looks up the directory in the metadata. Below the metadata.version of directories there is no
        report."""
        metadata = self._replicas.metadata
        if (
            self._replicas.directories.assign is None
            or metadata.image.features.metadata_version < FIRST_DIRECTORIES
        ):
            self.state = ReassignmentState.ACCEPTED
            return
        image = metadata.partition(self.partition.topic, self.partition.partition)
        if image is not None and self._replicas.node_id in image.replicas:
            self.assigned(image.directory(self._replicas.node_id))

    async def _report(self) -> None:
        """Reports the new directory once, after the copied records are durable, and waits for the
        metadata or for more records."""
        if self.state is ReassignmentState.QUEUED:
            await self._pause(self._backoff_s)
            return
        await in_thread(self.future.flush)
        self._take_assignment()
        if self.state is ReassignmentState.NONE and self._replicas.directories.assign is not None:
            self.state = ReassignmentState.QUEUED
            self._replicas.directories.assign(
                self.partition.topic_id, self.partition.partition, self._target_id
            )

    def _replace_current(self) -> None:
        """Replaces the current log. Nothing is appended in between, because this is one callback."""
        topic, index, _ = self._names()
        future = self._replicas.logs.futures.replace_current(topic, index, self._replicas.clock.now_ms())
        self.state = ReassignmentState.EFFECTIVE
        self.partition.move = None
        self.partition.use_log(future)
        logger.info("[ReplicaAlterLogDirs] %s-%d has moved to %s", *self._names())

    # --- waiting ----------------------------------------------------------------------------------

    async def _pause(self, longest_s: float) -> None:
        """Waits for a change of the assignment, or a truncation, but not longer than `longest_s`."""
        self._copied_from_end = -1
        self._changed.clear()
        try:
            async with asyncio.timeout(longest_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _take(self, steps: Iterator[Step]) -> None:
        """Takes steps, those on the disk in a thread."""
        for step in steps:
            await (asyncio.sleep(0) if step is None else in_thread(step))


def _read(log: PartitionLog, parts: Sequence[ReadAhead]) -> bytes:
    """The bytes of parts of a log. Raises LogDirFailure, and EOFError if the log was truncated meanwhile."""
    try:
        return b"".join(part.read() for part in parts)
    except OSError as e:
        raise LogDirFailure(str(log.log_dir), f"Error while reading from {log.name}: {e}") from e
