"""Binds listening sockets, and explains to the operator why one cannot be bound."""

from __future__ import annotations

import errno
import socket

from quorate.net.errors import ListenerError


def bind_sockets(host: str, port: int, name: str) -> list[socket.socket]:
    """Binds sockets to `host`:`port`, without listening yet.

    An empty host means every address, with one socket for IPv6 and IPv4 if the system supports that. A
    host name means its first address, as in Java. Raises ListenerError.
    """
    where = f"{host or '*'}:{port}"
    if not host:
        candidates: list[tuple[int, tuple[object, ...], bool]] = [
            (socket.AF_INET6, ("::", port), True),
            (socket.AF_INET, ("0.0.0.0", port), False),
        ]
        if not socket.has_ipv6:
            del candidates[0]
    else:
        try:
            infos = socket.getaddrinfo(
                host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as e:
            raise ListenerError(
                f"listener {name}: {host!r} is not an address of any host ({e.strerror or e}); "
                "correct the host in listeners, or leave it empty to listen on every address"
            ) from e
        infos.sort(key=lambda i: i[0] != socket.AF_INET)  # Java prefers IPv4 where a name has both
        candidates = [(infos[0][0], infos[0][4], False)]
    last: OSError | None = None
    for family, address, dual in candidates:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as e:
            last = e
            continue
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
            sock.setblocking(False)
            sock.bind(address)
            return [sock]
        except OSError as e:
            sock.close()
            last = e
            if e.errno == errno.EADDRINUSE:
                break
    assert last is not None
    raise ListenerError(f"listener {name} cannot listen on {where}: {_reason(last, port)}") from last


def _reason(error: OSError, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"port {port} is in use by another process; stop that one (ss -ltnp 'sport = :{port}' "
                "names it) or give another port in listeners"
            )
        case errno.EACCES | errno.EPERM:
            return f"port {port} needs privileges; choose one from 1024 on in listeners"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address; correct the host in listeners"
        case _:
            return error.strerror or str(error)
