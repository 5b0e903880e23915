"""Requests of other nodes from the driver's side: who asked, and the answer with the bytes that it names."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from quorate.log.errors import LogDirFailure
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.raft.core import messages as m
from quorate.raft.core.membership import reply_endpoints
from quorate.raft.runtime import wire
from quorate.raft.storage.threads import in_thread

if TYPE_CHECKING:
    from quorate.protocol.schema import Request, Response
    from quorate.raft.core.raft import Raft
    from quorate.raft.runtime.ports import Clock
    from quorate.raft.storage.metadata_log import MetadataLog
    from quorate.raft.types import ReplicaKey

log = logging.getLogger(__name__)


class Asked:
    """A request from outside until it is answered."""

    __slots__ = ("future", "request", "response", "version", "where")

    def __init__(self, request: Request, version: int, where: str) -> None:
        self.request = request
        self.version = version
        self.where = where  # the listener's name: endpoints in the answer are for it
        self.response: Response | None = None
        self.future: asyncio.Future[Response] | None = None

    def finish(self, response: Response) -> None:
        self.response = response
        if self.future is not None and not self.future.done():
            self.future.set_result(response)


class Upgrade:
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


def respond(core: Raft, files: MetadataLog, asked: Asked, reply: m.Reply, clock: Clock, hwm: int) -> Response:
    """The message for a reply of the core. What cannot be read is an error of this answer alone."""
    if isinstance(reply, m.QuorumReply):

        def wall_ms(at: float | None) -> int:
            return -1 if at is None else clock.now_ms() - int((clock.now() - at) * 1000)

        return wire.encode_quorum(reply, asked.version, wall_ms, uncommitted(core, hwm))
    records: object = None
    try:
        if isinstance(reply, m.FetchReply) and reply.read_from is not None:
            records = files.read(reply.read_from, reply.max_bytes)
        elif isinstance(reply, m.SnapshotReply) and reply.read:
            records = files.read_snapshot(reply.snapshot, reply.position, reply.read)
    except (OSError, LogDirFailure) as e:
        log.error("[RaftClient id=%d] cannot read for a peer: %s", core.me.id, e)
        reply.error = ErrorCode.UNKNOWN_SERVER_ERROR
    endpoint = reply_endpoints(core, asked.where).get(asked.where)
    return wire.encode_reply(reply, asked.request, asked.version, endpoint, records)


async def compare(files: MetadataLog, reply: m.SnapshotReply) -> None:
    """Notes whether our file begins as the asker's does; that takes a thread, for the file may be large."""
    wanted, reply.compare = reply.compare, None
    try:
        found = await in_thread(files.snapshot_prefix_digest, reply.snapshot, reply.position)
    except OSError as e:
        log.warning("[RaftClient] cannot compare snapshot %s: %s", tuple(reply.snapshot), e)
    else:
        reply.same_prefix = found == wanted


def uncommitted(core: Raft, hwm: int) -> tuple[list[ReplicaKey], list[ReplicaKey]]:
    """Voters that the uncommitted part of the log adds and removes."""
    now = {v.key for v in core.members.current}
    before = {v.key for v in core.members.voters_at(hwm - 1)}
    return sorted(now - before, key=lambda k: k.id), sorted(before - now, key=lambda k: k.id)
