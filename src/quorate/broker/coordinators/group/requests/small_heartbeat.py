"""Heartbeats by their bytes. A member repeats the same bytes until the next generation, with another
correlation id. They are decoded once, and the response without an error is encoded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from quorate.broker.coordinators.group.classic.classic_group import ClassicGroupState
from quorate.broker.coordinators.group.requests.known_requests import LONGEST, KnownRequests
from quorate.broker.coordinators.group.shard import GroupCoordinatorShard
from quorate.broker.coordinators.runtime import CoordinatorRuntime
from quorate.net.connections.response_queue import encode_frame
from quorate.net.errors import ProtocolViolation
from quorate.protocol.errors import KafkaError
from quorate.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from quorate.net.dispatch import FrameSource

_CORRELATION_ID, _CLIENT_ID = 4, 8

_WITHOUT_ERROR = frozenset({ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE})
"""States in which a heartbeat of a member gets no error."""


class _Heartbeat(NamedTuple):
    """A request, and the response before and after the correlation id."""

    request: HeartbeatRequest
    size: bytes
    body: bytes


class SmallHeartbeats:
    """Answers heartbeats of members of groups that need no rebalance."""

    __slots__ = ("_heartbeats", "_partition_for", "_runtime")

    def __init__(
        self, runtime: CoordinatorRuntime[GroupCoordinatorShard], partition_for: Callable[[str], int]
    ) -> None:
        """`partition_for` returns the partition of a group."""
        self._runtime = runtime
        self._partition_for = partition_for
        self._heartbeats = KnownRequests[tuple[int, bytes], _Heartbeat]()
        """By the version and the bytes from the client id on."""

    def answer(self, frame: memoryview, source: FrameSource) -> bytes | None:
        """Restarts the session of the member. Returns None for a request that gets an error."""
        key = (frame[3], bytes(frame[_CLIENT_ID:]))
        heartbeat = self._heartbeats.get(key) if not frame[2] else None
        if heartbeat is None:
            heartbeat = self._keep(key, frame, source)
            if heartbeat is None:
                return None
        request, size, body = heartbeat
        try:
            shard = self._runtime.context(self._partition_for(request.group_id)).shard
        except KafkaError:
            return None
        group = shard.classic_group(request.group_id)
        if group is None or group.state not in _WITHOUT_ERROR:
            return None
        if shard.groups.heartbeat(request, self._runtime.step_time()).error_code:
            return None  # the session was not restarted
        return b"".join((size, frame[_CORRELATION_ID:_CLIENT_ID], body))

    def _keep(self, key: tuple[int, bytes], frame: memoryview, source: FrameSource) -> _Heartbeat | None:
        """Decodes a request and keeps it, unless it is long or malformed."""
        if len(frame) > LONGEST:
            return None
        try:
            context, request = source.decode(frame)
        except ProtocolViolation:
            return None
        if not request.group_id:
            return None
        parts = encode_frame(context, HeartbeatResponse())
        response = b"".join(parts)  # type: ignore[arg-type]
        heartbeat = _Heartbeat(request, response[:_CORRELATION_ID], response[_CLIENT_ID:])
        self._heartbeats.keep(key, heartbeat)
        return heartbeat
