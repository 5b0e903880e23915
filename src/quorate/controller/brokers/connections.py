"""The open connections of each broker: the one of its last heartbeat, and the one of the last Fetch of its
metadata replica.

A closed connection is a sign that its broker may be gone. The session is shortened when the connection of
the heartbeats is closed, so that a broker that lost only its connection has time to reconnect. The failure
detector examines a broker that lost any of the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.controller.brokers.sessions import Session
    from quorate.controller.state import ControllerState
    from quorate.net.dispatch import ClientConnection, RequestContext

REPLICA_STATE_SINCE_VERSION = 15
"""Fetch has the id of the replica in `replica_state` from version 15 on."""


class BrokerConnections:
    """Records heartbeats, Fetches and their connections.

    `on_lost` is called with a session whose connection was closed. `on_fetch_lost` is called with the id of
    a broker whose metadata replica has lost its connection.
    """

    __slots__ = ("_connections", "_fetch_connections", "_on_fetch_lost", "_on_lost", "_state")

    def __init__(
        self,
        state: ControllerState,
        on_lost: Callable[[Session], None],
        on_fetch_lost: Callable[[int], None],
    ) -> None:
        self._state = state
        self._on_lost = on_lost
        self._on_fetch_lost = on_fetch_lost
        self._connections: dict[Session, ClientConnection] = {}
        self._fetch_connections: dict[int, ClientConnection] = {}

    def is_connected(self, session: Session) -> bool:
        """Whether the broker has an open connection to this controller."""
        return session in self._connections or session[0] in self._fetch_connections

    def heartbeat(self, ctx: RequestContext, request: Any, now: float) -> None:
        """Extends the broker's session. Called before the handler, because a heartbeat extends the
        session even if its request is rejected."""
        state = self._state
        registration = state.next_image.cluster.brokers.get(request.broker_id)
        if registration is None or registration.epoch != request.broker_epoch:
            return
        session = (registration.id, registration.epoch)
        state.broker_sessions.contact(*session, now)
        connection = ctx.connection
        if connection is not None and self._connections.get(session) is not connection:
            self._connections[session] = connection
            connection.on_close(lambda: self._closed(session, connection))

    def fetch(self, ctx: RequestContext, request: Any) -> None:
        """Records the connection of a Fetch. Fetches of replicas that are no registered broker are
        ignored."""
        since = REPLICA_STATE_SINCE_VERSION
        replica_id = request.replica_state.replica_id if ctx.api_version >= since else request.replica_id
        connection = ctx.connection
        if (
            connection is not None
            and self._fetch_connections.get(replica_id) is not connection
            and replica_id in self._state.image.cluster.brokers
        ):
            self._fetch_connections[replica_id] = connection
            connection.on_close(lambda: self._fetch_closed(replica_id, connection))

    def _closed(self, session: Session, connection: ClientConnection) -> None:
        if self._connections.get(session) is not connection:
            return  # the broker has reconnected
        del self._connections[session]
        self._on_lost(session)

    def _fetch_closed(self, replica_id: int, connection: ClientConnection) -> None:
        if self._fetch_connections.get(replica_id) is not connection:
            return  # the replica has reconnected
        del self._fetch_connections[replica_id]
        self._on_fetch_lost(replica_id)
