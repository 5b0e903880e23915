"""Connects to the listeners of brokers when the failure detector requires it.

A probe opens a TCP connection and closes it without sending anything. So it works for every security
protocol, and needs no credentials.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from quorate.clock import NEVER
from quorate.controller.brokers.failure_detector import Address, Answer, Attempt, FailureDetector, Probe
from quorate.lazy import lazy_module

if TYPE_CHECKING:
    from quorate.clock import Clock
    from quorate.controller.brokers.sessions import Session
    from quorate.metadata.image.cluster import BrokerRegistration
    from quorate.net import name_lookup
else:  # not needed until one connects
    name_lookup = lazy_module("quorate.net.name_lookup")

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 1.0
"""A host refuses a connection at once."""


async def attempt(address: Address) -> Attempt:
    """Connects to an address, and closes the connection at once."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            transport, _ = await name_lookup.connect(asyncio.Protocol, address[0].strip("[]"), address[1])
    except ConnectionRefusedError:
        return Attempt(Answer.REFUSED, address)
    except (OSError, ValueError):  # ValueError: the host is no valid name
        return Attempt(Answer.UNKNOWN, address)
    peer: Any = transport.get_extra_info("peername")
    transport.abort()
    return Attempt(Answer.ACCEPTED, address if peer is None else (peer[0], peer[1]))


class BrokerProbes:
    """Runs the probes of a failure detector. `on_ended` is called with the session of a broker whose process
    has ended. Nothing is probed before `start` is called."""

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        is_connected: Callable[[Session], bool],
        on_ended: Callable[[Session], None],
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._is_connected = is_connected
        self._on_ended = on_ended
        self._detector = FailureDetector()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begins to probe the brokers."""
        self._loop = asyncio.get_running_loop()
        self._arm()

    def close(self) -> None:
        """Cancels the probes that run, and starts no others."""
        self._loop = None
        self._arm()
        for task in self._tasks:
            task.cancel()

    # -- events

    def registrations_changed(self, registrations: Iterable[BrokerRegistration]) -> None:
        """Takes over the registered brokers of the newest committed image."""
        if self._loop is not None:
            self._detector.registrations_changed(registrations, self._clock.now())
            self._arm()

    def connection_lost(self, broker_id: int) -> None:
        """Probes a broker that has lost a connection to this active controller."""
        self._detector.suspect(broker_id, self._clock.now())
        self._arm()

    def term_began(self) -> None:
        """Probes the brokers that do not connect to this new active controller."""
        self._detector.term_began(self._clock.now())
        self._arm()

    def term_ended(self) -> None:
        """Ends the probes of suspected brokers."""
        self._detector.term_ended()
        self._arm()

    # -- probes

    def _arm(self) -> None:
        """Sets the timer for the next probe."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._loop is not None:
            due = self._detector.next_due()
            if due != NEVER:
                self._timer = self._loop.call_later(max(0.0, due - self._clock.now()), self._begin)

    def _begin(self) -> None:
        self._timer = None
        assert self._loop is not None
        for probe in self._detector.begin(self._clock.now(), self._is_connected):
            task = self._loop.create_task(self._run(probe))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._arm()

    async def _run(self, probe: Probe) -> None:
        attempts = await asyncio.gather(*(attempt(address) for address in probe.addresses))
        if self._loop is None:
            return
        if not probe.suspicion:
            self._log_reached(probe, attempts)
        ended = self._detector.finished(probe, attempts, self._clock.now(), self._is_connected)
        self._arm()
        if ended:
            self._on_ended(probe.session)

    def _log_reached(self, probe: Probe, attempts: list[Attempt]) -> None:
        reached = [f"{host}:{port}" for answer, (host, port) in attempts if answer is Answer.ACCEPTED]
        if reached:
            logger.info(
                "[QuorumController id=%d] Reached broker %d at epoch %d at %s.",
                self._node_id,
                *probe.session,
                ", ".join(reached),
            )
