"""The connection over which each broker sent its last heartbeat.

A closed connection is a sign that its broker may be gone. The session is shortened then: a broker that
was killed is fenced within moments, and a broker that lost only its connection has time to reconnect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.controller.brokers.sessions import Session
    from quorate.controller.state import ControllerState
    from quorate.net.dispatch import ClientConnection, RequestContext


class BrokerConnections:
    """Records heartbeats and their connections. `on_lost` is called with a session whose connection was
    closed."""

    __slots__ = ("_connections", "_on_lost", "_state")

    def __init__(self, state: ControllerState, on_lost: Callable[[Session], None]) -> None:
        self._state = state
        self._on_lost = on_lost
        self._connections: dict[Session, ClientConnection] = {}

    def heartbeat(self, ctx: RequestContext, request: Any, now: float) -> None:
        """Extends the broker's session. Called before the handler, because a heartbeat extends the
        session even if its request is rejected."""
        state = self._state
        registration = state.next_image.cluster.brokers.get(request.broker_id)
        if registration is None or registration.epoch != request.broker_epoch:
            return
        session = (registration.id, registration.epoch)
        state.broker_sessions.contact(*session, now)
        if request.snapshot_end_offset >= 0:
            state.broker_sessions.snapshot_offsets[registration.id] = request.snapshot_end_offset
        connection = ctx.connection
        if connection is not None and self._connections.get(session) is not connection:
            self._connections[session] = connection
            connection.on_close(lambda: self._closed(session, connection))

    def _closed(self, session: Session, connection: ClientConnection) -> None:
        if self._connections.get(session) is not connection:
            return  # the broker has reconnected
        del self._connections[session]
        self._on_lost(session)
