"""The periodic tasks of a broker: retention, checkpoints, flushes, and ISRs that shrink.

There is one task for each job, for all partitions. A run works in slices and yields to the event loop
between them. Steps that wait for a disk run in a thread. A directory that fails is reported and skipped.
Failures of the logs' background work are reported at once: until then a broken disk would take records.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from quorate.log.directories.periodic_jobs import apply_retention, expire_producers, flush_due
from quorate.log.errors import LogDirFailure
from quorate.log.partition.flusher import save_epochs_in_advance

if TYPE_CHECKING:
    from quorate.broker.replication.replica_manager import ReplicaManager
    from quorate.config.kafka_config import KafkaConfig
    from quorate.log.directories.manager import LogManager
    from quorate.log.scheduler import Step

logger = logging.getLogger("quorate.broker.log_maintenance")

_FOREVER_MS = 1 << 62
_FIRST_RUN_S = 30.0
"""The latest time of the first run, as in Kafka: a broker that restarts every hour must still delete old
segments."""


class LogMaintenance:
    """Runs the jobs. The interval of a job is the time between the end of a run and the next run."""

    def __init__(
        self,
        config: KafkaConfig,
        logs: LogManager,
        replicas: ReplicaManager,
        storage_failed: Callable[[LogDirFailure], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._storage_failed = storage_failed
        self._loop = loop
        self._tasks: list[asyncio.Task[None]] = []
        self._threads: set[asyncio.Future[None]] = set()
        self._jobs: list[tuple[str, float, Callable[[], Iterable[Step] | None]]] = [
            ("retention", config.get("log.retention.check.interval.ms"), partial(apply_retention, logs)),
            (
                "producer expiration",
                config.get("producer.id.expiration.check.interval.ms"),
                partial(expire_producers, logs),
            ),
            (
                "recovery point checkpoint",
                config.get("log.flush.offset.checkpoint.interval.ms"),
                logs.checkpoint_recovery_points,
            ),
            (
                "leader epoch checkpoint",
                config.get("log.flush.offset.checkpoint.interval.ms"),
                lambda: save_epochs_in_advance([log.flusher for log in logs.all_logs()]),
            ),
            (
                "log start checkpoint",
                config.get("log.flush.start.offset.checkpoint.interval.ms"),
                logs.checkpoint_log_start_offsets,
            ),
            (
                "high watermark checkpoint",
                config.get("replica.high.watermark.checkpoint.interval.ms"),
                logs.checkpoint_high_watermarks,
            ),
            ("ISR", config.get("replica.lag.time.max.ms") / 2, replicas.shrink_isrs),
            (
                "flush",
                min(config.get("log.flush.scheduler.interval.ms"), _FOREVER_MS),
                partial(flush_due, logs),
            ),
        ]

    def start(self) -> None:
        """Starts the periodic tasks of all logs."""
        self._logs.on_background_failure(self._background_failed)
        self._report_failures()  # those until now, for example at the removal of stray logs
        for name, interval_ms, job in self._jobs:
            if interval_ms < _FOREVER_MS:
                first_s = min(interval_ms / 1000, _FIRST_RUN_S)
                self._tasks.append(self._loop.create_task(self._run(name, first_s, interval_ms / 1000, job)))

    async def close(self) -> None:
        """Cancels the tasks and waits for their threads. After that the logs may be closed."""
        self._logs.on_background_failure(None)
        tasks, self._tasks = self._tasks, []
        threads = list(self._threads)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for error in await asyncio.gather(*threads, return_exceptions=True):
            # The task does not wait for its thread any more. asyncio would log the error with a traceback.
            if error is not None:
                logger.warning(
                    "[Upkeep broker=%d] A job failed at the end: %s", self._replicas.node_id, error
                )

    def _background_failed(self) -> None:
        """Called in the thread of the background work."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._report_failures)

    def _report_failures(self) -> None:
        for failure in self._logs.background_failures():
            self._storage_failed(failure)

    async def _in_thread(self, work: Callable[[], None]) -> None:
        future = self._loop.run_in_executor(None, work)
        self._threads.add(future)
        future.add_done_callback(self._threads.discard)
        await asyncio.shield(future)  # a thread cannot be cancelled: `close` waits for it

    async def _run(
        self, name: str, first_s: float, interval_s: float, job: Callable[[], Iterable[Step] | None]
    ) -> None:
        await asyncio.sleep(first_s)
        while True:
            try:
                for step in job() or ():
                    if step is None:
                        await asyncio.sleep(0)
                    else:
                        await self._in_thread(step)
            except LogDirFailure as error:
                self._storage_failed(error)
            except Exception:
                logger.exception("[Upkeep broker=%d] %s failed", self._replicas.node_id, name)
            await asyncio.sleep(interval_s)
