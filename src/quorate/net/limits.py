"""Limits of connections and listeners, each with the reason for its value."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from quorate.dataclass import dataclass

UNLIMITED = 2_147_483_647
"""Kafka's default of each number of connections."""


@dataclass(slots=True, frozen=True)
class ConnectionLimits:
    """Limits of one listener, from its node's configuration.

    Times are in seconds, sizes in bytes.
    """

    FIRST_REQUEST_S: ClassVar[float] = 60.0
    FRAME_STALL_S: ClassVar[float] = 30.0

    max_frame_bytes: int = 104_857_600
    """`socket.request.max.bytes`: the largest request after the first one of a connection. Controllers also
    accept the Envelope of a request of this size."""

    first_frame_bytes: int = 65_536
    """The largest first request, unless its header names an API and a version that are served. Limits
    the memory for peers that may not be Kafka clients. ApiVersions requests and SASL tokens of all known
    clients are far smaller."""

    unauthenticated_frame_bytes: int = 524_288
    """`sasl.server.max.receive.size`: the largest frame on a SASL listener before the client is
    authenticated."""

    max_idle_s: float = 600.0
    """`connections.max.idle.ms`: a connection is closed after this time without a byte of a request or of a
    response, also while a request waits for its answer. That may take weeks, and while the connection is not
    read, nobody knows whether its client still exists. A consumer may stop reading for minutes while its
    application is busy."""

    first_request_s: float = FIRST_REQUEST_S
    """A new connection is closed after this time without a complete request. Kafka waits for the idle
    time. Clients send their first request at once; half-open connections would accumulate."""

    frame_stall_s: float = FRAME_STALL_S
    """A frame must be complete within this time plus its size divided by `frame_min_rate`."""

    frame_min_rate: int = 16_384
    """The slowest rate, in bytes per second, at which a peer may send a frame."""

    max_in_flight: int = 100
    """Requests of a connection that are read but not answered yet; further ones wait in the socket.
    Kafka reads one at a time. Admin clients have hundreds of topic creations in flight."""

    max_in_flight_bytes: int = 32 << 20
    """Bytes of such requests of a connection: thirty batches of a producer's default maximum size. A
    single request may be larger."""

    write_high_bytes: int = 1 << 20
    """Bytes of responses of a connection that are held in memory, for a slow reader or after an
    earlier response. Above this limit its requests are not read."""

    max_connections: int = UNLIMITED
    """`max.connections`."""

    max_connections_per_ip: int = UNLIMITED
    """`max.connections.per.ip`."""

    max_connections_per_ip_overrides: dict[str, int] = field(default_factory=dict)
    """`max.connections.per.ip.overrides`: address -> limit."""
