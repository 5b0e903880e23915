"""Reserves TCP ports of 127.0.0.1 for a cluster, even while its nodes are down."""

from __future__ import annotations

import socket
import sys
import weakref

HOST = "127.0.0.1"

_SHARED_BIND = sys.platform == "linux"
"""Linux lets a second socket with SO_REUSEADDR bind a port as long as no socket listens on it. Other
systems do not."""


class PortReservation:
    """A port that the kernel chose. A socket is bound to it, without listening, until `close` or until
    nothing refers to the reservation.

    The kernel does not choose a bound port for port 0 or for outgoing connections, and refuses connections to
    it. A node can bind it, too, because both sockets set SO_REUSEADDR. On systems other than Linux, `lend`
    closes the socket just before the node starts, so another process may take the port in between.
    """

    def __init__(self) -> None:
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((HOST, 0))
        self.port: int = bound.getsockname()[1]
        self._release = weakref.finalize(self, bound.close)

    def lend(self) -> None:
        """Makes the port available to a starting node."""
        if not _SHARED_BIND:
            self.close()

    def close(self) -> None:
        """Gives the port back."""
        self._release()
