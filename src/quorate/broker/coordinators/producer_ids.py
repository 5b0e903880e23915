"""Allocates ids for idempotent producers from blocks that the controller gives (AllocateProducerIds,
`RPCProducerIdManager` in Kafka)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from quorate.lazy import lazy_module
from quorate.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from quorate.protocol.messages import allocate_producer_ids
else:
    allocate_producer_ids = lazy_module("quorate.protocol.messages.allocate_producer_ids")

logger = logging.getLogger("quorate.broker.producers")

PREFETCH_AT = 0.9
"""The used part of a block after which the next block is requested, so that no producer waits for it."""
BLOCK_WAIT_S = 1.0
"""How long a request waits for a block, which usually arrives within milliseconds. After that the client
gets a retriable error, because later responses of its connection wait for this one. Kafka does not wait at
all."""


class Channel(Protocol):
    """The member of the controller channel that is used here."""

    def send(self, request: Any) -> Awaitable[Any]:
        """Sends a request to the active controller."""
        ...


class ProducerIdManager:
    """Gives each producer an id that no other broker gives."""

    __slots__ = (
        "_block_end",
        "_broker_epoch",
        "_broker_id",
        "_channel",
        "_fetching",
        "_next",
        "_next_block",
        "_prefetch_from",
    )

    def __init__(self, broker_id: int, broker_epoch: Callable[[], int | None], channel: Channel) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._next = 0
        self._block_end = 0
        self._prefetch_from = 0
        self._next_block: tuple[int, int] | None = None
        self._fetching: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Cancels the request for a block."""
        if self._fetching is not None:
            self._fetching.cancel()

    async def next_id(self) -> int:
        """Returns a new producer id. Raises COORDINATOR_LOAD_IN_PROGRESS, which is retriable, if no
        block arrives in time."""
        while self._next >= self._block_end:
            if self._next_block is not None:
                self._next, self._block_end = self._next_block
                self._prefetch_from = self._next + int((self._block_end - self._next) * PREFETCH_AT)
                self._next_block = None
                break
            block = self._fetch()
            await asyncio.wait({block}, timeout=BLOCK_WAIT_S)
            if not block.done():
                raise KafkaError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The controller has not given producer ids yet."
                )
            block.result()
        producer_id = self._next
        self._next += 1
        if self._next >= self._prefetch_from and self._next_block is None:
            self._fetch()
        return producer_id

    def _fetch(self) -> asyncio.Task[None]:
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_task(
                self._fetch_block(), name="allocate producer ids"
            )
            self._fetching.add_done_callback(_retrieved)
        return self._fetching

    async def _fetch_block(self) -> None:
        epoch = self._broker_epoch()
        if epoch is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The broker is not registered yet.")
        request = allocate_producer_ids.AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=epoch
        )
        try:
            answer = await self._channel.send(request)
        except OSError as error:  # includes lost connections and timeouts
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"No producer ids: {error}") from error
        if answer.error_code:
            logger.warning(
                "[ProducerIdManager id=%d] No producer ids: %s",
                self._broker_id,
                ErrorCode.of(answer.error_code).name,
            )
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        start, length = answer.producer_id_start, answer.producer_id_len
        self._next_block = (start, start + length)
        logger.info(
            "[ProducerIdManager id=%d] Got producer ids %d to %d.", self._broker_id, start, start + length - 1
        )


def _retrieved(task: asyncio.Task[None]) -> None:
    """Retrieves the exception of a failed request for a block. The next producer repeats the request."""
    if not task.cancelled():
        task.exception()
