"""Sends the core's requests to other replicas, and reports each reply or failure."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from quorate.lazy import lazy_modules
from quorate.net.errors import KafkaConnectionError, RequestTimedOut, UnsupportedVersion
from quorate.protocol.errors import EncodeError
from quorate.raft.core import messages as m
from quorate.raft.core.effects import Outgoing
from quorate.raft.core.membership.voter_changes import REMOVE_TIMEOUT_S
from quorate.raft.runtime.reachability import Reachability
from quorate.raft.runtime.wire.partition import WireError
from quorate.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from quorate.protocol.schema import Request, Response
    from quorate.raft.config import RaftConfig
    from quorate.raft.runtime.interfaces import Transport
    from quorate.raft.runtime.wire import replies, requests
else:
    replies, requests = lazy_modules("quorate.raft.runtime.wire", "replies", "requests")

logger = logging.getLogger(__name__)


class RequestSender:
    """Calls `replied` once for each request, and never from within `send`."""

    def __init__(
        self,
        config: RaftConfig,
        transport: Transport,
        replied: Callable[[Outgoing, m.Reply | m.Failure], None],
        reachability: Reachability,
    ) -> None:
        self._config = config
        self._transport = transport
        self._replied = replied
        self._reachability = reachability
        self._tasks: set[asyncio.Task[None]] = set()
        self._error_log = RateLimitedLog()

    def send(self, out: Outgoing) -> bool:
        """Sends a request. Returns False if it is not written yet, because a connection must be opened
        first."""
        message = requests.encode_request(out.request)
        loop = asyncio.get_running_loop()
        try:
            answer = self._transport.post(out.to.address, message, self._timeout_s(out.request))
        except Exception as e:
            loop.call_soon(self._replied, out, self._failure(out, e))
            return False
        if answer is None:
            task = loop.create_task(self._call(out, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return False
        answer.add_done_callback(lambda done: self._on_response(out, done))
        return True

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _timeout_s(self, request: m.RaftRequest) -> float:
        """How long to wait for a response. A voter change is answered when it is committed."""
        match request:
            case m.AddVoter():
                return self._config.request_timeout_s + request.timeout_ms / 1000
            case m.RemoveVoter():
                return self._config.request_timeout_s + REMOVE_TIMEOUT_S
        return self._config.request_timeout_s

    def _on_response(self, out: Outgoing, answer: asyncio.Future[Response]) -> None:
        if answer.cancelled():
            return self._replied(out, m.Failure.DISCONNECTED)
        error = answer.exception()
        return self._replied(
            out, self._failure(out, error) if error is not None else self._read(out, answer.result())
        )

    async def _call(self, out: Outgoing, message: Request) -> None:
        try:
            response = await self._transport.call(out.to.address, message, self._timeout_s(out.request))
        except Exception as e:
            return self._replied(out, self._failure(out, e))
        return self._replied(out, self._read(out, response))

    def _read(self, out: Outgoing, response: Response) -> m.Reply | m.Failure:
        self._reachability.answered(out.to.address)
        try:
            return replies.decode_response(response, out.request, self._config.listener_name)
        except (WireError, ValueError) as e:
            return self._failure(out, e)

    def _failure(self, out: Outgoing, error: BaseException) -> m.Failure:
        """Classifies the failure of a request for the core, and logs unexpected ones."""
        match error:
            case UnsupportedVersion() | EncodeError():
                return m.Failure.UNSUPPORTED_VERSION
            case RequestTimedOut():
                self._reachability.failed(out.to.address, error)
                return m.Failure.TIMEOUT
            case KafkaConnectionError() | OSError():
                self._reachability.failed(out.to.address, error)
                if isinstance(error.__cause__, (socket.gaierror, ValueError)):  # a wrong address
                    self._log_error("address", f"{_name(out)}: {error}")
                return m.Failure.DISCONNECTED
            case WireError() | ValueError():
                self._log_error("answer", f"answer of {out.to.address} to {_name(out)}: {error}")
                return m.Failure.BAD_ANSWER
        self._log_error("call", f"{_name(out)} to {out.to.address}", error)
        return m.Failure.BAD_ANSWER

    def _log_error(self, kind: str, text: str, error: BaseException | None = None) -> None:
        suffix = self._error_log.due(kind, asyncio.get_running_loop().time())
        if suffix is not None:
            logger.error("[RaftClient id=%d] %s%s", self._config.node_id, text, suffix, exc_info=error)


def _name(out: Outgoing) -> str:
    return type(out.request).__name__
