"""Heartbeats as signs of life, and over which connection each broker session was last heard of.

A connection that is reset says that its broker may be gone: the session is then shortened, so that a
broker that was killed is fenced within moments, while one whose connection only broke comes back in
time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.controller.driver import QuorumController
    from quorate.net.dispatch import ClientConnection, RequestContext

Session = tuple[int, int]  # broker id and epoch


class BrokerConnections:
    """On every controller; only the active one draws conclusions."""

    __slots__ = ("_connections", "_controller")

    def __init__(self, controller: QuorumController) -> None:
        self._controller = controller
        self._connections: dict[Session, ClientConnection] = {}

    def heartbeat(self, ctx: RequestContext, request: Any, now: float) -> None:
        """Before anything else: a heartbeat counts even if what it asks for is refused."""
        controller = self._controller
        registration = controller.next_image.cluster.brokers.get(request.broker_id)
        if registration is None or registration.epoch != request.broker_epoch:
            return
        session = (registration.id, registration.epoch)
        controller.broker_sessions.contact(*session, now)
        if request.snapshot_end_offset >= 0:
            controller.broker_sessions.snapshot_offsets[registration.id] = request.snapshot_end_offset
        connection = ctx.connection
        if connection is not None and self._connections.get(session) is not connection:
            self._connections[session] = connection
            connection.on_close(lambda: self._lost(session, connection))

    def _lost(self, session: Session, connection: ClientConnection) -> None:
        if self._connections.get(session) is not connection:
            return  # it came back over another one
        del self._connections[session]
        self._controller.connection_lost(session)
