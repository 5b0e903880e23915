"""Sends what a broker reports about its partitions to the controller: one request at a time, and each report
again until the controller has settled it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from quorate.net.errors import KafkaConnectionError, RequestTimedOut, UnsupportedVersion
from quorate.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate.broker.controller_channel import ControllerChannel
    from quorate.protocol.schema import Request

PartitionId = tuple[bytes, int]
"""(topic id, partition)"""

Report = TypeVar("Report")


class PartitionReports(ABC, Generic[Report]):
    """A queue with the newest report about each partition.

    Reports that are submitted while a request is in flight, or in the pause before others are sent
    again, wait for the next request.
    """

    NAME: ClassVar[str]
    """Begins each line of the log."""
    MAX_AT_ONCE: ClassVar[int]
    """Partitions in one request. A broker with very many reports sends several requests."""
    RETRY_MIN_S: ClassVar[float]
    RETRY_MAX_S: ClassVar[float]
    """The pause before reports are sent again. It doubles from the smallest to the largest."""

    def __init__(
        self,
        node_id: int,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        logger: logging.Logger,
    ) -> None:
        self.node_id = node_id
        self.channel = channel
        self.broker_epoch = broker_epoch
        self._loop = loop
        self._logger = logger
        self._queue: dict[PartitionId, Report] = {}
        self._in_flight: dict[PartitionId, Report] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def unsettled(self) -> int:
        """The number of partitions whose report the controller has not settled."""
        return len(self._queue.keys() | self._in_flight.keys())

    def enqueue(self, partition: PartitionId, report: Report) -> None:
        """Queues a report, in place of an older one that was not sent yet. Does nothing after `close`."""
        if self._closed:
            return
        self._queue[partition] = report
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        """Cancels the request in flight and drops the queue."""
        self._closed = True
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @abstractmethod
    def request(self, reports: dict[PartitionId, Report]) -> Request:
        """Returns the request with these reports."""

    @abstractmethod
    def settle(self, reports: dict[PartitionId, Report], answer: Any) -> set[PartitionId]:
        """Applies a response whose top-level error is NONE. Returns the partitions that need no retry."""

    def is_current(self, report: Report) -> bool:
        """Whether a report that was not settled is sent again."""
        return True

    async def _run(self) -> None:
        pause = self.RETRY_MIN_S
        try:
            while self._queue:
                await asyncio.sleep(0)  # all reports of one metadata delta go into one request
                chosen = list(itertools.islice(self._queue, self.MAX_AT_ONCE))
                sent = self._in_flight = {partition: self._queue.pop(partition) for partition in chosen}
                try:
                    settled = await self._exchange(sent)
                except Exception:  # without a retry the controller would never learn of these partitions
                    self._logger.exception("[%s broker=%d] Request failed", self.NAME, self.node_id)
                    settled = set()
                finally:
                    self._in_flight = {}
                for partition in chosen:
                    if partition not in settled and self.is_current(sent[partition]):
                        self._queue.setdefault(partition, sent[partition])
                if len(settled) == len(sent):
                    pause = self.RETRY_MIN_S
                elif self._queue:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, self.RETRY_MAX_S)
        finally:
            self._task = None

    async def _exchange(self, sent: dict[PartitionId, Report]) -> set[PartitionId]:
        """Sends one request. Returns the partitions that need no retry."""
        try:
            answer = await self.channel.send(self.request(sent))
        except (RequestTimedOut, KafkaConnectionError, UnsupportedVersion) as error:
            self._logger.warning("[%s broker=%d] Request failed: %s", self.NAME, self.node_id, error)
            return set()
        if answer.error_code != ErrorCode.NONE:
            name = ErrorCode.of(answer.error_code).name
            self._logger.warning("[%s broker=%d] The controller answered %s", self.NAME, self.node_id, name)
            return set()
        return self.settle(sent, answer)
