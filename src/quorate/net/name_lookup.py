"""Connects to a host by its name. A name whose lookup hangs does not delay the lookups of other names.

The resolver of the operating system blocks its thread until it has asked all name servers, which may take
a minute when one of them does not answer. Event loops look names up in a few threads (uvloop in two), and
do not end a lookup whose caller has given up. So the attempts to connect to one node with such a name
would soon keep all these threads busy, and no other node could be reached by its name. Here each lookup
has a thread of its own, and attempts that run at the same time share it. A lookup that takes longer than an
attempt serves later ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from quorate.dataclass import dataclass

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)
Connected = tuple[asyncio.Transport, ProtocolT]

HEAD_START_S = 0.25
"""An attempt that has not connected after this time no longer delays the one to the next address of the name
(the Connection Attempt Delay of RFC 8305)."""

SHARED_S = 2.0
"""A lookup is shared by the attempts of this time. Later attempts begin another one, since the name servers
may answer again, and take the result of the first one that ends."""
MAX_LOOKUPS = 4
"""The lookups of one name at the same time."""

SLOW_S = 0.5
"""A lookup that has taken so long may have ended after its attempts had given up."""
KEPT_S = 10.0
"""The result of such a lookup is kept for the attempts of this time. When the first name server does not
answer, each lookup takes 5 seconds, longer than an attempt. Java keeps each result for 30 seconds."""


def _unknown() -> Future[list[str]]:
    found: Future[list[str]] = Future()
    found.set_running_or_notify_cancel()  # a waiter that gives up does not end it for the others
    return found


@dataclass(slots=True)
class _Lookups:
    """The lookups of one name that have not ended."""

    began: list[float] = field(default_factory=list)
    """When each of them began."""
    found: Future[list[str]] = field(default_factory=_unknown)
    """The result of the one that ends first."""
    newest_ended: float = 0.0
    """When the newest one that has ended began. An older result must not replace its result."""


class _Kept(NamedTuple):
    """The result of a slow lookup, and when it ended."""

    ended: float
    addresses: list[str]


_lookups: dict[str, _Lookups] = {}
_kept: dict[str, _Kept] = {}
_lock = threading.Lock()


async def connect(
    factory: Callable[[], ProtocolT], host: str, port: int, **options: Any
) -> Connected[ProtocolT]:
    """Does the same as `create_connection` of the running event loop.

    Tries the addresses of the host in their order. The next one is tried when an attempt has failed or has
    taken `HEAD_START_S`, and the first connection is taken. Raises OSError, and ValueError for a name that
    cannot be looked up.
    """
    loop = asyncio.get_running_loop()
    addresses = [host] if _is_address(host) else await addresses_of(host)
    if len(addresses) == 1:
        return await loop.create_connection(factory, addresses[0], port, **options)
    return await _first_of(
        [partial(loop.create_connection, factory, address, port, **options) for address in addresses]
    )


async def _first_of(
    attempts: list[Callable[[], Coroutine[Any, Any, Connected[ProtocolT]]]],
) -> Connected[ProtocolT]:
    """The first connection of several attempts, which begin one after the other. Ends the other attempts."""
    running: set[asyncio.Task[Connected[ProtocolT]]] = set()
    errors: list[OSError] = []
    try:
        while attempts or running:
            if attempts:
                running.add(asyncio.ensure_future(attempts.pop(0)()))
            done, _ = await asyncio.wait(
                running, timeout=HEAD_START_S if attempts else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                running.discard(task)
                try:
                    return task.result()
                except ssl.SSLError:
                    raise
                except OSError as error:
                    errors.append(error)
    finally:
        for task in running:
            task.cancel()
            task.add_done_callback(_abort)
    # If any address does not refuse the connection, the host may be alive.
    raise next((e for e in errors if not isinstance(e, ConnectionRefusedError)), errors[-1])


def _abort(attempt: asyncio.Task[Connected[ProtocolT]]) -> None:
    """Closes the connection of an attempt that has ended too late."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result()[0].abort()


async def addresses_of(host: str) -> list[str]:
    """The addresses of a host, at least one. Raises OSError and ValueError."""
    now = time.monotonic()
    with _lock:
        kept = _kept.get(host)
        if kept is not None and now - kept.ended < KEPT_S:
            return kept.addresses
        found = _shared_lookup(host, now)
    return await asyncio.wrap_future(found)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _shared_lookup(host: str, now: float) -> Future[list[str]]:
    """The result of the first lookup of a host that ends. Starts a lookup if none is running, or if the last
    one is `SHARED_S` old. The caller holds the lock. Raises OSError."""
    lookups = _lookups.get(host) or _Lookups()
    began = lookups.began
    if not began or (now - began[-1] >= SHARED_S and len(began) < MAX_LOOKUPS):
        try:
            threading.Thread(target=_look_up, args=(host, now), name=f"lookup-{host}", daemon=True).start()
        except RuntimeError as error:  # out of threads: a later attempt may succeed
            if not began:
                raise OSError(errno.EAGAIN, str(error)) from error
        else:
            began.append(now)
            _lookups[host] = lookups
    return lookups.found


def _look_up(host: str, began: float) -> None:
    addresses: list[str] = []
    failure: Exception | None = None
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(info[4][0]) for info in infos))
    except Exception as error:
        failure = error
    ended = time.monotonic()
    with _lock:
        lookups = _lookups[host]
        found, lookups.found = lookups.found, _unknown()
        lookups.began.remove(began)
        if not lookups.began:
            del _lookups[host]
        if began >= lookups.newest_ended:
            lookups.newest_ended = began
            _kept.pop(host, None)
            if failure is None and ended - began >= SLOW_S:
                _kept[host] = _Kept(ended, addresses)
    with contextlib.suppress(RuntimeError):  # the event loop of a waiter has been closed
        if failure is not None:
            found.set_exception(failure)
        else:
            found.set_result(addresses)
