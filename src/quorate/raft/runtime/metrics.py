"""What can be measured of the quorum from this replica: Kafka's raft-metrics, and those that KIP-853 adds.

States are read when somebody asks. Averages, maxima and rates are over the last thirty to sixty
seconds, as Kafka's two samples of thirty seconds are. Nothing here is needed to run: it costs two clock
readings for each run of the core.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from quorate.raft.types import NO_DIRECTORY, Role

if TYPE_CHECKING:
    from quorate.raft.runtime.view import RaftView

WINDOW_S = 30.0
NOT_KNOWN = float("nan")
MAX_WAITING = (
    10_000  # batches whose commit is timed; beyond that a leader without a majority would only gather them
)

STATES = (
    "leader", "prospective", "prospective-voted", "candidate", "unattached", "unattached-voted", "follower", "observer",
    "resigned",
)  # fmt: skip


class Metric(NamedTuple):
    """`value` is a number (NaN: not known yet), or the name of one of `states`, or a text that
    identifies something."""

    name: str
    help: str
    value: float | str
    states: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sample:
    begins: float
    count: int = 0
    total: float = 0.0
    highest: float = NOT_KNOWN


class Windowed:
    """Values recorded over the last one to two windows."""

    __slots__ = ("_now", "_old", "_window_s")

    def __init__(self, now: float, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._now = _Sample(now)
        self._old = _Sample(now - window_s)

    def record(self, value: float, now: float) -> None:
        self._turn(now)
        sample = self._now
        sample.count += 1
        sample.total += value
        if not value <= sample.highest:  # also where nothing is known yet
            sample.highest = value

    def average(self, now: float) -> float:
        self._turn(now)
        count = self._old.count + self._now.count
        return (self._old.total + self._now.total) / count if count else NOT_KNOWN

    def maximum(self, now: float) -> float:
        self._turn(now)
        known = [s.highest for s in (self._old, self._now) if s.count]
        return max(known, default=NOT_KNOWN)

    def per_second(self, now: float) -> float:
        """The sum of the values over the time in which they came; a meter that is new counts as one
        window old."""
        self._turn(now)
        return (self._old.total + self._now.total) / max(now - self._old.begins, self._window_s)

    def share(self, now: float, started: float) -> float:
        """The sum of the values, being seconds, over the seconds that have passed."""
        self._turn(now)
        passed = now - max(self._old.begins, started)
        return (self._old.total + self._now.total) / passed if passed > 0 else NOT_KNOWN

    def _turn(self, now: float) -> None:
        passed = int((now - self._now.begins) / self._window_s)
        if passed <= 0:
            return
        begins = self._now.begins + passed * self._window_s
        self._old = self._now if passed == 1 else _Sample(begins - self._window_s)
        self._now = _Sample(begins)


class RaftMeters:
    """What the driver reports as it goes. Times are monotonic seconds, latencies milliseconds."""

    __slots__ = (
        "_election_began",
        "_waiting",
        "appended",
        "busy",
        "commit_ms",
        "election_ms",
        "fetched",
        "started",
    )

    def __init__(self, now: float) -> None:
        self.started = now
        self.commit_ms = Windowed(now)
        self.election_ms = Windowed(now)
        self.appended = Windowed(now)
        self.fetched = Windowed(now)
        self.busy = Windowed(now)
        self._waiting: deque[tuple[int, float]] = (
            deque()
        )  # (end offset, when it was appended) of a leader's batches
        self._election_began: float | None = None

    def leader_appended(self, end_offset: int, records: int, now: float) -> None:
        self.appended.record(records, now)
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append((end_offset, now))

    def committed(self, hwm: int, now: float) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= hwm:
            self.commit_ms.record((now - waiting.popleft()[1]) * 1000, now)

    def role(self, role: Role, now: float) -> None:
        """An election is over when a leader is followed or this replica leads, be it the old one again."""
        if role is not Role.LEADER:
            self._waiting.clear()
        if role in (Role.PROSPECTIVE, Role.CANDIDATE):
            if self._election_began is None:
                self._election_began = now
        elif role is Role.LEADER or (role is Role.FOLLOWER and self._election_began is not None):
            began = (
                now if self._election_began is None else self._election_began
            )  # a sole voter elects itself in one step
            self.election_ms.record((now - began) * 1000, now)
            self._election_began = None

    def idle_ratio(self, now: float) -> float:
        return max(0.0, 1.0 - self.busy.share(now, self.started))


def state_of(view: RaftView) -> str:
    """The role in Kafka's words; a leader that has resigned is an own state here."""
    core = view.core
    if core.role is Role.FOLLOWER:
        return "follower" if core.is_voter else "observer"
    if core.voted is not None and core.role in (Role.UNATTACHED, Role.PROSPECTIVE):
        return f"{core.role.value}-voted"
    return str(core.role.value)


def raft_metrics(view: RaftView, meters: RaftMeters, now: float) -> Iterator[Metric]:
    """kafka.server:type=raft-metrics. Those that only a leader can tell come only from a leader, as
    with Kafka."""
    from quorate.protocol.uuids import uuid_text

    core, config = view.core, view.config
    voters = core.voters
    voted = core.me if core.role in (Role.LEADER, Role.CANDIDATE) else core.voted
    yield Metric("current-state", "The current state of this replica.", state_of(view), STATES)
    yield Metric(
        "current-leader", "Id of the leader; -1 not known.", -1 if core.leader_id is None else core.leader_id
    )
    yield Metric(
        "current-vote",
        "Id of the replica voted for in this epoch; -1 nobody.",
        -1 if voted is None else voted.id,
    )
    directory = NO_DIRECTORY if voted is None else voted.directory_id
    yield Metric("current-vote-directory-id", "Directory id of the replica voted for.", uuid_text(directory))
    yield Metric("current-epoch", "The current epoch.", core.epoch)
    yield Metric(
        "high-watermark",
        "The high watermark; -1 not known in this epoch.",
        -1 if core.hwm is None else core.hwm,
    )
    yield Metric("log-end-offset", "The log's end offset.", view.log.end_offset)
    yield Metric("log-end-epoch", "Epoch of the last record.", view.log.last_epoch)
    without = sum(config.listener_name not in v.endpoints for v in voters)
    yield Metric("number-unknown-voter-connections", "Voters without a known endpoint.", without)
    yield Metric("number-of-voters", "Voters of the metadata quorum.", len(voters))
    yield ignored_static_voters("ignored-static-voters", view)
    if config.is_controller:
        yield Metric("is-observer", "1 if this controller is not a voter.", not core.is_voter)
    yield Metric(
        "commit-latency-avg",
        "Average ms from append to commit on this leader.",
        meters.commit_ms.average(now),
    )
    yield Metric(
        "commit-latency-max",
        "Longest ms from append to commit on this leader.",
        meters.commit_ms.maximum(now),
    )
    yield Metric("election-latency-avg", "Average ms that elections took.", meters.election_ms.average(now))
    yield Metric("election-latency-max", "Longest ms that an election took.", meters.election_ms.maximum(now))
    yield Metric(
        "append-records-rate", "Records appended a second as the leader.", meters.appended.per_second(now)
    )
    yield Metric(
        "fetch-records-rate", "Records fetched a second from the leader.", meters.fetched.per_second(now)
    )
    yield Metric(
        "poll-idle-ratio-avg", "Share of time in which Raft had nothing to do.", meters.idle_ratio(now)
    )
    yield from _leader_metrics(view, now)


def ignored_static_voters(name: str, view: RaftView) -> Metric:
    """Kafka has it three times: KIP-853's among the raft-metrics, and one more for brokers and one for
    controllers."""
    text = "1 if controller.quorum.voters is set and not used, since kraft.version is above 0."
    return Metric(name, text, view.ignores_static_voters)


def _leader_metrics(view: RaftView, now: float) -> Iterator[Metric]:
    from quorate.raft.core.leader import OBSERVER_SESSION_S, progress_of

    core = view.core
    leading = core.leading
    if leading is None:
        return
    voters, at = core.voters, core.members.current_offset
    observers = [
        p.key
        for p in leading.progress.values()
        if not voters.is_voter(p.key) and p.last_fetch is not None and now - p.last_fetch < OBSERVER_SESSION_S
    ]
    known = sum(key.directory_id != NO_DIRECTORY for key in observers)
    yield Metric("number-of-observers", "Replicas with a directory id that fetch and do not vote.", known)
    twice = len({key.id for key in observers if key.id in voters.by_id})
    yield Metric(
        "duplicate-voter-ids", "Voters whose id another replica, on another directory, uses too.", twice
    )
    silent = 0
    for voter in voters:
        progress = progress_of(core, voter.key)
        last = progress.last_fetch if progress is not None else None
        silent += voter.id != core.me.id and (last is None or now - last > core.params.fetch_timeout_s)
    yield Metric("number-of-offline-voters", "Voters that have not fetched within the fetch timeout.", silent)
    pending = [c for c in (leading.change, *leading.waiting) if c is not None]
    yield Metric(
        "pending-add-voter", "1 if voters are being added.", any(c.adding is not None for c in pending)
    )
    yield Metric(
        "pending-remove-voter", "1 if voters are being removed.", any(c.removing is not None for c in pending)
    )
    uncommitted = at is not None and (core.hwm is None or at >= core.hwm)
    yield Metric("uncommitted-voter-change", "1 if the newest voter set is not committed.", uncommitted)
