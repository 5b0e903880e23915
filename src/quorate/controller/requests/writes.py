"""Requests that change metadata: handled by the active controller, answered when the records are stable.

A handler that changes very many partitions works in portions. Each portion is written when the one
before it is committed, so that Raft and other requests get their turns in between, and no record waits
behind more than one portion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quorate.clock import NEVER
from quorate.controller.changes.attribution import of_request
from quorate.controller.changes.batched_change import ChangeSteps, Continuation
from quorate.controller.changes.purgatory import Answer
from quorate.controller.context import FAILED_UPDATE, Context, Result, View
from quorate.controller.requests.atomic_changes import AtomicChanges
from quorate.controller.requests.deferred import DeferredRequests
from quorate.controller.requests.routes import IN_STEPS, SMALL_IN_STEPS, steps_handler, write_handler
from quorate.metadata.records import NoOpRecord
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.schema import Data, Request

if TYPE_CHECKING:
    from quorate.controller.brokers.connections import BrokerConnections
    from quorate.controller.state import ControllerState
    from quorate.net.dispatch import RequestContext

STEPS_AT_ONCE = 2
"""The steps of an atomic change that are run at once. A request of fewer than STEP_ITEMS partitions
takes no more."""


class WriteRequests:
    """Handles the requests of one controller in the order of their arrival."""

    def __init__(self, state: ControllerState, connections: BrokerConnections) -> None:
        self._state = state
        self._connections = connections
        self._deferred = DeferredRequests()
        self._atomic_changes = AtomicChanges(state, self.release_deferred)

    def release_deferred(self) -> None:
        """Submits the deferred requests, unless this leader is still not active or an atomic change is
        still being written."""
        if (
            self._deferred
            and not self._state.exclusive
            and (self._state.is_active or not self._state.raft.is_leader)
        ):
            self._deferred.release(
                lambda ctx, request, with_offset: self.submit(ctx, request, with_offset=with_offset)
            )

    def submit(self, ctx: RequestContext, request: Request, *, with_offset: bool = False) -> Any:
        """Runs a handler of `WRITES`.

        Returns the response if it depends on no uncommitted record, otherwise a future of the response.
        `with_offset` asks for an `Answer` instead of the response. Raises KafkaError.
        """
        state = self._state
        if not state.is_active or state.closed:
            if state.raft.is_leader and not state.failed and not self._deferred.full:
                return self._deferred.add(ctx, request, with_offset)
            raise state.not_controller()
        context, epoch = state.context(ctx), state.epoch
        if ctx.api_key == ApiKey.BROKER_HEARTBEAT:
            self._connections.heartbeat(ctx, request, context.now)
        if state.exclusive:
            return self._submit_meanwhile(ctx, request, context, with_offset)
        try:
            view = state.view()
            if ctx.api_key in SMALL_IN_STEPS or (
                ctx.api_key in IN_STEPS and (ctx.is_large or view.has_large_transactions)
            ):
                in_steps = self._run_first_steps(ctx, request, context, view)
                if in_steps is None:
                    return asyncio.ensure_future(self._carry_out(ctx, request, epoch, with_offset))
                result = in_steps
            else:
                result = write_handler(ctx.api_key)(view, request, context)
            if result.continuation is not None:
                return asyncio.ensure_future(
                    self._continue(
                        ctx,
                        request,
                        context,
                        epoch,
                        result.continuation,
                        self._write_portion(ctx, request, None, result),
                        with_offset,
                    )
                )
            if result.upgrade_kraft_version is not None:
                return asyncio.ensure_future(
                    self._upgrade_kraft_version(ctx, request, epoch, result, with_offset)
                )
            return self._finish(ctx, request, result, context.now, with_offset)
        except KafkaError as error:
            state.audit.request_failed(ctx, request, error.code)
            raise

    def _submit_meanwhile(
        self, ctx: RequestContext, request: Request, context: Context, with_offset: bool
    ) -> Any:
        """Answers a heartbeat that changes nothing, while an atomic change is being written. Defers all
        other requests."""
        if ctx.api_key == ApiKey.BROKER_HEARTBEAT:
            result = write_handler(ctx.api_key)(self._state.view(), request, context)
            if not result.records and result.continuation is None:
                return self._finish(ctx, request, result, context.now, with_offset)
        if self._deferred.full:
            raise self._state.not_controller()
        return self._deferred.add(ctx, request, with_offset)

    def _run_first_steps(
        self, ctx: RequestContext, request: Request, context: Context, view: View
    ) -> Result[Any] | None:
        """The result of a handler in steps if it takes few steps, otherwise None."""
        steps = steps_handler(ctx.api_key)(view, request, context)
        records: list[Data] = []
        try:
            for _ in range(STEPS_AT_ONCE):
                records += next(steps)
        except StopIteration as end:
            result: Result[Any] = end.value
            result.records = records
            return result
        return None

    async def _carry_out(self, ctx: RequestContext, request: Request, epoch: int, with_offset: bool) -> Any:
        """Makes an atomic change of many records in the term of this epoch."""
        state, handler = self._state, steps_handler(ctx.api_key)
        name, timeout_ms = ApiKey(ctx.api_key).name, getattr(request, "timeout_ms", 0)
        timeout_s = timeout_ms / 1000 if timeout_ms > 0 else NEVER
        deadline = state.clock.now() + timeout_s
        cause = of_request(ctx)

        def prepare() -> ChangeSteps[Result[Any]]:
            return handler(state.view(), request, state.context(ctx))

        def respond(result: Result[Any], offset: int, written: bool) -> asyncio.Future[Any] | None:
            if written:
                state.audit.request_written(cause, request, result.response, offset)
            else:
                state.audit.request_unwritten(ctx, request, result.response)
            if offset < 0:
                return None
            return self._wait(offset, result.response, deadline, name, with_offset)

        try:
            response, future = await self._atomic_changes.carry_out(
                prepare, respond, name, cause, epoch, timeout_s
            )
        except KafkaError as error:
            state.audit.request_failed(ctx, request, error.code)
            raise
        if future is None:
            return Answer(response, -1) if with_offset else response
        return await future

    def _finish(
        self, ctx: RequestContext, request: Request, result: Result[Any], now: float, with_offset: bool
    ) -> Any:
        """Writes the records of a handler's last call. Returns the response, or its future if it depends
        on an uncommitted record."""
        offset = self._apply(ctx, request, result, now)
        if offset < 0:
            return Answer(result.response, offset) if with_offset else result.response
        timeout_ms = getattr(request, "timeout_ms", 0)
        deadline = now + timeout_ms / 1000 if timeout_ms > 0 else NEVER
        return self._wait(offset, result.response, deadline, ApiKey(ctx.api_key).name, with_offset)

    def _wait(
        self, offset: int, response: Any, deadline: float, what: str, with_offset: bool
    ) -> asyncio.Future[Any]:
        """A future that is completed when the record at this offset is stable."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._state.pending.add(
            offset, response, future, deadline=deadline, what=what, with_offset=with_offset
        )
        return future

    def _write_portion(
        self, ctx: RequestContext, request: Request, before: Continuation | None, result: Result[Any]
    ) -> Awaitable[Any]:
        """Writes the records of one portion. The returned awaitable ends when they are stable."""
        offset = self._apply(ctx, request, result, self._state.clock.now())
        self._state.broker_sessions.replace_continuation(before, result.continuation)
        return self._wait(offset, None, NEVER, "a portion", False) if offset >= 0 else asyncio.sleep(0)

    async def _continue(
        self,
        ctx: RequestContext,
        request: Request,
        context: Context,
        epoch: int,
        continuation: Continuation,
        stable: Awaitable[Any],
        with_offset: bool,
    ) -> Any:
        """Calls the handler with each continuation that it leaves, each time when the portion before is
        stable, and returns the response of the last call."""
        state, handler = self._state, write_handler(ctx.api_key)
        try:
            while True:
                await stable
                await self._atomic_changes.writable()
                if state.epoch != epoch or state.closed:
                    # A later term of this controller is no exception: the continuation was computed
                    # from the state of the earlier term.
                    raise state.not_controller()
                context = replace(
                    context,
                    now_ms=state.clock.now_ms(),
                    now=state.clock.now(),
                    continuation=continuation,
                )
                with state.audit.refusal(ctx, request):
                    result = handler(state.view(), request, context)
                    if result.continuation is None:
                        outcome = self._finish(ctx, request, result, context.now, with_offset)
                        break
                    stable = self._write_portion(ctx, request, continuation, result)
                continuation = result.continuation
        finally:
            state.broker_sessions.replace_continuation(continuation, None)
        return await outcome if asyncio.isfuture(outcome) else outcome

    async def _upgrade_kraft_version(
        self, ctx: RequestContext, request: Request, epoch: int, result: Result[Any], with_offset: bool
    ) -> Any:
        """Upgrades kraft.version, then runs the handler again for the other features.

        The handler runs again when the kraft.version record is committed in the same epoch, because
        brokers and controllers may have registered and features may have changed meanwhile.
        """
        state = self._state
        response, level = result.response, result.upgrade_kraft_version or 0
        try:
            await state.raft.upgrade_kraft_version(epoch, level, validate_only=result.validate_only)
        except KafkaError as error:
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise state.not_controller() from error
            response.error_code, response.results = error.code, []
            response.error_message = f"{FAILED_UPDATE}{error.message}"
            state.audit.request_unwritten(ctx, request, response)
            return Answer(response, -1) if with_offset else response
        await self._atomic_changes.writable()
        if state.epoch != epoch or state.closed:
            raise state.not_controller()
        context = state.context(ctx)
        with state.audit.refusal(ctx, request):
            if not result.validate_only:
                result = write_handler(ctx.api_key)(state.view(), request, context)
                if result.response.error_code != ErrorCode.NONE:
                    result.response.error_message = (
                        f"kraft.version is now {level}, but: {result.response.error_message}"
                    )
                elif not result.records:
                    result.records.append(NoOpRecord())  # gives the response an offset to wait for
            outcome = self._finish(ctx, request, result, context.now, with_offset)
        return await outcome if asyncio.isfuture(outcome) else outcome

    def _apply(self, ctx: RequestContext, request: Request, result: Result[Any], now: float) -> int:
        """Writes a handler's records and updates the soft state. Returns the offset that the response
        depends on, or -1."""
        state = self._state
        if result.records:
            cause = of_request(ctx)
            offset = state.write(result.records, cause, atomic=result.atomic)
            response = result.response if result.continuation is None else None
            state.audit.request_written(cause, request, response, offset)
        else:
            offset = state.last_written
            if result.continuation is None:
                state.audit.request_unwritten(ctx, request, result.response)
        broker_sessions = state.broker_sessions
        if result.registered is not None:
            broker_sessions.forget(result.registered)
            registration = state.next_image.cluster.brokers.get(result.registered)
            if registration is not None:
                broker_sessions.contact(registration.id, registration.epoch, now)
        touch = result.touch
        if touch is not None:
            broker_sessions.touch(touch.broker_id, touch.fenced, touch.metadata_offset)
            if touch.leaving:
                broker_sessions.forget(touch.broker_id)
            elif touch.in_controlled_shutdown:
                broker_sessions.begin_shutdown(touch.broker_id, state.next_offset - 1)
        return offset
