"""What comes over the wire to the active controller: run by its handler, written, answered when that is
stable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from quorate.controller.context import Context, Continuation, Result
from quorate.controller.deferred_requests import DeferredRequests
from quorate.controller.periodic_tasks import NEVER
from quorate.controller.purgatory import Answer
from quorate.controller.routes import write_handler
from quorate.metadata.records import NoOpRecord
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.schema import Request

if TYPE_CHECKING:
    from quorate.controller.driver import QuorumController
    from quorate.net.dispatch import RequestContext


class Requests:
    """Requests of one controller that change metadata, in the order in which they come."""

    def __init__(self, controller: QuorumController, rng: Random) -> None:
        """rng: the handlers' source of chance."""
        self._controller = controller
        self._rng = rng
        self._held = DeferredRequests()

    def context(self, ctx: RequestContext | None = None) -> Context:
        """A handler's, as of now. ctx: of the request; None for what this controller writes by itself."""
        clock = self._controller.clock
        if ctx is None:
            return Context(now_ms=clock.now_ms(), now=clock.now(), rng=self._rng)
        return Context(
            now_ms=clock.now_ms(),
            now=clock.now(),
            rng=self._rng,
            api_version=ctx.api_version,
            principal=ctx.principal,
            client_id=ctx.client_id,
            client_host=ctx.client_host,
            listener=ctx.listener,
            request_id=ctx.request_id,
            lost_tries=ctx.lost_tries,
        )

    def release_held(self) -> None:
        """Submits what came between two terms, if it is decided who leads."""
        if self._held and (self._controller.is_active or not self._controller.raft.is_leader):
            self._held.release(
                lambda ctx, request, with_offset: self.submit(ctx, request, with_offset=with_offset)
            )

    def submit(self, ctx: RequestContext, request: Request, *, with_offset: bool = False) -> Any:
        """Runs a handler of `WRITES`: its response (or `Answer`) if it depends on nothing uncommitted,
        else a future.

        Raises KafkaError.
        """
        controller = self._controller
        if not controller.is_active or controller.closed:
            if controller.raft.is_leader and not controller.failed and not self._held.full:
                return self._held.add(ctx, request, with_offset)
            raise controller.not_controller()
        context, epoch = self.context(ctx), controller.epoch
        if ctx.api_key == ApiKey.BROKER_HEARTBEAT:
            controller.contacts.heartbeat(ctx, request, context.now)
        result = write_handler(ctx.api_key)(controller.view(), request, context)
        if result.continuation is not None:
            return asyncio.ensure_future(
                self._go_on(
                    ctx,
                    request,
                    context,
                    epoch,
                    result.continuation,
                    self._portion(None, result),
                    with_offset,
                )
            )
        if result.upgrade_kraft_version is not None:
            return asyncio.ensure_future(self._upgrade(ctx, request, epoch, result, with_offset))
        return self._finish(ctx, request, result, context.now, with_offset)

    def _finish(
        self, ctx: RequestContext, request: Request, result: Result[Any], now: float, with_offset: bool
    ) -> Any:
        offset = self._apply(result, now)
        if offset < 0:
            return Answer(result.response, offset) if with_offset else result.response
        timeout_ms = getattr(request, "timeout_ms", 0)
        deadline = now + timeout_ms / 1000 if timeout_ms > 0 else NEVER
        return self._wait(offset, result.response, deadline, ApiKey(ctx.api_key).name, with_offset)

    def _wait(
        self, offset: int, response: Any, deadline: float, what: str, with_offset: bool
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._controller.pending.add(
            offset, response, future, deadline=deadline, what=what, with_offset=with_offset
        )
        return future

    def _portion(self, before: Continuation | None, result: Result[Any]) -> Awaitable[Any]:
        """Writes it; ends when it is stable."""
        offset = self._apply(result, self._controller.clock.now())
        self._controller.broker_sessions.goes_on(before, result.continuation)
        return self._wait(offset, None, NEVER, "a portion", False) if offset >= 0 else asyncio.sleep(0)

    async def _go_on(
        self,
        ctx: RequestContext,
        request: Request,
        context: Context,
        epoch: int,
        continuation: Continuation,
        stable: Awaitable[Any],
        with_offset: bool,
    ) -> Any:
        """What one turn left over, a portion at a time, each when the one before it is stable: so Raft
        and other requests have their turns, and nobody else's records wait behind more than one
        portion."""
        controller, handler = self._controller, write_handler(ctx.api_key)
        try:
            while True:
                await stable
                if controller.epoch != epoch or controller.closed:
                    # Also in a later term of this very controller: what is left was computed from the
                    # state of the term before.
                    raise controller.not_controller()
                context = replace(
                    context,
                    now_ms=controller.clock.now_ms(),
                    now=controller.clock.now(),
                    continuation=continuation,
                )
                result = handler(controller.view(), request, context)
                if result.continuation is None:
                    break
                stable = self._portion(continuation, result)
                continuation = result.continuation
            outcome = self._finish(ctx, request, result, context.now, with_offset)
        finally:
            controller.broker_sessions.goes_on(continuation, None)
        return await outcome if asyncio.isfuture(outcome) else outcome

    async def _upgrade(
        self, ctx: RequestContext, request: Request, epoch: int, result: Result[Any], with_offset: bool
    ) -> Any:
        """Has Raft write kraft.version first. When that is committed, under the same leadership, the
        handler decides anew about the rest: brokers and controllers may have registered meanwhile, and
        other features may have changed."""
        controller = self._controller
        response, level = result.response, result.upgrade_kraft_version or 0
        try:
            await controller.raft.upgrade_kraft_version(epoch, level, validate_only=result.validate_only)
        except KafkaError as error:
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise controller.not_controller() from error
            response.error_code, response.error_message, response.results = error.code, error.message, []
            return Answer(response, -1) if with_offset else response
        if controller.epoch != epoch or controller.closed:
            raise controller.not_controller()
        context = self.context(ctx)
        if not result.validate_only:
            result = write_handler(ctx.api_key)(controller.view(), request, context)
            if result.response.error_code != ErrorCode.NONE:
                result.response.error_message = (
                    f"kraft.version is now {level}, but: {result.response.error_message}"
                )
            else:
                result.records.append(NoOpRecord())  # an offset for the answer to wait for
        outcome = self._finish(ctx, request, result, context.now, with_offset)
        return await outcome if asyncio.isfuture(outcome) else outcome

    def _apply(self, result: Result[Any], now: float) -> int:
        """Does what a handler decided; returns the offset that its answer depends on, -1 for none."""
        controller = self._controller
        offset = (
            controller.write(result.records, atomic=result.atomic)
            if result.records
            else controller.last_written
        )
        broker_sessions = controller.broker_sessions
        if result.registered is not None:
            broker_sessions.forget(result.registered)
            registration = controller.next_image.cluster.brokers.get(result.registered)
            if registration is not None:
                broker_sessions.contact(registration.id, registration.epoch, now)
        touch = result.touch
        if touch is not None:
            broker_sessions.touch(touch.broker_id, touch.fenced, touch.metadata_offset)
            if touch.leaving:
                broker_sessions.forget(touch.broker_id)
            elif touch.in_controlled_shutdown:
                broker_sessions.begin_shutdown(touch.broker_id, controller.next_offset - 1)
        return offset
