"""Who was heard of last: the active controller's soft state about brokers, never written anywhere.

The clock is an argument everywhere. A new active controller starts with a whole session for every
unfenced broker. Source: Kafka's BrokerHeartbeatManager and its tracker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from quorate.metadata.image.cluster import BrokerRegistration

if TYPE_CHECKING:
    from quorate.controller.context import Continuation

Session = tuple[int, int]
"""(broker id, broker epoch)"""
_RECENT = 9
"""Contacts that are kept of each session: eight intervals, among which an early heartbeat hides no
regular one."""
_INTERVALS_OF_GRACE = 1.5
"""A broker reconnects for its next heartbeat, which may be late."""


@dataclass(slots=True)
class BrokerSessions:
    """Sessions and positions of brokers. session_timeout_s: silence after which a broker is to be fenced."""

    session_timeout_s: float
    contacts: dict[Session, float] = field(default_factory=dict)
    recent: dict[Session, deque[float]] = field(default_factory=dict)
    """When each session was heard of in this term, the latest last; kept when a session ends, for the
    broker may come back."""
    metadata_offsets: dict[int, int] = field(default_factory=dict)
    shutdown_offsets: dict[int, int] = field(default_factory=dict)
    """Brokers in controlled shutdown: the offset which every active broker must have applied before
    they may go."""
    snapshot_offsets: dict[int, int] = field(default_factory=dict)
    """End offset of the newest snapshot that each broker reported."""
    cut_off: set[Session] = field(default_factory=set)
    """Sessions whose connection was lost since they were last heard of."""
    under_way: list[Continuation] = field(default_factory=list)
    """Changes of very many partitions of which something is left to do."""
    predecessor: Session | None = None
    """The registration that the broker in this process had in an earlier life, unless it turns out to
    be its present one."""

    def activate(
        self, registrations: Iterable[BrokerRegistration], now: float, own_broker_id: int | None
    ) -> None:
        """Begins a term as active controller.

        own_broker_id: the broker in this very process, when it has both roles: an incarnation of it
        that is already registered belongs to a process that is gone, most likely, and must not block
        its successor.
        """
        self.contacts.clear()
        self.recent.clear()
        self.metadata_offsets.clear()
        self.shutdown_offsets.clear()
        self.cut_off.clear()
        self.under_way.clear()
        self.predecessor = None
        for registration in registrations:
            session = (registration.id, registration.epoch)
            if registration.id == own_broker_id:
                self.predecessor = session
            if not registration.fenced:
                self.contacts[session] = now

    def goes_on(self, before: Continuation | None, after: Continuation | None) -> None:
        """A change in portions has done `before` and leaves `after`."""
        self.under_way = [continuation for continuation in self.under_way if continuation is not before]
        if after is not None:
            self.under_way.append(after)

    def contact(self, broker_id: int, epoch: int, now: float) -> None:
        self.contacts[broker_id, epoch] = now
        recent = self.recent.get((broker_id, epoch))
        if recent is None:
            recent = self.recent[broker_id, epoch] = deque(maxlen=_RECENT)
        recent.append(now)
        self.cut_off.discard((broker_id, epoch))
        if self.predecessor == (broker_id, epoch):
            self.predecessor = None  # it is this process that has led before

    def connection_lost(self, broker_id: int, epoch: int, now: float, grace_s: float) -> None:
        """The process is gone, or the network is: the broker has grace_s to be heard of again, or
        longer if its heartbeats are further apart. A session never becomes longer by that."""
        session = (broker_id, epoch)
        seen = self.contacts.get(session)
        if seen is not None:
            self.cut_off.add(session)
            longest_s = max(
                (later - earlier for earlier, later in pairwise(self.recent.get(session, ()))), default=0.0
            )
            grace_s = max(grace_s, _INTERVALS_OF_GRACE * longest_s)
            self.contacts[session] = min(seen, now - self.session_timeout_s + grace_s)

    def stalled(self, seconds: float, now: float) -> None:
        """This controller could not hear anybody for so long: the silence was its own. What the brokers
        have sent meanwhile may still have to be read; whoever has been heard already gains nothing."""
        for session, seen in self.contacts.items():
            self.contacts[session] = min(now, seen + seconds)
        for recent in self.recent.values():
            for index, seen in enumerate(recent):
                recent[index] = min(now, seen + seconds)

    def has_session(self, broker_id: int, epoch: int, now: float) -> bool:
        seen = self.contacts.get((broker_id, epoch))
        return seen is not None and seen + self.session_timeout_s >= now

    def next_expired(self, now: float) -> Session | None:
        """One session whose time ran out, removed from the books; None when all are in time."""
        for session, seen in self.contacts.items():
            if seen + self.session_timeout_s < now:
                del self.contacts[session]
                self.cut_off.discard(session)
                return session
        return None

    def expire(self, session: Session, now: float) -> None:
        """Puts back a session that `next_expired` gave and whose broker could not be fenced, unless it
        was heard of meanwhile.

        It comes last, so that it does not keep others from being fenced.
        """
        self.contacts.setdefault(session, now - self.session_timeout_s - 0.001)

    def next_expiry(self) -> float:
        """The monotonic time at which the first session may run out; infinity without any."""
        return min(self.contacts.values(), default=float("inf")) + self.session_timeout_s

    def forget(self, broker_id: int, keep_epoch: int | None = None) -> None:
        """Drops the soft state of a broker, its sessions of other epochs than keep_epoch too."""
        self.metadata_offsets.pop(broker_id, None)
        self.shutdown_offsets.pop(broker_id, None)
        for session in [s for s in self.contacts if s[0] == broker_id and s[1] != keep_epoch]:
            del self.contacts[session]
            self.cut_off.discard(session)
        for session in [s for s in self.recent if s[0] == broker_id and s[1] != keep_epoch]:
            del self.recent[session]

    def touch(self, broker_id: int, fenced: bool, metadata_offset: int) -> None:
        self.metadata_offsets[broker_id] = metadata_offset
        if fenced:
            self.shutdown_offsets.pop(broker_id, None)  # being fenced ends a controlled shutdown

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """The first offset counts: what came later is not needed for this broker to leave."""
        self.shutdown_offsets.setdefault(broker_id, offset)

    def lowest_active_offset(self, registrations: Iterable[BrokerRegistration]) -> int | None:
        """The metadata offset of the slowest broker that is unfenced and staying; None if there is none."""
        return min(
            (
                self.metadata_offsets.get(r.id, -1)
                for r in registrations
                if not r.fenced and r.id not in self.shutdown_offsets
            ),
            default=None,
        )
