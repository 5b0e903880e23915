"""Atomic changes of many records, written in metadata transactions (KIP-868).

The records are computed and encoded in steps, while other requests change the metadata. Then the change
becomes exclusive: it checks, in steps, that its records are still right, and writes BeginTransactionRecord,
the records in several batches, and EndTransactionRecord. No reader shows any of them before the end. Every
record between begin and end would belong to the transaction, so all other writes wait until the end is
written. Heartbeats that change nothing are answered meanwhile.

A change whose records are not right any more is prepared again, at last while it is exclusive. If the
controller loses its leadership within a transaction, the next controller aborts it
(`activation_records`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quorate.clock import NEVER
from quorate.controller.changes.attribution import Attribution
from quorate.controller.changes.batched_change import ChangeSteps
from quorate.controller.context import Result
from quorate.controller.replication.encoded_records import value_of
from quorate.metadata.framing import encode_record
from quorate.metadata.records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from quorate.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from quorate.controller.state import ControllerState

PART_RECORDS = 250
"""The records that are written in one turn of the event loop, which takes one to two milliseconds."""
MAX_PARTS_IN_FLIGHT = 6
"""The parts that are written and not committed. Those that arrive during one fsync are one batch, which
Raft builds in one turn of four milliseconds."""
MAX_PREPARATIONS = 3
"""The last one is exclusive, so that a change completes although others are made all the time."""
LONGEST_S = 30.0
"""The time for which other writes wait at most. A transaction that takes longer is aborted."""

Prepare = Callable[[], ChangeSteps[Result[Any]]]
Respond = Callable[[Result[Any], int, bool], "asyncio.Future[Any] | None"]


class AtomicChanges:
    """Carries out one change after the other. `released` is called when other writes may continue."""

    def __init__(self, state: ControllerState, released: Callable[[], None]) -> None:
        self._state = state
        self._released = released
        self._turn = asyncio.Lock()
        self._waiting: list[asyncio.Future[None]] = []

    async def carry_out(
        self,
        prepare: Prepare,
        respond: Respond,
        name: str,
        cause: Attribution,
        epoch: int,
        timeout_s: float,
    ) -> tuple[Any, asyncio.Future[Any] | None]:
        """Prepares and writes a change in the term of this epoch. Returns its response and what `respond`
        returns.

        Calls `respond`, before another change is written, with the result, the offset that the response
        depends on, or -1, and whether records were written.

        Raises:
            KafkaError: The handler's error; NOT_CONTROLLER if the leadership is lost; REQUEST_TIMED_OUT
                if the transaction was aborted because it took too long.
        """
        limit = asyncio.timeout(None if timeout_s == NEVER else timeout_s)
        try:
            async with limit, self._turn:
                try:
                    self._check(epoch)
                    values, result = await self._prepared(prepare, limit, epoch)
                    offset = await self._write(values, name, cause, epoch)
                    return result.response, respond(result, offset, bool(values))
                finally:
                    self._release(epoch)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{name} was aborted: its records were not written in time.",
                remedy="Nothing has changed: repeat it, or divide it.",
            ) from None

    async def _prepared(
        self, prepare: Prepare, limit: asyncio.Timeout, epoch: int
    ) -> tuple[list[bytes], Result[Any]]:
        """The values of the records, which are right when this returns, and the result. The change is
        exclusive then."""
        for _ in range(MAX_PREPARATIONS - 1):
            values, result = await self._prepare(prepare, epoch)
            self._exclude(limit, epoch)
            if await self._rechecked(result, epoch):
                return values, result
            self._release(epoch)
        self._exclude(limit, epoch)
        return await self._prepare(prepare, epoch)

    def _exclude(self, limit: asyncio.Timeout, epoch: int) -> None:
        """Makes other writes wait, for at most LONGEST_S. Raises NOT_CONTROLLER if the term has ended, which
        a write of a released request may have found."""
        self._check(epoch)
        self._state.exclusive = True
        latest = asyncio.get_running_loop().time() + LONGEST_S
        when = limit.when()
        limit.reschedule(latest if when is None else min(when, latest))

    async def writable(self) -> None:
        """Waits until no change is exclusive."""
        while self._state.exclusive:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    def _check(self, epoch: int) -> None:
        """Raises NOT_CONTROLLER if the term has ended or the controller is shutting down."""
        if self._state.epoch != epoch or self._state.closed:
            raise self._state.not_controller()

    async def _turn_of_others(self, epoch: int) -> None:
        await asyncio.sleep(0)
        self._check(epoch)

    async def _prepare(self, prepare: Prepare, epoch: int) -> tuple[list[bytes], Result[Any]]:
        """The values of the records, and the result."""
        level = self._state.next_image.features.metadata_version
        values: list[bytes] = []
        steps = prepare()
        while True:
            try:
                records = next(steps)
            except StopIteration as end:
                return values, end.value
            values += [value_of(record, level) for record in records]
            await self._turn_of_others(epoch)

    async def _rechecked(self, result: Result[Any], epoch: int) -> bool:
        """Whether the records are still right."""
        assert result.recheck is not None
        steps = result.recheck(self._state.view())
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)
            await self._turn_of_others(epoch)

    async def _write(self, values: list[bytes], name: str, cause: Attribution, epoch: int) -> int:
        """Writes the records, in a transaction if they are many. Returns the offset that the response
        depends on."""
        state = self._state
        if not values:
            return state.last_written
        if len(values) <= PART_RECORDS or not state.view().has_large_transactions:
            return state.write_part(values, cause, atomic=True)
        uncommitted: deque[int] = deque()
        offset = -1
        for start in range(0, len(values), PART_RECORDS):
            part = values[start : start + PART_RECORDS]
            if start == 0:
                part.insert(0, encode_record(BeginTransactionRecord(name=name), 0))
            else:
                await self._turn_of_others(epoch)
                if len(uncommitted) == MAX_PARTS_IN_FLIGHT:
                    await self._committed(uncommitted.popleft())
                    self._check(epoch)
            if start + PART_RECORDS >= len(values):
                part.append(encode_record(EndTransactionRecord(), 0))
            offset = state.write_part(part, cause)
            uncommitted.append(offset)
        return offset

    async def _committed(self, offset: int) -> None:
        """Waits until an offset is committed. Raises NOT_CONTROLLER when the term ends."""
        if offset > self._state.committed_offset:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._state.written.add(
                offset, None, future, deadline=NEVER, what="a part of a transaction", with_offset=False
            )
            await future

    def _release(self, epoch: int) -> None:
        """Lets other writes continue. A transaction that has no end yet is aborted before."""
        state = self._state
        try:
            if state.exclusive and state.epoch == epoch and state.next_image.transaction is not None:
                record = AbortTransactionRecord(reason="The change could not be completed")
                state.write_part([encode_record(record, 0)])
        finally:
            if state.epoch == epoch:
                state.exclusive = False
            # Also if the abort could not be written: the term has ended then, and those that wait must learn
            # of it.
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
            self._released()
