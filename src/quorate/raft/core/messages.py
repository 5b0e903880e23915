"""What Raft replicas say to one another, in the core's own words; `wire` translates to and from Kafka's
messages.

Also the events that drive the core and the effects that it answers with. A field `epoch` is always the
Raft epoch.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode
from quorate.raft.storage.membership_record import MembershipRecord
from quorate.raft.storage.quorum_state import QuorumState
from quorate.raft.types import Address, Endpoints, LeaderAndEpoch, OffsetEpoch, ReplicaKey, Role

if TYPE_CHECKING:
    from quorate.protocol.schema import Data
    from quorate.raft.core.voters import Voter, VoterSet

NONE = ErrorCode.NONE

# --- requests -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Vote:
    epoch: int  # of the nominee; with pre_vote its current one, not one more
    candidate: ReplicaKey
    last: OffsetEpoch
    voter: ReplicaKey | None  # whom the nominee believes to ask; None in version 0
    pre_vote: bool = False
    cluster_id: str | None = None


@dataclass(slots=True, eq=False)
class BeginEpoch:
    leader_id: int
    epoch: int
    endpoints: Endpoints
    voter: ReplicaKey | None
    cluster_id: str | None = None


@dataclass(slots=True, eq=False)
class EndEpoch:
    leader_id: int
    epoch: int
    preferred: Sequence[ReplicaKey]
    endpoints: Endpoints
    cluster_id: str | None = None


@dataclass(slots=True, eq=False)
class Fetch:
    replica: ReplicaKey  # id -1: a reader that is no replica
    epoch: int
    offset: int
    last_epoch: int
    max_wait_ms: int
    high_watermark: int = (1 << 63) - 1  # -1: unknown to the sender; the maximum: the sender does not say
    max_bytes: int = 8 << 20
    cluster_id: str | None = None


@dataclass(slots=True, eq=False)
class FetchSnapshot:
    replica: ReplicaKey
    epoch: int
    snapshot: OffsetEpoch
    position: int
    max_bytes: int
    cluster_id: str | None = None
    prefix_digest: bytes | None = (
        None  # of what the sender has from elsewhere: is it the beginning of your file too?
    )


@dataclass(slots=True, eq=False)
class AddVoter:
    voter: Voter
    cluster_id: str | None = None
    timeout_ms: int = 30000
    ack_when_committed: bool = True


@dataclass(slots=True, eq=False)
class RemoveVoter:
    key: ReplicaKey
    cluster_id: str | None = None


@dataclass(slots=True, eq=False)
class UpdateVoter:
    voter: Voter
    epoch: int
    cluster_id: str | None = None


@dataclass(slots=True, eq=False)
class DescribeQuorum:
    pass


@dataclass(slots=True, eq=False)
class ProbeVersions:
    """Asks a replica that is to be added for its supported range of kraft.version (ApiVersions)."""


# --- replies --------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Reply:
    """What every answer carries: `top_level` errors concern the request, the others its one partition."""

    error: ErrorCode = NONE
    top_level: bool = False
    leader_id: int | None = None
    epoch: int = 0
    leader_endpoints: Endpoints = field(
        default_factory=dict
    )  # as the receiver may use them; filled in by the driver
    message: str | None = None


@dataclass(slots=True, eq=False)
class VoteReply(Reply):
    granted: bool = False


@dataclass(slots=True, eq=False)
class EpochReply(Reply):
    """To BeginEpoch and EndEpoch."""


@dataclass(slots=True, eq=False)
class FetchReply(Reply):
    high_watermark: int = -1
    log_start: int = -1
    diverging: OffsetEpoch | None = None
    snapshot: OffsetEpoch | None = None
    read_from: int | None = None  # the driver reads records from here, up to max_bytes
    max_bytes: int = 0
    records: bytes | memoryview = b""


@dataclass(slots=True, eq=False)
class SnapshotReply(Reply):
    snapshot: OffsetEpoch = field(default=OffsetEpoch(-1, -1))
    size: int = 0
    position: int = 0
    read: int = 0  # the driver reads so many bytes from position
    compare: bytes | None = None  # the driver compares this digest with that of its own file up to position
    same_prefix: bool | None = None  # None: was not compared
    data: bytes | memoryview = b""


@dataclass(slots=True, eq=False)
class VoterReply(Reply):
    """To AddVoter, RemoveVoter and UpdateVoter."""


@dataclass(slots=True, eq=False)
class ProbeReply(Reply):
    kraft_versions: tuple[int, int] = (0, 0)
    votes: bool = True  # Vote is among its APIs: a controller's listener


@dataclass(slots=True, eq=False)
class ReplicaInfo:
    key: ReplicaKey
    log_end: int
    last_fetch: float | None  # monotonic seconds; None: never
    last_caught_up: float | None


@dataclass(slots=True, eq=False)
class QuorumReply(Reply):
    high_watermark: int = -1
    voters: list[ReplicaInfo] = field(default_factory=list)
    observers: list[ReplicaInfo] = field(default_factory=list)
    voter_set: VoterSet | None = None


class Failure(Enum):
    """Why a request of ours has no answer."""

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

# --- events ---------------------------------------------------------------------------------------

Token = Hashable  # names the asker of a request until it is answered


@dataclass(slots=True, eq=False)
class Received:
    request: RaftRequest
    token: Token


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a request goes: a replica, or a bootstrap server whose node id is not known (negative id)."""

    id: int
    address: Address


@dataclass(slots=True, eq=False)
class Replied:
    to: Peer
    request: RaftRequest
    reply: Reply | Failure


@dataclass(slots=True, eq=False)
class PeerLost:
    """A connection to this address was reset or closed by the other side."""

    address: Address


@dataclass(slots=True, eq=False)
class Timeout:
    """Time has passed; also any other event notices deadlines."""


@dataclass(slots=True, eq=False)
class ControlRecord:
    """A control record of the metadata log: type as in ControlRecordType, its decoded value."""

    offset: int
    type: int
    value: Data


@dataclass(slots=True, eq=False)
class Appended:
    """Records were written to the log (not yet durable), `controls` among them in order."""

    controls: Sequence[ControlRecord] = ()


@dataclass(slots=True, eq=False)
class Synced:
    """Everything below `offset` is as durable as this replica makes it."""

    offset: int


@dataclass(slots=True, eq=False)
class FetchRejected:
    """Fetched records could not be appended: broken bytes or a gap."""

    reason: str


@dataclass(slots=True, eq=False)
class SnapshotOpened:
    """The download goes on at `position`. With a digest, what is there came from another leader, and
    the files of two replicas may differ under the same id: this one has to confirm it.

    `leader`: for whom it was opened; None where no other can have been asked since."""

    snapshot: OffsetEpoch
    position: int
    prefix_digest: bytes | None = None
    leader: LeaderAndEpoch | None = None


@dataclass(slots=True, eq=False)
class SnapshotWritten:
    """Every byte of the download below `position` was verified and written."""

    snapshot: OffsetEpoch
    position: int


@dataclass(slots=True, eq=False)
class SnapshotRejected:
    """What was fetched is no snapshot, or does not fit on the disk; it has been deleted."""

    snapshot: OffsetEpoch
    reason: str


@dataclass(slots=True, eq=False)
class SnapshotInstalled:
    """The downloaded snapshot is frozen and the log restarted behind it."""

    snapshot: OffsetEpoch
    voters: VoterSet | None
    kraft_version: int | None


@dataclass(slots=True, eq=False)
class Resign:
    epoch: int
    reason: str


@dataclass(slots=True, eq=False)
class Shutdown:
    pass


@dataclass(slots=True, eq=False)
class UpgradeKraftVersion:
    """kraft.version 0 -> 1: write the voter set into the log. Answered through `token`."""

    epoch: int
    level: int
    validate_only: bool
    token: Token


Event = (
    Received
    | Replied
    | PeerLost
    | Timeout
    | Appended
    | Synced
    | FetchRejected
    | SnapshotOpened
    | SnapshotWritten
    | SnapshotRejected
    | SnapshotInstalled
    | Resign
    | Shutdown
    | UpgradeKraftVersion
)

# --- effects --------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Outgoing:
    to: Peer
    request: RaftRequest


@dataclass(slots=True, eq=False)
class Answer:
    token: Token
    reply: Reply


@dataclass(frozen=True, slots=True)
class SnapshotStart:
    """A download begins, or one that was broken off goes on unless it is to be `fresh`. Report
    SnapshotOpened."""

    snapshot: OffsetEpoch
    leader: LeaderAndEpoch  # whose file it is: one leader's in one epoch never changes
    fresh: bool = False


@dataclass(slots=True, eq=False)
class SnapshotChunk:
    """Bytes of a snapshot download: verify and write them, report SnapshotWritten or SnapshotRejected.
    `last`: freeze it, restart the log behind it, report SnapshotInstalled."""

    snapshot: OffsetEpoch
    position: int
    data: bytes | memoryview
    last: bool
    size: int  # of the whole, as the leader says


@dataclass(slots=True, eq=False)
class RoleChange:
    role: Role
    epoch: int
    leader_id: int | None


@dataclass(slots=True, eq=False)
class Effects:
    """What the driver must do, in the order of the fields (the duties are numbered in `core`)."""

    save_quorum_state: QuorumState | None = None
    save_standing: MembershipRecord | None = None
    save_may_wait: bool = False  # nothing said before depends on it: soon is enough
    truncate_to: int | None = None
    start_snapshot: SnapshotStart | None = None
    snapshot_chunk: SnapshotChunk | None = None
    append_fetched: bytes | memoryview | None = None
    append_control: list[tuple[int, Data]] | None = None  # one batch of (type, value)
    send: list[Outgoing] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    role: RoleChange | None = None
    high_watermark: int | None = None
    wake_at: float = float("inf")
