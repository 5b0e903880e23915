"""Starts, resumes and ends the moves of replicas between log directories (`ReplicaAlterLogDirsManager` in
Kafka, and `ReplicaManager.alterReplicaLogDirs`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module
from quorate.log.partition.local_log import is_future_name_too_long
from quorate.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from quorate.broker.alter_log_dirs import move as log_dir_move
    from quorate.broker.alter_log_dirs.move import LogDirMove
    from quorate.broker.replication.partition import Partition
    from quorate.broker.replication.replica_manager import ReplicaManager
    from quorate.config.kafka_config import KafkaConfig
    from quorate.log.directories.manager import LogManager
    from quorate.log.partition.partition_log import PartitionLog
else:
    log_dir_move = lazy_module("quorate.broker.alter_log_dirs.move")

logger = logging.getLogger("quorate.broker.alter_log_dirs")

_SLICE = 16
"""Moves that are started or refused between two turns of the event loop."""


class ReplicaAlterLogDirsManager:
    """The moves of a broker."""

    def __init__(self, config: KafkaConfig, replicas: ReplicaManager, logs: LogManager) -> None:
        self._replicas = replicas
        self._logs = logs
        threads = config.get("num.replica.alter.log.dirs.threads")
        self._slots = asyncio.Semaphore(max(1, len(config.log_dirs) if threads is None else threads))
        self._max_bytes: int = config.get("replica.fetch.max.bytes")
        self._backoff_s: float = config.get("replica.fetch.backoff.ms") / 1000
        self._moves: dict[LogDirMove, None] = {}
        """In the order in which they were started: a set would forget it."""

    def __len__(self) -> int:
        """The number of moves in progress."""
        return len(self._moves)

    async def alter(self, wanted: Sequence[tuple[str, int, Path]]) -> list[ErrorCode]:
        """Moves replicas, given as (topic, partition, directory). Returns the result of each when its future
        log has been created.

        A move to another directory replaces one in progress. One to the directory of the current log
        cancels it.
        """
        results: list[ErrorCode] = []
        begun: list[tuple[int, LogDirMove]] = []
        for number, (topic, partition, target) in enumerate(wanted):
            if number and not number % _SLICE:
                await asyncio.sleep(0)
            results.append(ErrorCode.NONE)
            try:
                move = self._alter(topic, partition, target)
            except KafkaError as error:
                logger.warning(
                    "[ReplicaAlterLogDirs] %s-%d is not moved to %s: %s", topic, partition, target, error
                )
                is_elsewhere = error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                results[number] = ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else error.code
                continue
            if move is not None:
                begun.append((number, move))
        for number, move in begun:
            await asyncio.wait([move.created])
            if not move.created.cancelled() and move.created.exception() is not None:
                results[number] = ErrorCode.KAFKA_STORAGE_ERROR
        return results

    def _alter(self, topic: str, index: int, target: Path) -> LogDirMove | None:
        """Starts or cancels a move. Returns the one in progress."""
        self._check_target(topic, index, target)
        partition = self._replicas.partitions.get((topic, index))
        if partition is None:
            missing = self._replicas.missing(topic, index)
            if missing.code != ErrorCode.KAFKA_STORAGE_ERROR:
                self._logs.futures.prefer(topic, index, target)
            raise missing
        move = partition.move
        if isinstance(move, log_dir_move.LogDirMove):
            if move.target == target:
                return move
            move.cancel(delete=True)
        log = partition.log
        if log.log_dir == target:
            return None
        if len(self._logs.online_dirs()) < len(self._logs.dirs):
            # The future log of this replica may be in the directory that is offline.
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} is not moved while a directory is offline."
            )
        future = self._logs.futures.create(log, target, self._replicas.clock.now_ms())
        return self._start(partition, future)

    def _check_target(self, topic: str, index: int, target: Path) -> None:
        if is_future_name_too_long(topic, index):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        if target not in self._logs.dirs:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"There is no log directory {target}.")
        if not self._logs.is_online(target):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {target} is offline.")
        if target in self._logs.cordoned:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {target} is cordoned.")

    def _start(self, partition: Partition, future: PartitionLog) -> LogDirMove:
        move = log_dir_move.LogDirMove(
            partition,
            future,
            self._replicas,
            slots=self._slots,
            max_bytes=self._max_bytes,
            backoff_s=self._backoff_s,
        )
        self._moves[move] = None
        move.task.add_done_callback(lambda _task: self._moves.pop(move, None))
        return move

    def resume(self) -> None:
        """Continues the moves whose future logs were found at the start."""
        for future in self._logs.futures:
            partition = self._replicas.partitions.get((future.topic, future.partition))
            if partition is None or partition.topic_id != future.topic_id:
                continue  # for example, its current log is in a directory that is offline
            try:
                if partition.log.log_dir != future.log_dir:
                    self._start(partition, future)
            except KafkaError as error:
                logger.error("[ReplicaAlterLogDirs] The move of %r is not continued: %s", partition, error)

    def directory_failed(self, directory: Path) -> None:
        """Ends the moves to a directory that has failed. Their replicas stay where they are."""
        for move in list(self._moves):
            if move.target == directory:
                move.cancel(delete=False)

    async def close(self) -> None:
        """Stops all moves. The next start continues them."""
        tasks = [move.task for move in self._moves]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
