"""The requests and replies of Raft, the events that drive the core, and the effects of a step.

The requests and replies correspond to Kafka's RPCs; `quorate.raft.runtime.wire` translates them. A field
named `epoch` is always the Raft epoch.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode
from quorate.raft.core.voters import MembershipRecord, Voter, VoterSet
from quorate.raft.types import (
    Address,
    Endpoints,
    LeaderAndEpoch,
    OffsetEpoch,
    QuorumState,
    ReplicaKey,
    Role,
)

if TYPE_CHECKING:
    from quorate.protocol.schema import Data

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

# --- events ---------------------------------------------------------------------------------------

Token = Hashable  # identifies a request until it is answered


@dataclass(slots=True, eq=False)
class Received:
    """A request has arrived. Its answer carries the same token."""

    request: RaftRequest
    token: Token


@dataclass(frozen=True, slots=True)
class Peer:
    """The receiver of a request: a replica, or a bootstrap server of unknown id (a negative id)."""

    id: int
    address: Address


@dataclass(slots=True, eq=False)
class Replied:
    """A request of this replica was answered, or has failed."""

    to: Peer
    request: RaftRequest
    reply: Reply | Failure


@dataclass(slots=True, eq=False)
class PeerLost:
    """The other side has reset or closed a connection to this address."""

    address: Address


@dataclass(slots=True, eq=False)
class Timeout:
    """Only time has passed. Every other event handles deadlines as well."""


@dataclass(slots=True, eq=False)
class ControlRecord:
    """A control record of the metadata log: its type (`ControlRecordType`) and its decoded value."""

    offset: int
    type: int
    value: Data


@dataclass(slots=True, eq=False)
class Appended:
    """Records were appended to the log, but are not durable yet. `controls` are the control records."""

    controls: Sequence[ControlRecord] = ()


@dataclass(slots=True, eq=False)
class Synced:
    """The log below `offset` is as durable as this replica makes it."""

    offset: int


@dataclass(slots=True, eq=False)
class FetchRejected:
    """Fetched records could not be appended, because they are corrupt or do not continue the log."""

    reason: str


@dataclass(slots=True, eq=False)
class SnapshotOpened:
    """A download is open, and continues at `position`.

    A digest means that the bytes before it came from another leader. The snapshots of two replicas with
    the same id may differ, so the current leader has to confirm them. `leader` is the leader for which
    the download was opened, or None if no other leader can have named the snapshot since.
    """

    snapshot: OffsetEpoch
    position: int
    prefix_digest: bytes | None = None
    leader: LeaderAndEpoch | None = None


@dataclass(slots=True, eq=False)
class SnapshotWritten:
    """The bytes of the download below `position` are verified and written."""

    snapshot: OffsetEpoch
    position: int


@dataclass(slots=True, eq=False)
class SnapshotRejected:
    """The download is not a valid snapshot, or does not fit on the disk. It has been deleted."""

    snapshot: OffsetEpoch
    reason: str


@dataclass(slots=True, eq=False)
class SnapshotInstalled:
    """The downloaded snapshot is frozen, and the log restarted after it."""

    snapshot: OffsetEpoch
    voters: VoterSet | None
    kraft_version: int | None


@dataclass(slots=True, eq=False)
class Resign:
    """The controller gives up its leadership of `epoch`."""

    epoch: int
    reason: str


@dataclass(slots=True, eq=False)
class Shutdown:
    """This replica stops. A leader resigns first."""


@dataclass(slots=True, eq=False)
class UpgradeKraftVersion:
    """A request to upgrade kraft.version from 0 to 1, which writes the voter set into the log."""

    epoch: int
    level: int
    validate_only: bool
    token: Token


@dataclass(slots=True, eq=False)
class Abandoned:
    """The sender of an AddVoter request no longer waits for its answer."""

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
    | Abandoned
)

# --- effects --------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Outgoing:
    """A request to send to another replica."""

    to: Peer
    request: RaftRequest


@dataclass(slots=True, eq=False)
class Answer:
    """The reply to the received request with this token."""

    token: Token
    reply: Reply


@dataclass(frozen=True, slots=True)
class SnapshotStart:
    """The begin of a snapshot download. A broken-off download of the same file continues, unless `fresh`."""

    snapshot: OffsetEpoch
    leader: LeaderAndEpoch  # the file's owner; the file of one leader in one epoch never changes
    fresh: bool = False


@dataclass(slots=True, eq=False)
class SnapshotChunk:
    """Bytes of a snapshot download."""

    snapshot: OffsetEpoch
    position: int
    data: bytes | memoryview
    last: bool
    size: int  # of the whole snapshot, as reported by the leader


@dataclass(slots=True, eq=False)
class RoleChange:
    """This replica has a new role, epoch or leader."""

    role: Role
    epoch: int
    leader_id: int | None


@dataclass(slots=True, eq=False)
class Effects:
    """What the driver must do after a step.

    The order of the fields is the order in which the effects are performed, and it makes Raft safe:
    nothing may be sent or acknowledged that a crash could still take back.

    1. `send`: these requests may be sent at once, even before effect 2. A response must be handled only
       after all effects of this step are performed. Report each response or failure with `Replied`.
    2. `save_quorum_state`: save it durably before any effect below. A failure is fatal. With
       `save_may_wait` it may be saved a little later, or together with the next one.
    3. `truncate_to`: truncate the log to this offset, and report `Synced`. `start_snapshot`: open the
       download, and report `SnapshotOpened`. `snapshot_chunk`: verify the bytes and write them, and
       report `SnapshotWritten`; after the last chunk freeze the snapshot, restart the log after it and
       report `SnapshotInstalled` instead. Delete a snapshot that is not valid, and report
       `SnapshotRejected`. The work on snapshots may take long: it runs beside the other effects, in order.
    4. `append_fetched`: check the batches and append them, and report `Appended` with their control
       records; make them durable (an observer in a broker need not), and report `Synced`. Report
       `FetchRejected` instead if they cannot be appended. `append_control`: append one batch of control
       records after all records proposed so far, and report `Appended` and later `Synced`. The driver
       appends the records that the state machine proposes itself, and reports the same events.
    5. `answers`: these responses may be sent now. The driver reads the bytes that `read_from` and `read`
       name from the log and the snapshot. `save_membership_record`: save it durably, at any time.
    6. `role`: notify the listeners. `high_watermark`: deliver the records below it.
    7. `wake_at`: make a step with `Timeout` at this time at the latest.

    Steps for the events that these effects report come before the next event from outside.
    """

    send: list[Outgoing] = field(default_factory=list)
    save_quorum_state: QuorumState | None = None
    save_may_wait: bool = False  # no message sent before depends on it
    truncate_to: int | None = None
    start_snapshot: SnapshotStart | None = None
    snapshot_chunk: SnapshotChunk | None = None
    append_fetched: bytes | memoryview | None = None
    append_control: list[tuple[int, Data]] | None = None  # one batch of (type, value)
    answers: list[Answer] = field(default_factory=list)
    save_membership_record: MembershipRecord | None = None
    role: RoleChange | None = None
    high_watermark: int | None = None
    wake_at: float = float("inf")
