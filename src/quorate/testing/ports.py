"""Reserves TCP ports of 127.0.0.1 for a cluster, even while its nodes are down."""

from __future__ import annotations

import socket
import sys

HOST = "127.0.0.1"

_SHARED_BIND = sys.platform == "linux"
"""Linux lets a second socket with SO_REUSEADDR bind a port as long as no socket listens on it. Other
systems do not."""


class PortReservation:
    """A port that the kernel chose. A socket is bound to it, without listening, until `close`.

    The kernel does not choose a bound port for port 0 or for outgoing connections, and refuses connections to
    it. A node can bind it, too, because both sockets set SO_REUSEADDR. On systems other than Linux, `lend`
    closes the socket just before the node starts, so another process may take the port in between.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((HOST, 0))
        self.port: int = self._socket.getsockname()[1]

    def lend(self) -> None:
        """Makes the port available to a starting node."""
        if not _SHARED_BIND:
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
