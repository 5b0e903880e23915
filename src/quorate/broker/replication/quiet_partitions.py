"""The partitions of a follower's fetch session of which nothing is new.

A follower sends a Fetch to each leader twice a second, even if nothing was appended (KIP-227 keeps only the
request and the response small). Reading all partitions of the session for each of them costs a broker with
thousands of idle partitions a large part of a core. Therefore a partition becomes quiet when its follower
has everything. It is not read again until the partition itself says that something has changed, or until a
request of the session contains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from quorate.broker.replication.replica_state import FollowerState

if TYPE_CHECKING:
    from quorate.broker.replication.partition import Partition
    from quorate.broker.replication.purgatory import HasDelayedOperations

Key = tuple["bytes | str", int]
P = TypeVar("P")


class WaitingFetch(Protocol):
    """A Fetch that waits for news of its session."""

    def join(self, partition: HasDelayedOperations) -> None:
        """Waits for this partition too, and checks at once whether it has news."""
        ...


class QuietPartitions(Generic[P]):
    """Those of one session. `active` has the other partitions of the session, in the order in which they are
    read."""

    __slots__ = ("_active", "_all", "_states", "fresh", "last_fetch", "reader", "waiting")

    def __init__(self, partitions: dict[Key, P], active: dict[Key, P]) -> None:
        self._all = partitions
        self._active = active
        self._states: dict[Key, FollowerState] = {}
        self.reader = (-1, -1)
        """Broker id and broker epoch of the follower."""
        self.last_fetch = 0.0
        """The time of the last Fetch. At that time the follower had everything of each quiet partition."""
        self.waiting: WaitingFetch | None = None
        self.fresh: list[tuple[Key, P]] = []
        """The partitions that have changed since the last Fetch arrived. It does not read them yet."""

    def __len__(self) -> int:
        return len(self._states)

    def fetched(self, reader: tuple[int, int], now: float) -> None:
        """Records a Fetch of the session. One of another broker, or of another incarnation of it, reads all
        partitions."""
        if reader != self.reader:
            self.end_all()
            self.reader = reader
        self.last_fetch = now
        self.fresh = []

    def add(self, key: Key, state: FollowerState) -> None:
        """Makes a partition quiet."""
        state.quiet_in = self
        self._states[key] = state
        self._active.pop(key, None)

    def end(self, key: Key) -> None:
        """Makes a partition active, because a request contains or forgets it."""
        state = self._states.pop(key, None)
        if state is not None:
            self._ended(key, state)

    def end_all(self) -> None:
        """Makes all partitions active."""
        states, self._states = self._states, {}
        for key, state in states.items():
            self._ended(key, state)

    def _ended(self, key: Key, state: FollowerState) -> None:
        state.quiet_in = None
        state.had_everything(self.last_fetch)
        part = self._all.get(key)
        if part is not None:
            self._active[key] = part

    def changed(self, key: Key, partition: HasDelayedOperations) -> None:
        """Makes a partition active, because it has changed. Lets the waiting Fetch look at it."""
        self.end(key)
        part = self._all.get(key)
        if part is not None:
            self.fresh.append((key, part))
            if self.waiting is not None:
                self.waiting.join(partition)

    def take_fresh(self) -> list[tuple[Key, P]]:
        """Returns and empties `fresh`, without the partitions that a request has removed."""
        fresh, self.fresh = self.fresh, []
        return [(key, part) for key, part in fresh if self._all.get(key) is part]


def quiet_follower(
    partition: Partition, replica_id: int, leader_epoch: int, fetch_offset: int, sent_high_watermark: int
) -> FollowerState | None:
    """Returns the state of a follower that has everything: all records, the high watermark and the log start
    offset. Returns None if the leader may have to send something, or waits for the follower."""
    state = partition.followers.get(replica_id)
    if (
        state is None
        or not partition.is_leader
        or leader_epoch not in (-1, partition.leader_epoch)
        or replica_id not in partition.isr
        or partition.pending_isr is not None
        or state.quiet_in is not None
        or not partition.has_log
    ):
        return None
    log = partition.log
    if (
        state.log_end_offset != fetch_offset
        or log.log_end_offset != fetch_offset
        or log.high_watermark != sent_high_watermark
        or log.log_start_offset > state.log_start_offset
        or (partition.waiting is not None and partition.waiting.has_deletions)
    ):
        return None
    return state
