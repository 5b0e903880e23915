"""Requests to other replicas: out at once where there is a connection, and every one reported back,
answered or failed."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from quorate.protocol.errors import EncodeError
from quorate.raft.core import messages as m
from quorate.raft.core.voter_changes import REMOVE_TIMEOUT_S
from quorate.raft.runtime import wire
from quorate.raft.runtime.rate_limited_log import RateLimitedLog
from quorate.raft.runtime.reachability import Reachability

if TYPE_CHECKING:
    from quorate.protocol.schema import Request, Response
    from quorate.raft.config import RaftConfig
    from quorate.raft.runtime.ports import Transport

log = logging.getLogger(__name__)


class RequestSender:
    """`replied` is called once for each request sent, never from within `send`."""

    def __init__(
        self,
        config: RaftConfig,
        transport: Transport,
        replied: Callable[[m.Outgoing, m.Reply | m.Failure], None],
        reachability: Reachability,
    ) -> None:
        self._config = config
        self._transport = transport
        self._replied = replied
        self._reachability = reachability
        self._tasks: set[asyncio.Task[None]] = set()
        self._complaints = RateLimitedLog()

    def send(self, out: m.Outgoing) -> bool:
        """Whether the request was written at once; over a connection that has to be made first it goes
        a little later."""
        message = wire.encode_request(out.request)
        loop = asyncio.get_running_loop()
        try:
            answer = self._transport.post(out.to.address, message, self._patience_s(out.request))
        except Exception as e:
            loop.call_soon(self._replied, out, self._failure(out, e))
            return False
        if answer is None:
            task = loop.create_task(self._call(out, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return False
        answer.add_done_callback(lambda done: self._answered(out, done))
        return True

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _patience_s(self, request: m.RaftRequest) -> float:
        """Most are answered at once; a change of voters when it has been committed."""
        match request:
            case m.AddVoter():
                return self._config.request_timeout_s + request.timeout_ms / 1000
            case m.RemoveVoter():
                return self._config.request_timeout_s + REMOVE_TIMEOUT_S
        return self._config.request_timeout_s

    def _answered(self, out: m.Outgoing, answer: asyncio.Future[Response]) -> None:
        if answer.cancelled():
            return self._replied(out, m.Failure.DISCONNECTED)
        error = answer.exception()
        return self._replied(
            out, self._failure(out, error) if error is not None else self._read(out, answer.result())
        )

    async def _call(self, out: m.Outgoing, message: Request) -> None:
        try:
            response = await self._transport.call(out.to.address, message, self._patience_s(out.request))
        except Exception as e:
            return self._replied(out, self._failure(out, e))
        return self._replied(out, self._read(out, response))

    def _read(self, out: m.Outgoing, response: Response) -> m.Reply | m.Failure:
        self._reachability.answered(out.to.address)
        try:
            return wire.decode_response(response, out.request, self._config.listener_name)
        except (wire.WireError, ValueError) as e:
            return self._failure(out, e)

    def _failure(self, out: m.Outgoing, error: BaseException) -> m.Failure:
        """What the core is told of a request without an answer."""
        from quorate.net.errors import KafkaConnectionError, RequestTimedOut, UnsupportedVersion

        match error:
            case UnsupportedVersion() | EncodeError():
                return m.Failure.UNSUPPORTED_VERSION
            case RequestTimedOut():
                self._reachability.failed(out.to.address, error)
                return m.Failure.TIMEOUT
            case KafkaConnectionError() | OSError():
                self._reachability.failed(out.to.address, error)
                if isinstance(
                    error.__cause__, (socket.gaierror, ValueError)
                ):  # it will be no better in a moment
                    self._complain("address", f"{_name(out)}: {error}")
                return m.Failure.DISCONNECTED
            case wire.WireError() | ValueError():
                self._complain("answer", f"answer of {out.to.address} to {_name(out)}: {error}")
                return m.Failure.BAD_ANSWER
        self._complain("call", f"{_name(out)} to {out.to.address}", error)
        return m.Failure.BAD_ANSWER

    def _complain(self, kind: str, text: str, error: BaseException | None = None) -> None:
        more = self._complaints.due(kind, asyncio.get_running_loop().time())
        if more is not None:
            log.error("[RaftClient id=%d] %s%s", self._config.node_id, text, more, exc_info=error)


def _name(out: m.Outgoing) -> str:
    return type(out.request).__name__
