"""Producer ids: blocks of them come from the controller, single ones go to idempotent producers. KIP-360,
`AllocateProducerIds`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from quorate.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger("quorate.broker.producers")

PREFETCH_AT = 0.9
"""Part of a block after which the next one is asked for, so that nobody waits at its end."""
BLOCK_WAIT_S = 1.0
"""How long a request waits for a block, which the controller gives in milliseconds. Longer than that,
the answers behind it on the connection must not be held up: the client is told to ask again, as Kafka
does at once."""


class Channel(Protocol):
    """What is used of the controller channel."""

    def send(self, request: Any) -> Awaitable[Any]: ...


class ProducerIdManager:
    """Hands out ids that no other broker gives: `next_id` waits only when no block is here."""

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
        if self._fetching is not None:
            self._fetching.cancel()

    async def next_id(self) -> int:
        """A producer id. Raises COORDINATOR_LOAD_IN_PROGRESS (retriable) when the controller gives no
        block."""
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
        from quorate.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

        epoch = self._broker_epoch()
        if epoch is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The broker is not registered yet.")
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=epoch)
        try:
            answer = await self._channel.send(request)
        except OSError as error:  # lost connections and time-outs both are
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"No producer ids: {error}") from error
        if answer.error_code:
            log.warning(
                "[ProducerIdManager id=%d] No producer ids: %s",
                self._broker_id,
                ErrorCode.of(answer.error_code).name,
            )
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        start, length = answer.producer_id_start, answer.producer_id_len
        self._next_block = (start, start + length)
        log.info(
            "[ProducerIdManager id=%d] Got producer ids %d to %d.", self._broker_id, start, start + length - 1
        )


def _retrieved(task: asyncio.Task[None]) -> None:
    """A block that nobody waits for and that did not come is asked for again by the next request."""
    if not task.cancelled():
        task.exception()
