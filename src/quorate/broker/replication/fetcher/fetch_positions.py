"""The positions of a fetcher's partitions, and those of them that the next Fetch must contain.

In a session (KIP-227) the cost of a request depends on the partitions that have changed, not on all
of them: an idle broker fetches twice a second from each leader that it follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from quorate.broker.replication.fetcher.fetch_session_handler import (
    FetchPosition,
    FetchSessionHandler,
    TopicIdPartition,
)
from quorate.dataclass import dataclass

if TYPE_CHECKING:
    from quorate.broker.replication.partition import Partition
    from quorate.log.partition.partition_log import PartitionLog

_COMPARE_ALL_S = 30.0
"""The interval at which the positions of all partitions are compared with those that were sent. Retention
raises log start offsets without notice."""


def certain_end(log: PartitionLog, *, counts: bool) -> int:
    """The offset up to which the log of a follower may be that of its leader.

    What follows must be copied again, because the leader would not find a divergence:

    - Records of a log without leader epochs, which a former leader may never have committed: only those below
      the high watermark are certain.
    - Records after a gap, which is left by a power failure that lost the end of a segment but not the next
      one, or by an interrupted full truncation. (Kafka's followers keep the gap.) Not if this replica
      `counts` as one with all committed records, because it has led with the gap since or has copied it from
      such a leader: it could be elected before it has copied again what it has acknowledged.
    """
    end = log.log_end_offset if log.latest_epoch is not None else min(log.high_watermark, log.log_end_offset)
    return end if log.gap_start is None or counts else min(end, log.gap_start)


@dataclass(slots=True)
class FetchState:
    """The progress of one partition that is being copied (`PartitionFetchState` in Kafka)."""

    partition: Partition
    leader_epoch: int
    in_sync: bool
    """Whether the log had reached the leader's high watermark after the last response, or the replica is in
    the ISR before the first one."""
    delayed_until: float = 0.0
    failures: int = 0
    """Unexpected errors since the last response that could be used."""
    lag: int = 0
    """The offsets from the end of this log to the high watermark of the leader, as of the last response."""

    @property
    def fetch_offset(self) -> int:
        """The next offset to copy.

        Always the end of the log: whatever ended the last attempt, the next one has neither a gap
        nor an overlap.
        """
        return self.partition.log.log_end_offset

    @property
    def position(self) -> FetchPosition:
        """The position as a Fetch has it."""
        log = self.partition.log
        epoch = log.latest_epoch
        return log.log_end_offset, log.log_start_offset, self.leader_epoch, -1 if epoch is None else epoch


class FetchPositions:
    """Finds the partitions for the next Fetch among `states`, which the fetcher changes."""

    __slots__ = ("_changed", "_compare_all_at", "_delayed", "_states", "sent")

    def __init__(self, states: dict[TopicIdPartition, FetchState]) -> None:
        self._states = states
        self._changed: dict[TopicIdPartition, None] = {}
        self._delayed: dict[TopicIdPartition, None] = {}
        self._compare_all_at = 0.0
        self.sent: dict[TopicIdPartition, FetchState] = {}
        """The states of all partitions of the session at the last request."""

    def changed(self, key: TopicIdPartition) -> None:
        """Notes that the state was added, changed or removed."""
        self._changed[key] = None

    def delayed(self, key: TopicIdPartition) -> None:
        """Notes that the partition must not be fetched before its `delayed_until`."""
        self._delayed[key] = None

    def next(
        self, session: FetchSessionHandler, now: float, is_held: Callable[[FetchState], bool] | None = None
    ) -> tuple[dict[TopicIdPartition, FetchPosition], list[TopicIdPartition]]:
        """Returns the partitions that the next request contains, and those that it forgets. Partitions for
        which `is_held` is true are not fetched. With `is_held`, and in the next request after it, all
        partitions are compared. If no partition may be fetched, `sent` is empty and the session stays as it
        is."""
        states = self._states
        if session.is_full or now >= self._compare_all_at or is_held is not None:
            self._compare_all_at = 0.0 if is_held is not None else now + _COMPARE_ALL_S
            self._changed = {}
            self._delayed = {key: None for key, state in states.items() if state.delayed_until > now}
            self.sent = {
                key: state
                for key, state in states.items()
                if state.delayed_until <= now and (is_held is None or not is_held(state))
            }
            if not self.sent:
                self._compare_all_at = 0.0
                return {}, []
            return session.next({key: state.position for key, state in self.sent.items()})
        changed, self._changed = self._changed, {}
        if self._delayed:
            changed |= self._delayed
        changes: dict[TopicIdPartition, FetchPosition | None] = {}
        for key in changed:
            state = states.get(key)
            if state is not None and state.delayed_until <= now:
                self.sent[key] = state
                changes[key] = state.position
            else:
                self.sent.pop(key, None)
                changes[key] = None
            if state is None or state.delayed_until <= now:
                self._delayed.pop(key, None)
        if not self.sent:
            self._compare_all_at = 0.0  # the changes are found again by comparing all partitions
            return {}, []
        return session.next_changes(changes)
