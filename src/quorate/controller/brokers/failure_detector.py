"""Detects that the process of a broker has ended, long before its session expires.

A closed connection alone proves little: the broker may live and reconnect for its next heartbeat. The
process has ended if, in addition, the host of the broker refuses connections to the listeners of the
broker. A host does that only while it runs, so a timeout or an unreachable network proves nothing, and the
session decides. The same holds for a frozen broker, whose host still accepts connections for it.

A firewall or a proxy may refuse connections, too, and a broker may register before it listens. So only an
address that has accepted a connection of this controller since the broker was unfenced counts. A standby
collects these addresses as well, for the term in which it is active.

The decision requires that

  1. the broker has no open connection to this controller, neither for heartbeats nor for the Fetch of its
     metadata replica, and
  2. all addresses of the broker that have accepted a connection before refuse one now,

in `REFUSALS` probes with a pause between them. Any sign of life in between starts the count again. The
pauses also protect from a stall of this controller, which reads the requests of a live broker before the
next probe ends.

The detector does no I/O: `probes` connects, and reports the results to the detector.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import NamedTuple

from quorate.clock import NEVER
from quorate.controller.brokers.sessions import Session
from quorate.dataclass import dataclass
from quorate.metadata.image.cluster import BrokerRegistration

Address = tuple[str, int]
"""(host, port)"""

REFUSALS = 3
FIRST_PAUSE_S = 0.05
"""The time from the loss of a connection to the first probe. A process that ends closes its listeners and
its connections one after the other."""
PAUSE_S = 0.2
"""The time from a refusal to the next probe. A live broker whose connections were reset reconnects its
metadata replica sooner (`controller.quorum.retry.backoff.ms`)."""
NEW_TERM_PAUSE_S = 0.3
"""The time that brokers have to connect to a new active controller before it probes them. Most of them need
no probe then."""
LONGEST_PAUSE_S = 1.0
"""The longest time between two probes that prove nothing."""
FIRST_REACH_PAUSE_S = 0.2
"""The time from the unfencing of a broker to the first attempt to reach its listeners."""
LONGEST_REACH_PAUSE_S = 60.0
"""The longest time between two attempts to reach a listener that has accepted no connection yet."""
MAX_REACHING = 16
"""The brokers whose listeners are being reached at the same time, at the start of a large cluster."""


class Answer(enum.Enum):
    """The answer of a host to a connection attempt."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """The host runs, and no process listens at the address."""
    UNKNOWN = "unknown"
    """A timeout, an unreachable network, or an error of this node."""


class Attempt(NamedTuple):
    """The result of one connection attempt. `address` is the resolved one if it was accepted."""

    answer: Answer
    address: Address


class Probe(NamedTuple):
    """Connection attempts to `addresses` of one broker. `suspicion` numbers the suspicion that they examine;
    0 stands for an attempt to reach listeners for the first time."""

    session: Session
    addresses: tuple[Address, ...]
    suspicion: int


@dataclass(slots=True)
class _Broker:
    """The knowledge about one unfenced broker."""

    unreached: tuple[Address, ...]
    """The registered addresses that have accepted no connection yet."""
    reach_due: float
    reach_pause_s: float = FIRST_REACH_PAUSE_S
    reached: dict[Address, None] = field(default_factory=dict)
    """The resolved addresses that have accepted a connection."""
    reaching: bool = False
    suspicion: int = 0
    """The number of the current suspicion, or 0."""
    due: float = NEVER
    """The time of the next probe of the current suspicion."""
    pause_s: float = PAUSE_S
    refusals: int = 0


class FailureDetector:
    """The unfenced brokers, the addresses at which they were reached, and those that are suspected."""

    __slots__ = ("_brokers", "_reaching", "_suspicions")

    def __init__(self) -> None:
        self._brokers: dict[Session, _Broker] = {}
        self._suspicions = 0
        self._reaching = 0

    # -- events

    def registrations_changed(self, registrations: Iterable[BrokerRegistration], now: float) -> None:
        """Takes over the registered brokers. A broker that was fenced or that registered again is a new
        one."""
        before, self._brokers = self._brokers, {}
        for registration in registrations:
            if registration.fenced:
                continue
            session = (registration.id, registration.epoch)
            broker = before.pop(session, None)
            if broker is None:
                addresses = dict.fromkeys(
                    (listener.host, listener.port) for listener in registration.listeners
                )
                broker = _Broker(tuple(addresses), now + FIRST_REACH_PAUSE_S)
            self._brokers[session] = broker
        self._reaching -= sum(broker.reaching for broker in before.values())

    def suspect(self, broker_id: int, now: float, pause_s: float = FIRST_PAUSE_S) -> None:
        """Begins to probe a broker, because a connection of it was closed. A suspicion that exists begins
        again: the broker had another connection meanwhile."""
        for session, broker in self._brokers.items():
            if session[0] == broker_id:
                self._suspicions += 1
                broker.suspicion, broker.refusals, broker.pause_s = self._suspicions, 0, PAUSE_S
                broker.due = now + pause_s

    def term_began(self, now: float) -> None:
        """Suspects every broker, as none of them has sent a heartbeat to this active controller yet."""
        for broker_id, _ in tuple(self._brokers):
            self.suspect(broker_id, now, NEW_TERM_PAUSE_S)

    def term_ended(self) -> None:
        """Drops all suspicions: only the active controller fences brokers."""
        for broker in self._brokers.values():
            broker.suspicion, broker.due = 0, NEVER

    # -- probes

    def next_due(self) -> float:
        """The time at which the next probe is due, or NEVER."""
        due = NEVER
        for broker in self._brokers.values():
            due = min(due, broker.due)
            if self._reaching < MAX_REACHING and self._may_reach(broker):
                due = min(due, broker.reach_due)
        return due

    def begin(self, now: float, is_connected: Callable[[Session], bool]) -> list[Probe]:
        """The probes that are due. Each must be followed by `finished`. Ends the suspicion of a broker that
        is connected."""
        probes: list[Probe] = []
        for session, broker in self._brokers.items():
            if broker.due <= now:
                broker.due = NEVER
                if is_connected(session) or not broker.reached:
                    broker.suspicion = 0
                else:
                    probes.append(Probe(session, tuple(broker.reached), broker.suspicion))
            if broker.reach_due <= now and self._reaching < MAX_REACHING and self._may_reach(broker):
                broker.reaching = True
                self._reaching += 1
                probes.append(Probe(session, broker.unreached, 0))
        return probes

    def finished(
        self, probe: Probe, attempts: Sequence[Attempt], now: float, is_connected: Callable[[Session], bool]
    ) -> bool:
        """Takes over the results of a probe, in the order of its addresses. Returns whether the process of
        the broker has ended."""
        broker = self._brokers.get(probe.session)
        if broker is None:
            return False
        if not probe.suspicion:
            self._reached(broker, probe, attempts, now)
            return False
        if broker.suspicion != probe.suspicion:
            return False
        if is_connected(probe.session):
            broker.suspicion = 0
            return False
        if all(attempt.answer is Answer.REFUSED for attempt in attempts):
            broker.refusals += 1
            if broker.refusals >= REFUSALS:
                broker.suspicion = 0
                return True
            broker.pause_s = PAUSE_S
        else:
            broker.refusals = 0
        broker.due = now + broker.pause_s
        broker.pause_s = min(2 * broker.pause_s, LONGEST_PAUSE_S)
        return False

    def _reached(self, broker: _Broker, probe: Probe, attempts: Sequence[Attempt], now: float) -> None:
        """Takes over the results of an attempt to reach listeners for the first time."""
        if broker.reaching:  # not if the broker was fenced and unfenced meanwhile
            broker.reaching = False
            self._reaching -= 1
        accepted = set()
        for wanted, attempt in zip(probe.addresses, attempts, strict=True):
            if attempt.answer is Answer.ACCEPTED:
                accepted.add(wanted)
                broker.reached[attempt.address] = None
        broker.unreached = tuple(wanted for wanted in broker.unreached if wanted not in accepted)
        broker.reach_pause_s = min(2 * broker.reach_pause_s, LONGEST_REACH_PAUSE_S)
        broker.reach_due = now + broker.reach_pause_s

    @staticmethod
    def _may_reach(broker: _Broker) -> bool:
        return bool(broker.unreached) and not broker.reaching and not broker.suspicion
