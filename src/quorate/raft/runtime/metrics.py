"""The metrics of a replica: Kafka's raft-metrics, including those of KIP-853.

States are read on request. Averages, maxima and rates cover the last 30 to 60 seconds, like Kafka's two
samples of 30 seconds. Recording them costs two readings of the clock for each run of the core.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from quorate.dataclass import dataclass
from quorate.metrics import Reservoir
from quorate.protocol.uuids import uuid_text
from quorate.raft.core.leader import OBSERVER_SESSION_S
from quorate.raft.types import NO_DIRECTORY, Role

if TYPE_CHECKING:
    from quorate.raft.config import RaftConfig
    from quorate.raft.core.state import RaftState
    from quorate.raft.storage.metadata_log import MetadataLog

WINDOW_S = 30.0
NOT_KNOWN = float("nan")
MAX_WAITING = 10_000  # batches whose commit is timed; a leader without a majority would collect them

STATES = (
    "leader", "prospective", "prospective-voted", "candidate", "unattached", "unattached-voted",
    "follower", "observer",
    "resigned",
)  # fmt: skip


class Metric(NamedTuple):
    """A named value: a number (NaN: not known yet), the name of one of `states`, or an identifier."""

    name: str
    help: str
    value: float | str | Mapping[str, float]
    states: tuple[str, ...] = ()
    label: str = ""


@dataclass(slots=True)
class _Sample:
    """The values of one window: when it began, how many, their sum and the highest."""

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
        if not value <= sample.highest:  # true for NaN, too
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
        """The sum of the values divided by the time that they cover, which is at least one window."""
        self._turn(now)
        return (self._old.total + self._now.total) / max(now - self._old.begins, self._window_s)

    def share(self, now: float, started: float) -> float:
        """The sum of the values, which are seconds, divided by the time that has passed."""
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
    """Records what the driver does. Times are monotonic seconds, latencies milliseconds."""

    __slots__ = (
        "_election_began",
        "_waiting",
        "appended",
        "busy",
        "commit_ms",
        "commit_sample",
        "commits",
        "election_ms",
        "fetched",
        "started",
    )

    def __init__(self, now: float) -> None:
        self.started = now
        self.commit_ms = Windowed(now)
        self.commit_sample = Reservoir(now)
        self.commits = 0
        self.election_ms = Windowed(now)
        self.appended = Windowed(now)
        self.fetched = Windowed(now)
        self.busy = Windowed(now)
        # The uncommitted batches of a leader: (end offset, time of the append).
        self._waiting: deque[tuple[int, float]] = deque()
        self._election_began: float | None = None

    def leader_appended(self, end_offset: int, records: int, now: float) -> None:
        self.appended.record(records, now)
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append((end_offset, now))

    def committed(self, hwm: int, now: float) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= hwm:
            latency_ms = (now - waiting.popleft()[1]) * 1000
            self.commit_ms.record(latency_ms, now)
            self.commits += 1
            if self.commit_sample.take():
                self.commit_sample.record((latency_ms,), now)

    def role(self, role: Role, now: float) -> None:
        """Records a change of role. An election ends when there is a leader, even if it is the old one."""
        if role is not Role.LEADER:
            self._waiting.clear()
        if role in (Role.PROSPECTIVE, Role.CANDIDATE):
            if self._election_began is None:
                self._election_began = now
        elif role is Role.LEADER or (role is Role.FOLLOWER and self._election_began is not None):
            # A single voter elects itself within one step.
            began = now if self._election_began is None else self._election_began
            self.election_ms.record((now - began) * 1000, now)
            self._election_began = None

    def idle_ratio(self, now: float) -> float:
        return max(0.0, 1.0 - self.busy.share(now, self.started))


def state_of(r: RaftState) -> str:
    """The role as Kafka names it. Kafka has no name for a leader that has resigned."""
    if r.role is Role.FOLLOWER:
        return "follower" if r.is_voter else "observer"
    if r.voted is not None and r.role in (Role.UNATTACHED, Role.PROSPECTIVE):
        return f"{r.role.value}-voted"
    return str(r.role.value)


def raft_metrics(
    r: RaftState, log: MetadataLog, config: RaftConfig, meters: RaftMeters, now: float
) -> Iterator[Metric]:
    """kafka.server:type=raft-metrics. As in Kafka, some metrics are present on a leader only."""
    voters = r.voters
    voted = r.me if r.role in (Role.LEADER, Role.CANDIDATE) else r.voted
    yield Metric("current-state", "The current state of this replica.", state_of(r), STATES)
    yield Metric(
        "current-leader",
        "Id of the leader; -1 not known.",
        -1 if r.leader_id is None else r.leader_id,
    )
    yield Metric(
        "current-vote",
        "Id of the replica voted for in this epoch; -1 nobody.",
        -1 if voted is None else voted.id,
    )
    directory = NO_DIRECTORY if voted is None else voted.directory_id
    yield Metric("current-vote-directory-id", "Directory id of the replica voted for.", uuid_text(directory))
    yield Metric("current-epoch", "The current epoch.", r.epoch)
    yield Metric(
        "high-watermark",
        "The high watermark; -1 not known in this epoch.",
        -1 if r.hwm is None else r.hwm,
    )
    yield Metric("log-end-offset", "The log's end offset.", log.end_offset)
    yield Metric("log-end-epoch", "Epoch of the last record.", log.last_epoch)
    without = sum(config.listener_name not in v.endpoints for v in voters)
    yield Metric("number-unknown-voter-connections", "Voters without a known endpoint.", without)
    yield Metric("number-of-voters", "Voters of the metadata quorum.", len(voters))
    yield ignored_static_voters("ignored-static-voters", r, config)
    if config.is_controller:
        yield Metric("is-observer", "1 if this controller is not a voter.", not r.is_voter)
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
    yield from _leader_metrics(r, now)


def ignored_static_voters(name: str, r: RaftState, config: RaftConfig) -> Metric:
    """Whether `controller.quorum.voters` has no effect. Kafka reports it under three names (KIP-853)."""
    text = "1 if controller.quorum.voters is set and not used, since kraft.version is above 0."
    return Metric(name, text, bool(config.voters) and r.members.kraft_version > 0)


def _leader_metrics(r: RaftState, now: float) -> Iterator[Metric]:
    leading = r.leading
    if leading is None:
        return
    voters, at = r.voters, r.members.current_offset
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
        progress = r.progress_of(voter.key)
        last = progress.last_fetch if progress is not None else None
        silent += voter.id != r.me.id and (last is None or now - last > r.params.fetch_timeout_s)
    yield Metric(
        "replica-snapshot-end-offset",
        "End offset of the newest metadata snapshot of each replica that reports it.",
        _snapshot_ends(r),
        label="replica",
    )
    yield Metric("number-of-offline-voters", "Voters that have not fetched within the fetch timeout.", silent)
    pending = [c for c in (leading.voter_change, *leading.waiting_changes) if c is not None]
    yield Metric(
        "pending-add-voter", "1 if voters are being added.", any(c.adding is not None for c in pending)
    )
    yield Metric(
        "pending-remove-voter", "1 if voters are being removed.", any(c.removing is not None for c in pending)
    )
    uncommitted = at is not None and (r.hwm is None or at >= r.hwm)
    yield Metric("uncommitted-voter-change", "1 if the newest voter set is not committed.", uncommitted)


def _snapshot_ends(r: RaftState) -> dict[str, float]:
    """The end offset of the newest snapshot by replica id.

    Of several replicas with one id, that which fetched last.
    """
    assert r.leading is not None
    ends: dict[str, float] = {
        str(id_): progress.facts.snapshot_end
        for id_, progress in sorted(r.leading.latest_by_id.items())
        if progress.facts.snapshot_end >= 0
    }
    own = r.facts.snapshot_end
    return ends | ({str(r.me.id): own} if own >= 0 else {})
