"""TCP ports of 127.0.0.1 that stay reserved for one cluster, also while its node is down."""

from __future__ import annotations

import socket
import sys

HOST = "127.0.0.1"

_SHARED_BIND = sys.platform == "linux"
"""Linux lets a second socket with SO_REUSEADDR bind a port as long as no socket listens on it. Other
systems do not."""


class PortReservation:
    """One port, chosen by the kernel and bound, without listening, until `close`.

    The kernel gives a bound port to nobody who asks for port 0 and to no outgoing connection, and
    connections to it are refused. A node can bind it nevertheless: it sets SO_REUSEADDR, as this socket
    does. On systems other than Linux `lend` gives the port back just before the node starts, so that
    another process may take it in between.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((HOST, 0))
        self.port: int = self._socket.getsockname()[1]

    def lend(self) -> None:
        """Makes the port available to a node that starts."""
        if not _SHARED_BIND:
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
