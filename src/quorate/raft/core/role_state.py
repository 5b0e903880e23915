"""What a replica keeps besides epoch and vote, by role; and what the core may ask of the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from quorate.raft.core.messages import RaftRequest
from quorate.raft.core.voters import VoterSet
from quorate.raft.types import OffsetEpoch

NEVER = float("inf")
NEVER_LOST = -NEVER


class LogView(Protocol):
    """What the core reads of log and snapshots."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int: ...
    def end_offset_for_epoch(self, epoch: int) -> OffsetEpoch: ...
    def latest_snapshot(self) -> OffsetEpoch | None: ...
    def earliest_snapshot(self) -> OffsetEpoch | None: ...
    def snapshot_size(self, snapshot: OffsetEpoch) -> int | None: ...


@dataclass(slots=True)
class Link:
    """What is under way to one address, and when to try it again."""

    in_flight: dict[type, RaftRequest] = field(default_factory=dict)
    ready_at: float = 0.0
    lost_at: float = NEVER_LOST  # when a connection to it was last lost


@dataclass(slots=True)
class Election:
    """Votes as seen by a prospective or a candidate: None is not yet answered."""

    voters: VoterSet
    votes: dict[int, bool | None]
    unreachable: set[int] = field(default_factory=set)
    backed_off: bool = False
    not_before: float = 0.0  # a prospective that gave way does not stand before

    def granted(self) -> bool:
        return sum(v is True for v in self.votes.values()) >= self.voters.majority

    def rejected(self) -> bool:
        return sum(v is not False for v in self.votes.values()) < self.voters.majority

    def cannot_win(self) -> bool:
        """Whether only voters that cannot be reached could still make a majority."""
        possible = sum(v is True or (v is None and i not in self.unreachable) for i, v in self.votes.items())
        return possible < self.voters.majority


@dataclass(slots=True)
class Following:
    """A follower's own state."""

    fetch_deadline: float
    update_voter_at: float
    heard: bool = False  # one good Fetch answer from this leader in this epoch
    update_put_off_at: float = NEVER  # since when our UpdateVoter is answered with REQUEST_TIMED_OUT
    updated_leader: bool = False  # this leader has our UpdateVoter (kraft.version 0)
    snapshot: OffsetEpoch | None = None  # being downloaded
    opened: bool = False  # the driver has said from where on
    position: int = 0  # bytes that have arrived
    written: int = 0  # of them verified and on disk
    size: int = -1  # of the whole, as this leader says
    prefix_digest: bytes | None = None  # this leader has to confirm what came from another
    quick_at: float = NEVER  # ask for pre-votes then: the leader's connection was reset
