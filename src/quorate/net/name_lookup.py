"""Connects to a host by its name. A name whose lookup hangs does not delay the lookups of other names.

The resolver of the operating system blocks its thread until it has asked all name servers, which may take
a minute when one of them does not answer. Event loops look names up in a few threads (uvloop in two), and
do not end a lookup whose caller has given up. So the attempts to connect to one node with such a name
would soon keep all these threads busy, and no other node could be reached by its name. Here each lookup
has a thread of its own, and attempts that run at the same time share it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

SHARED_S = 2.0
"""A lookup is shared by the attempts of this time. Later attempts begin another one, since the name servers
may answer again."""
MAX_LOOKUPS = 4
"""The lookups of one name at the same time."""


class _Lookup(NamedTuple):
    """A lookup that has not ended, and when it began."""

    began: float
    found: Future[list[str]]


_lookups: dict[str, list[_Lookup]] = {}
_lock = threading.Lock()


async def connect(
    factory: Callable[[], ProtocolT], host: str, port: int, **options: Any
) -> tuple[asyncio.Transport, ProtocolT]:
    """Does the same as `create_connection` of the running event loop.

    Tries the addresses of the host one after the other. Raises OSError, and ValueError for a name that
    cannot be looked up.
    """
    loop = asyncio.get_running_loop()
    addresses = [host] if _is_address(host) else await addresses_of(host)
    errors: list[OSError] = []
    for address in addresses:
        try:
            return await loop.create_connection(factory, address, port, **options)
        except ssl.SSLError:
            raise
        except OSError as error:
            errors.append(error)
    # If any address does not refuse the connection, the host may be alive.
    raise next((e for e in errors if not isinstance(e, ConnectionRefusedError)), errors[-1])


async def addresses_of(host: str) -> list[str]:
    """The addresses of a host, at least one. Raises OSError and ValueError."""
    return await asyncio.wrap_future(_shared_lookup(host))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _shared_lookup(host: str) -> Future[list[str]]:
    now = time.monotonic()
    with _lock:
        running = _lookups.setdefault(host, [])
        if running and (now - running[-1].began < SHARED_S or len(running) >= MAX_LOOKUPS):
            return running[-1].found
        lookup = _Lookup(now, Future())
        lookup.found.set_running_or_notify_cancel()  # a waiter that gives up does not end it for the others
        running.append(lookup)
    try:
        threading.Thread(target=_look_up, args=(host, lookup), name=f"lookup-{host}", daemon=True).start()
    except RuntimeError as error:  # the system has no more threads
        _remove(host, lookup)
        lookup.found.set_exception(OSError(f"cannot look up {host}: {error}"))
    return lookup.found


def _look_up(host: str, lookup: _Lookup) -> None:
    found: list[str] = []
    failure: Exception | None = None
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        found = list(dict.fromkeys(str(info[4][0]) for info in infos))
    except Exception as error:
        failure = error
    _remove(host, lookup)
    with contextlib.suppress(RuntimeError):  # the event loop of a waiter has been closed
        if failure is not None:
            lookup.found.set_exception(failure)
        else:
            lookup.found.set_result(found)


def _remove(host: str, lookup: _Lookup) -> None:
    """Removes a lookup that has ended."""
    with _lock:
        running = _lookups[host]
        running.remove(lookup)
        if not running:
            del _lookups[host]
