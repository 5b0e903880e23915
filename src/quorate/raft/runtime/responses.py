"""Answers requests of other nodes: Raft's replies as Kafka's messages, with the bytes that they name."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module
from quorate.log.errors import LogDirFailure
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.raft.core import messages as m
from quorate.threads import in_thread

if TYPE_CHECKING:
    from quorate.clock import Clock
    from quorate.protocol.schema import Request, Response
    from quorate.raft.core.state import RaftState
    from quorate.raft.runtime.delivery import Delivery
    from quorate.raft.runtime.peer_monitor import PeerMonitor
    from quorate.raft.runtime.wire import replies
    from quorate.raft.storage.metadata_log import MetadataLog
    from quorate.raft.types import ReplicaKey
else:
    replies = lazy_module("quorate.raft.runtime.wire.replies")

logger = logging.getLogger(__name__)


class InboundRequest:
    """A request of another node until it is answered."""

    __slots__ = ("future", "listener", "request", "response", "version")

    def __init__(self, request: Request, version: int, listener: str) -> None:
        self.request = request
        self.version = version
        self.listener = listener  # the response names the leader's endpoint for this listener
        self.response: Response | None = None
        self.future: asyncio.Future[Response] | None = None

    def finish(self, response: Response) -> None:
        self.response = response
        if self.future is not None and not self.future.done():
            self.future.set_result(response)


class UpgradeToken:
    """An upgrade of kraft.version, requested by this process, until it is answered."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future

    def finish(self, reply: m.Reply) -> None:
        if self.future.done():
            return
        if reply.error == ErrorCode.NONE:
            self.future.set_result(None)
        else:
            self.future.set_exception(KafkaError(reply.error, reply.message))


class Responder:
    """Completes the core's replies and hands them to the requests that wait for them."""

    def __init__(
        self, state: RaftState, log: MetadataLog, delivery: Delivery, peer_monitor: PeerMonitor, clock: Clock
    ) -> None:
        self._state = state
        self._log = log
        self._delivery = delivery
        self._peer_monitor = peer_monitor
        self._clock = clock

    def answer(self, token: InboundRequest | UpgradeToken, reply: m.Reply) -> None:
        if isinstance(token, UpgradeToken):
            token.finish(reply)
        elif isinstance(reply, m.SnapshotReply) and reply.compare is not None:
            compared = asyncio.get_running_loop().create_task(self._compare_prefix(reply))
            compared.add_done_callback(lambda _: self._respond(token, reply))
        else:
            self._respond(token, reply)

    def _respond(self, token: InboundRequest, reply: m.Reply) -> None:
        if isinstance(reply, m.QuorumReply):
            if reply.error != ErrorCode.NONE:
                reply.message = self._peer_monitor.no_leader_reason(self._state, self._clock.now())
            token.finish(
                replies.encode_quorum(reply, token.version, self._wall_ms, self._uncommitted_voters())
            )
            return
        records: object = None
        try:
            if isinstance(reply, m.FetchReply) and reply.read_from is not None:
                records = self._log.read(reply.read_from, reply.max_bytes)
            elif isinstance(reply, m.SnapshotReply) and reply.read:
                records = self._log.read_snapshot(reply.snapshot, reply.position, reply.read)
        except (OSError, LogDirFailure) as e:  # only this request fails
            logger.error("[RaftClient id=%d] cannot read for a peer: %s", self._state.me.id, e)
            reply.error = ErrorCode.UNKNOWN_SERVER_ERROR
        endpoint = self._state.leader_address(token.listener)
        token.finish(replies.encode_reply(reply, token.request, token.version, endpoint, records))

    async def _compare_prefix(self, reply: m.SnapshotReply) -> None:
        """Compares the begin of the snapshot with that of the sender, in a thread: the file may be large."""
        wanted, reply.compare = reply.compare, None
        try:
            found = await in_thread(self._log.snapshot_prefix_digest, reply.snapshot, reply.position)
        except OSError as e:
            logger.warning("[RaftClient] cannot compare snapshot %s: %s", tuple(reply.snapshot), e)
        else:
            reply.same_prefix = found == wanted

    def _wall_ms(self, at: float | None) -> int:
        return -1 if at is None else self._clock.now_ms() - int((self._clock.now() - at) * 1000)

    def _uncommitted_voters(self) -> tuple[list[ReplicaKey], list[ReplicaKey]]:
        """The voters that uncommitted records add and remove."""
        members = self._state.members
        now = {v.key for v in members.current}
        before = {v.key for v in members.voters_at(self._delivery.hwm - 1)}
        return sorted(now - before, key=lambda k: k.id), sorted(before - now, key=lambda k: k.id)
