"""Reads and awaits the high watermark of the partitions of an internal topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from quorate.broker.replication.purgatory import DelayedAcks
from quorate.protocol.errors import ErrorCode, KafkaError


class Replicas(Protocol):
    """The members of the `ReplicaManager` that a coordinator uses."""

    def append_internal(
        self, topic: str, partition_id: int, batch: bytes, *, timeout_s: float = ...
    ) -> asyncio.Future[int]: ...

    def local_log(self, topic: str, partition: int) -> Any: ...

    def partition(self, topic: str, partition: int) -> Any: ...

    def subscribe_leadership(
        self, listener: Callable[[str, int, int | None], None], topic: str | None = ...
    ) -> None: ...

    def handle_storage_failure(self, error: BaseException) -> None: ...


class HighWatermarks:
    """The high watermarks of the partitions of one topic."""

    __slots__ = ("_replicas", "_timeout_s", "_topic")

    def __init__(self, replicas: Replicas, topic: str, timeout_s: float) -> None:
        """`timeout_s` limits each wait."""
        self._replicas = replicas
        self._topic = topic
        self._timeout_s = timeout_s

    def current(self, partition: int) -> int:
        """The high watermark, or -1 if this broker no longer hosts the partition."""
        try:
            replica_log = self._replicas.local_log(self._topic, partition)
        except KafkaError:
            return -1
        return -1 if replica_log is None else int(replica_log.high_watermark)

    def reach(self, partition: int, offset: int) -> asyncio.Future[bool]:
        """Waits until the high watermark reaches `offset`. The future returns False after the timeout. It
        fails with KafkaError if this broker stops leading the partition."""
        replica = self._replicas.partition(self._topic, partition)
        errors: list[ErrorCode] = []

        def finish() -> bool:
            if errors[0] not in (
                ErrorCode.NONE,
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                ErrorCode.REQUEST_TIMED_OUT,
            ):
                raise KafkaError(errors[0])
            return errors[0] is not ErrorCode.REQUEST_TIMED_OUT

        return DelayedAcks(
            asyncio.get_running_loop(),
            [(replica, offset)],
            self._timeout_s,
            lambda _, error: errors.append(error),
            finish,
        ).future

    def reach_log_end(self, partition: int) -> asyncio.Future[bool]:
        """Waits until the high watermark reaches the current end of the log."""
        return self.reach(partition, self._replicas.partition(self._topic, partition).log.log_end_offset)
