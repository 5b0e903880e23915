"""The requests and replies of Raft.

They correspond to Kafka's RPCs; `quorate.raft.runtime.wire` translates them. A field named `epoch` is
always the Raft epoch.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from quorate.dataclass import dataclass
from quorate.protocol.errors import ErrorCode
from quorate.raft.core.voters import Voter, VoterSet
from quorate.raft.types import (
    Address,
    Endpoints,
    OffsetEpoch,
    ReplicaKey,
)

if TYPE_CHECKING:
    pass

NONE = ErrorCode.NONE

# --- requests -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Vote:
    """Asks for a vote, or for a pre-vote (KIP-996)."""

    epoch: int  # of the candidate, which has incremented it unless this is a pre-vote
    candidate: ReplicaKey
    last: OffsetEpoch
    voter: ReplicaKey | None  # the replica to which it is addressed; None in version 0
    pre_vote: bool = False
    cluster_id: str | None = None


@dataclass(slots=True, eq=False)
class BeginEpoch:
    """Announces a new leader to a voter that does not fetch from it (BeginQuorumEpoch)."""

    leader_id: int
    epoch: int
    endpoints: Endpoints
    voter: ReplicaKey | None
    cluster_id: str | None = None


@dataclass(slots=True, eq=False)
class EndEpoch:
    """Announces a resignation (EndQuorumEpoch). `preferred` lists the successors, best first."""

    leader_id: int
    epoch: int
    preferred: Sequence[ReplicaKey]
    endpoints: Endpoints
    cluster_id: str | None = None


class ReplicaFacts(NamedTuple):
    """What a replica reports about itself in each Fetch.

    DescribeQuorum shows it. A replica of Apache Kafka reports none of it.
    """

    snapshot_end: int = -1  # the end offset of its newest snapshot; -1 none or not known
    start_time_ms: int = 0  # when its process started, in ms since 1970; 0 not known


NO_FACTS = ReplicaFacts()


@dataclass(slots=True, eq=False)
class Fetch:
    """Asks for the records from `offset` on. `last_epoch` is the epoch of the record before."""

    replica: ReplicaKey  # id -1: a reader that is not a replica
    epoch: int
    offset: int
    last_epoch: int
    max_wait_ms: int
    high_watermark: int = (1 << 63) - 1  # known to the sender: -1 none, the maximum not stated
    max_bytes: int = 8 << 20
    cluster_id: str | None = None
    facts: ReplicaFacts = NO_FACTS


@dataclass(slots=True, eq=False)
class FetchSnapshot:
    """Asks for at most `max_bytes` of a snapshot from `position` on."""

    replica: ReplicaKey
    epoch: int
    snapshot: OffsetEpoch
    position: int
    max_bytes: int
    cluster_id: str | None = None
    # Of the bytes below `position`, which the sender has from another leader. The receiver compares it.
    prefix_digest: bytes | None = None


@dataclass(slots=True, eq=False)
class AddVoter:
    """Asks the leader to add a voter (KIP-853, AddRaftVoter)."""

    voter: Voter
    cluster_id: str | None = None
    timeout_ms: int = 30000
    ack_when_committed: bool = True


@dataclass(slots=True, eq=False)
class RemoveVoter:
    """Asks the leader to remove a voter (KIP-853, RemoveRaftVoter)."""

    key: ReplicaKey
    cluster_id: str | None = None


@dataclass(slots=True, eq=False)
class UpdateVoter:
    """Tells the leader the listeners and versions of a voter (KIP-853, UpdateRaftVoter)."""

    voter: Voter
    epoch: int
    cluster_id: str | None = None


@dataclass(slots=True, eq=False)
class DescribeQuorum:
    """Asks the leader for the voters, the observers and their progress."""


@dataclass(slots=True, eq=False)
class ProbeVersions:
    """Asks a new voter for its supported range of kraft.version (ApiVersions)."""


# --- replies --------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Reply:
    """The fields of every reply. A `top_level` error is about the request, any other about the partition."""

    error: ErrorCode = NONE
    top_level: bool = False
    leader_id: int | None = None
    epoch: int = 0
    leader_endpoints: Endpoints = field(default_factory=dict)  # set by the driver
    message: str | None = None


@dataclass(slots=True, eq=False)
class VoteReply(Reply):
    """The reply to Vote."""

    granted: bool = False


@dataclass(slots=True, eq=False)
class EpochReply(Reply):
    """The reply to BeginEpoch and EndEpoch."""


@dataclass(slots=True, eq=False)
class FetchReply(Reply):
    """The reply to Fetch: records, or the point to which the follower truncates, or a snapshot."""

    high_watermark: int = -1
    log_start: int = -1
    diverging: OffsetEpoch | None = None
    snapshot: OffsetEpoch | None = None
    read_from: int | None = None  # the driver reads records from here, up to max_bytes
    max_bytes: int = 0
    records: bytes | memoryview = b""


@dataclass(slots=True, eq=False)
class SnapshotReply(Reply):
    """The reply to FetchSnapshot: `size` of the whole snapshot, and its bytes from `position` on."""

    snapshot: OffsetEpoch = field(default=OffsetEpoch(-1, -1))
    size: int = 0
    position: int = 0
    read: int = 0  # the driver reads this number of bytes from position
    compare: bytes | None = None  # the driver compares it with the digest of its file up to position
    same_prefix: bool | None = None  # None: not compared
    data: bytes | memoryview = b""


@dataclass(slots=True, eq=False)
class VoterReply(Reply):
    """The reply to AddVoter, RemoveVoter and UpdateVoter."""


@dataclass(slots=True, eq=False)
class ProbeReply(Reply):
    """The reply to ProbeVersions: the lowest and highest kraft.version of the new voter."""

    kraft_versions: tuple[int, int] = (0, 0)
    supports_vote: bool = True  # supports Vote: the listener is a controller's


@dataclass(slots=True, eq=False)
class ReplicaInfo:
    """The progress of one replica, as the leader knows it."""

    key: ReplicaKey
    log_end: int
    last_fetch: float | None  # monotonic seconds; None: never
    last_caught_up: float | None
    facts: ReplicaFacts = NO_FACTS


@dataclass(slots=True, eq=False)
class QuorumReply(Reply):
    """The reply to DescribeQuorum."""

    high_watermark: int = -1
    voters: list[ReplicaInfo] = field(default_factory=list)
    observers: list[ReplicaInfo] = field(default_factory=list)
    voter_set: VoterSet | None = None


class Failure(Enum):
    """Why a request of this replica has no reply."""

    TIMEOUT = "timeout"
    DISCONNECTED = "disconnected"
    UNSUPPORTED_VERSION = "unsupported version"
    AUTHENTICATION = "authentication"
    BAD_ANSWER = "an answer that cannot be read"


RaftRequest = (
    Vote
    | BeginEpoch
    | EndEpoch
    | Fetch
    | FetchSnapshot
    | AddVoter
    | RemoveVoter
    | UpdateVoter
    | DescribeQuorum
    | ProbeVersions
)

Token = Hashable  # identifies a request until it is answered


@dataclass(frozen=True, slots=True)
class Peer:
    """The receiver of a request: a replica, or a bootstrap server of unknown id (a negative id)."""

    id: int
    address: Address
