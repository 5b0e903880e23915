"""The sessions of brokers with the active controller.

Sessions are soft state: they are never written to the log. A new active controller starts with a full
session for every unfenced broker. Every method takes the time as an argument. Source: Kafka's
BrokerHeartbeatManager and BrokerHeartbeatTracker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import field
from itertools import pairwise

from quorate.clock import NEVER
from quorate.controller.changes.batched_change import Continuation
from quorate.dataclass import dataclass
from quorate.metadata.image.cluster import BrokerRegistration

Session = tuple[int, int]
"""(broker id, broker epoch)"""
_RECENT_CONTACTS = 9
"""The contacts that are kept of each session. Nine contacts give eight intervals, so that an additional
early heartbeat does not hide the regular interval."""
_EXPIRED_FOR_S = 0.002
"""An expired session is set back by this time beyond its end, which is more than the rounding of times."""
_INTERVALS_OF_GRACE = 1.5
"""A broker whose connection was closed has this many times its longest heartbeat interval to return: it
reconnects for its next heartbeat, which may be late."""


@dataclass(slots=True)
class BrokerSessions:
    """Sessions, metadata offsets and pending changes of brokers."""

    session_timeout_s: float
    """The time without a contact after which a broker is fenced."""
    contacts: dict[Session, float] = field(default_factory=dict)
    """The time of the last contact of each open session."""
    recent: dict[Session, deque[float]] = field(default_factory=dict)
    """The times of each session's last contacts in this term, the latest last. They are kept when the
    session ends, since the broker may come back."""
    metadata_offsets: dict[int, int] = field(default_factory=dict)
    """The offset up to which each broker has applied the metadata."""
    shutdown_offsets: dict[int, int] = field(default_factory=dict)
    """For each broker in controlled shutdown, the offset that every active broker must have applied
    before the broker may shut down."""
    disconnected: set[Session] = field(default_factory=set)
    """Sessions whose connection was closed since their last contact."""
    ended: set[Session] = field(default_factory=set)
    """Sessions of brokers whose process has ended, until the broker is fenced."""
    continuations: list[Continuation] = field(default_factory=list)
    """Changes of very many partitions that are not complete."""
    expired_count: int = 0
    """Sessions that have expired on this controller."""
    predecessor: Session | None = None
    """The session under which the broker of this node was registered when the term began. It most
    likely belongs to the previous process of this node."""

    def activate(
        self, registrations: Iterable[BrokerRegistration], now: float, own_broker_id: int | None
    ) -> None:
        """Begins a term as active controller.

        `own_broker_id` is the id of the broker in this process if it has both roles. A registration of
        that id most likely belongs to a process that has ended, and must not block its successor.
        """
        self.contacts.clear()
        self.recent.clear()
        self.metadata_offsets.clear()
        self.shutdown_offsets.clear()
        self.disconnected.clear()
        self.ended.clear()
        self.continuations.clear()
        self.predecessor = None
        for registration in registrations:
            session = (registration.id, registration.epoch)
            if registration.id == own_broker_id:
                self.predecessor = session
            if not registration.fenced:
                self.contacts[session] = now

    def replace_continuation(self, before: Continuation | None, after: Continuation | None) -> None:
        """Records that a change has progressed from `before` to `after`. `before` is None when
        the change begins, `after` when it ends."""
        self.continuations = [
            continuation for continuation in self.continuations if continuation is not before
        ]
        if after is not None:
            self.continuations.append(after)

    def contact(self, broker_id: int, epoch: int, now: float) -> None:
        """Extends a session to its full timeout."""
        self.contacts[broker_id, epoch] = now
        recent = self.recent.get((broker_id, epoch))
        if recent is None:
            recent = self.recent[broker_id, epoch] = deque(maxlen=_RECENT_CONTACTS)
        recent.append(now)
        self.disconnected.discard((broker_id, epoch))
        self.ended.discard((broker_id, epoch))
        if self.predecessor == (broker_id, epoch):
            self.predecessor = (
                None  # the session is that of this process, which registered it before this term
            )

    def connection_lost(self, broker_id: int, epoch: int, now: float, grace_s: float) -> None:
        """Shortens a session whose connection was closed.

        The broker has `grace_s` for its next contact, or longer if the intervals between its heartbeats
        are longer. This never extends a session.
        """
        session = (broker_id, epoch)
        last = self.contacts.get(session)
        if last is not None:
            self.disconnected.add(session)
            longest_s = max(
                (later - earlier for earlier, later in pairwise(self.recent.get(session, ()))), default=0.0
            )
            grace_s = max(grace_s, _INTERVALS_OF_GRACE * longest_s)
            self.contacts[session] = min(last, now - self.session_timeout_s + grace_s)

    def end(self, broker_id: int, epoch: int, now: float) -> None:
        """Lets a session expire now, because the process of the broker has ended."""
        session = (broker_id, epoch)
        last = self.contacts.get(session)
        if last is not None:
            self.disconnected.add(session)
            self.ended.add(session)
            self.contacts[session] = min(last, now - self.session_timeout_s - _EXPIRED_FOR_S)

    def extend_all(self, seconds: float, now: float) -> None:
        """Extends every session by the time in which this controller was stalled.

        Heartbeats that arrived in this time may not have been read yet. No contact moves into the
        future.
        """
        for session, last in self.contacts.items():
            self.contacts[session] = min(now, last + seconds)
        for recent in self.recent.values():
            for index, contact in enumerate(recent):
                recent[index] = min(now, contact + seconds)

    def has_session(self, broker_id: int, epoch: int, now: float) -> bool:
        """Whether the broker's session is open and has not expired."""
        last = self.contacts.get((broker_id, epoch))
        return last is not None and last + self.session_timeout_s >= now

    def next_expired(self, now: float) -> Session | None:
        """Removes and returns one expired session, or returns None if there is none."""
        for session, last in self.contacts.items():
            if last + self.session_timeout_s < now:
                del self.contacts[session]
                self.disconnected.discard(session)
                self.expired_count += 1
                return session
        return None

    def put_back_expired(self, session: Session, now: float) -> None:
        """Puts back a session that `next_expired` removed and whose broker could not be fenced, unless
        there was a contact meanwhile.

        The session becomes the last one, so that it does not keep other brokers from being fenced.
        """
        self.contacts.setdefault(session, now - self.session_timeout_s - _EXPIRED_FOR_S)
        self.expired_count -= 1

    def next_expiry(self) -> float:
        """The earliest time at which a session may expire, or infinity if there is no session."""
        return min(self.contacts.values(), default=NEVER) + self.session_timeout_s

    def forget(self, broker_id: int, keep_epoch: int | None = None) -> None:
        """Drops the soft state of a broker and its sessions, except the session of `keep_epoch`."""
        self.metadata_offsets.pop(broker_id, None)
        self.shutdown_offsets.pop(broker_id, None)
        for session in [s for s in self.contacts if s[0] == broker_id and s[1] != keep_epoch]:
            del self.contacts[session]
            self.disconnected.discard(session)
            self.ended.discard(session)
        for session in [s for s in self.recent if s[0] == broker_id and s[1] != keep_epoch]:
            del self.recent[session]

    def touch(self, broker_id: int, fenced: bool, metadata_offset: int) -> None:
        """Records the metadata offset of a heartbeat."""
        self.metadata_offsets[broker_id] = metadata_offset
        if fenced:
            self.shutdown_offsets.pop(broker_id, None)  # fencing ends a controlled shutdown

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """Records the offset that other brokers must apply before this broker may shut down. Only the
        first call has an effect: the broker does not depend on later records."""
        self.shutdown_offsets.setdefault(broker_id, offset)

    def lowest_active_offset(self, registrations: Iterable[BrokerRegistration]) -> int | None:
        """The lowest metadata offset of the brokers that are neither fenced nor in controlled shutdown,
        or None if there is no such broker."""
        return min(
            (
                self.metadata_offsets.get(r.id, -1)
                for r in registrations
                if not r.fenced and r.id not in self.shutdown_offsets
            ),
            default=None,
        )
