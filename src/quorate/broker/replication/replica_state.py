"""What a leader knows of its followers, and the changes of an ISR that it has asked for. Pure values.

Facts: KIP-497 (AlterPartition), KIP-841 (broker epochs in the ISR).
"""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class FollowerState:
    """A follower as its Fetch requests show it. Times are monotonic seconds; 0.0 is "never"."""

    log_start_offset: int = UNKNOWN_OFFSET
    log_end_offset: int = UNKNOWN_OFFSET
    last_fetch_leader_end_offset: int = 0
    last_fetch: float = 0.0
    last_caught_up: float = 0.0
    broker_epoch: int | None = None

    def fetched(
        self, offset: int, log_start_offset: int, now: float, leader_end_offset: int, broker_epoch: int
    ) -> None:
        """Notes a Fetch. A follower counts as caught up now if it reads at the leader's end, and as
        caught up at its previous Fetch if it now reads where the leader ended then: so a busy
        partition's follower can stay in the ISR without ever reading at the very end."""
        if offset >= leader_end_offset:
            self.last_caught_up = max(self.last_caught_up, now)
        elif offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up = max(self.last_caught_up, self.last_fetch)
        self.log_start_offset = log_start_offset
        self.log_end_offset = offset
        self.last_fetch_leader_end_offset = max(leader_end_offset, self.last_fetch_leader_end_offset)
        self.last_fetch = now
        self.broker_epoch = broker_epoch

    def reset(self, now: float, leader_end_offset: int, *, new_leader: bool, in_sync: bool) -> None:
        """Starts a leader epoch: an ISR member gets a whole lag time of patience, anybody else none."""
        self.last_caught_up = now if in_sync else 0.0
        if new_leader:
            self.log_start_offset = self.log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
            self.last_fetch = 0.0
            self.broker_epoch = None
        else:
            self.last_fetch_leader_end_offset = leader_end_offset
            self.last_fetch = now if in_sync else 0.0

    def is_caught_up(self, leader_end_offset: int, now: float, max_lag_s: float) -> bool:
        return self.log_end_offset == leader_end_offset or now - self.last_caught_up <= max_lag_s


@dataclass(frozen=True, slots=True)
class PendingIsr:
    """An ISR that the controller was asked for. Until it answers, an expansion already counts (stricter), a
    shrinking does not count yet."""

    isr: tuple[int, ...]
    expands: bool
    leader_epoch: int
    partition_epoch: int
