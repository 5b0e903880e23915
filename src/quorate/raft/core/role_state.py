"""The parts of a replica's state that belong to one role, and its links to other replicas.

Epoch, vote and log are common to all roles: see `RaftState`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field

from quorate.dataclass import dataclass
from quorate.raft.core.messages import NO_FACTS, Fetch, ProbeVersions, RaftRequest, ReplicaFacts, Token
from quorate.raft.core.voters import Voter, VoterSet
from quorate.raft.types import OffsetEpoch, ReplicaKey

NEVER = float("inf")
NEVER_LOST = -NEVER
ITS_TURN = "its turn"


@dataclass(slots=True)
class Link:
    """The requests in flight to one address, and the back-off after a failure."""

    in_flight: dict[type, RaftRequest] = field(default_factory=dict)
    ready_at: float = 0.0
    lost_at: float = NEVER_LOST  # when a connection to it was last lost


@dataclass(slots=True)
class Election:
    """The votes that a prospective or a candidate has received; None is not answered yet."""

    voters: VoterSet
    votes: dict[int, bool | None]
    unreachable: set[int] = field(default_factory=set)
    backed_off: bool = False
    not_before: float = 0.0  # a prospective that let another go first does not become candidate before

    def granted(self) -> bool:
        return sum(v is True for v in self.votes.values()) >= self.voters.majority

    def rejected(self) -> bool:
        return sum(v is not False for v in self.votes.values()) < self.voters.majority

    def cannot_win(self) -> bool:
        """Whether a majority would need the votes of voters that cannot be reached."""
        possible = sum(v is True or (v is None and i not in self.unreachable) for i, v in self.votes.items())
        return possible < self.voters.majority


@dataclass(slots=True)
class Following:
    """The state of a follower, or of an observer that knows the leader (Kafka's `FollowerState`)."""

    fetch_deadline: float
    update_voter_at: float
    has_fetched: bool = False  # the leader has answered a Fetch successfully
    update_put_off_at: float = NEVER  # since when the leader answers UpdateVoter with REQUEST_TIMED_OUT
    updated_leader: bool = False  # the leader has answered UpdateVoter (kraft.version 0)
    removed_voter: ReplicaKey | None = None  # auto-join: the leader has removed it, but it is in the log here
    snapshot: OffsetEpoch | None = None  # being downloaded
    opened: bool = False  # the driver has reported the position at which the download begins
    position: int = 0  # bytes received
    written: int = 0  # bytes verified and on disk
    size: int = -1  # of the whole snapshot, as reported by the leader
    prefix_digest: bytes | None = None  # of bytes from another leader, which this one has to confirm
    requested_at: float = NEVER  # when the last Fetch or FetchSnapshot was sent to the leader
    quick_pre_vote_at: float = NEVER  # request pre-votes then: the leader's connection was reset


@dataclass(slots=True)
class FetchingProcesses:
    """The processes that fetch as one voter, by their start times in ms since 1970."""

    latest: int = 0  # the one whose Fetch came last
    last_fetch: dict[int, float] = field(default_factory=dict)
    # How often the first of two has fetched again after the second.
    returns: dict[tuple[int, int], int] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)


@dataclass(slots=True)
class SentPart:
    """The last part of the log or of a snapshot that a leader sent to a replica."""

    begins: int  # its offset or position
    max_bytes: int


@dataclass(slots=True)
class Progress:
    """A leader's record of another replica's Fetches (Kafka's `LeaderState.ReplicaState`)."""

    key: ReplicaKey
    end: int = -1
    last_fetch: float | None = None
    last_caught_up: float | None = None
    leader_end_at_fetch: int = -1
    facts: ReplicaFacts = NO_FACTS


@dataclass(slots=True)
class ParkedFetch:
    """A Fetch that waits for records, a greater high watermark or a leader."""

    request: Fetch
    token: Token
    deadline: float


@dataclass(slots=True)
class VoterChange:
    """An AddVoter or RemoveVoter request until it is answered."""

    token: Token
    deadline: float
    adding: Voter | None = None
    removing: ReplicaKey | None = None
    ack_when_committed: bool = True
    waits_for: str = ITS_TURN
    probe: ProbeVersions | None = None  # in flight
    failure: str = ""  # of the last probe
    kraft_versions: tuple[int, int] | None = None  # supported by the new voter
    supports_vote: bool = True  # whether the new voter supports Vote
    # The replicas that have fetched since only the majority is awaited: they are alive.
    fetched: set[ReplicaKey] | None = None
    majority_deadline: float = NEVER  # by which a majority of the voters after this change must fetch
    proposed: bool = False  # its record is being appended to the log
    offset: int | None = None  # of its record


@dataclass(slots=True)
class Leading:
    """The state of a leader, discarded when it loses leadership (Kafka's `LeaderState`)."""

    epoch_start: int
    check_quorum_deadline: float
    begin_epoch_at: float
    progress: dict[ReplicaKey, Progress] = field(default_factory=dict)
    latest_by_id: dict[int, Progress] = field(default_factory=dict)  # for voters without a directory id
    parts: dict[ReplicaKey, SentPart] = field(default_factory=dict)  # of the replicas that have not caught up
    processes: dict[ReplicaKey, FetchingProcesses] = field(default_factory=dict)  # of the voters
    fetched_voters: set[int] = field(default_factory=set)  # since the check-quorum timer was reset
    parked: list[ParkedFetch] = field(default_factory=list)
    voter_change: VoterChange | None = None  # the one in progress
    waiting_changes: deque[VoterChange] = field(default_factory=deque)
    # Control records are on their way into the log. A new leader begins with some.
    appending_control_records: bool = True
    # Entries that voters sent in UpdateVoter and that the voter set does not hold yet.
    reported_voters: dict[int, Voter] = field(default_factory=dict)
    upgrade_tokens: list[Token] = field(default_factory=list)
