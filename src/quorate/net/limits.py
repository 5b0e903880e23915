"""What one connection, and one listener, may take. Every figure is justified beside its value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True, frozen=True)
class ConnectionLimits:
    """Limits of one listener, from its node's configuration.

    Times are in seconds, sizes in bytes.
    """

    FIRST_REQUEST_S: ClassVar[float] = 60.0
    FRAME_STALL_S: ClassVar[float] = 30.0

    max_frame_bytes: int = 104_857_600
    """`socket.request.max.bytes`: the largest request of a connection that has shown itself to be a
    client."""

    first_frame_bytes: int = 65_536
    """The largest first request unless its header names an API and version served here: whoever has
    said nothing sensible yet gets no more than this buffered. ApiVersions and SASL tokens of every
    known client are far below."""

    unauthenticated_frame_bytes: int = 524_288
    """The largest frame before authentication ends on a SASL listener (Kafka's
    `sasl.server.max.receive.size`)."""

    max_idle_s: float = 600.0
    """`connections.max.idle.ms`: a connection with nothing in flight for so long is closed, and one
    whose peer takes nothing of an answer for so long. A consumer may pause reading for minutes, while
    its application is busy."""

    first_request_s: float = FIRST_REQUEST_S
    """A peer that connects and does not complete one request for so long is closed. Kafka waits the
    idle time; clients speak at once, and half-open connections are what piles up."""

    frame_stall_s: float = FRAME_STALL_S
    """A started frame must be complete within this plus the time that its size takes at `frame_min_rate`."""

    frame_min_rate: int = 16_384
    """Bytes per second: below this a sender holds a connection for nothing."""

    max_in_flight: int = 100
    """Requests read and not yet answered, for each connection; further ones wait in the socket. Kafka's
    is 1, its pipelining starts in the client's send buffer; admin clients keep hundreds of creations in
    flight."""

    max_in_flight_bytes: int = 32 << 20
    """Bytes of such requests, for each connection: thirty batches of a producer's default maximum. One
    request may be larger."""

    write_high_bytes: int = 1 << 20
    """Answer bytes held in memory for each connection, for a slow reader or behind the unfinished
    answer to an earlier request, before its requests are read no more."""

    max_connections: int = 2_147_483_647
    """`max.connections`."""

    max_connections_per_ip: int = 2_147_483_647
    """`max.connections.per.ip`."""

    max_connections_per_ip_overrides: dict[str, int] = field(default_factory=dict)
    """`max.connections.per.ip.overrides`: address -> limit."""
