"""The small values that all parts of `quorate.raft` share.

Units: offsets count records, times named `now` are monotonic seconds, times named `*_ms` are wall clock
milliseconds. A directory id of sixteen zero bytes means "not known" (kraft.version 0, or an entry of a
voter set without one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import NamedTuple

from quorate.dataclass import dataclass
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.uuids import uuid_text

NO_DIRECTORY = bytes(16)
METADATA_PARTITION = 0
MAX_BATCH_BYTES = 8 * 1024 * 1024  # a leader's batch and one Fetch answer are at most this large, as in Kafka
MAX_FETCH_BYTES = 8 * 1024 * 1024
ASK_FETCH_BYTES = 1 * 1024 * 1024  # a larger response would hold the event loop for more than a few ms
ASK_SNAPSHOT_BYTES = 4 * 1024 * 1024
# The smallest part of the log or of a snapshot that is requested or sent on a slow link. At 270 kbit/s it
# takes 2 s, the default request timeout.
MIN_PART_BYTES = 64 * 1024
MAX_SNAPSHOT_BYTES = 1 << 40  # a leader that names a larger size is not believed

Address = tuple[str, int]
Endpoints = Mapping[str, Address]  # listener name -> (host, port)
NO_ENDPOINTS: Endpoints = {}


@dataclass(frozen=True, slots=True)
class ReplicaKey:
    """The identity of a replica: node id and directory id (KIP-853)."""

    id: int
    directory_id: bytes = NO_DIRECTORY

    def __str__(self) -> str:
        if self.directory_id == NO_DIRECTORY:
            return str(self.id)
        return f"{self.id}-{uuid_text(self.directory_id)}"


class OffsetEpoch(NamedTuple):
    """A position in the log: an end offset (exclusive) and the epoch of the record before it.

    It is also the id of a snapshot.
    """

    offset: int
    epoch: int

    @property
    def log_order(self) -> tuple[int, int]:
        """The order in which Raft compares logs: by epoch, then by length (section 5.4.1)."""
        return (self.epoch, self.offset)


class LeaderAndEpoch(NamedTuple):
    leader_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class QuorumState:
    """What a replica must not forget: epoch, leader and vote. Persisted in the file `quorum-state`."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class CommittedBatch:
    """A committed batch. `values` is empty for a control batch."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    values: Sequence[bytes | memoryview]
    size_bytes: int


class Role(Enum):
    """The role of a replica in its epoch. An observer is UNATTACHED or FOLLOWER."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


# The roles that may follow each role. A leader that restarts begins as RESIGNED, see `Raft.start`.
TRANSITIONS: Mapping[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.CANDIDATE, Role.FOLLOWER}),
    Role.CANDIDATE: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.LEADER, Role.FOLLOWER}),
    Role.LEADER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED}),
    Role.FOLLOWER: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
    Role.RESIGNED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
}


class RaftError(Exception):
    """A rule of Raft is broken, by the local disk or by a leader's response. The node must stop."""


class NotLeaderError(KafkaError):
    """An append for an epoch that this replica does not lead."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, message)


class BatchTooLargeError(KafkaError):
    """An atomic append does not fit into a batch of MAX_BATCH_BYTES."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.RECORD_LIST_TOO_LARGE, message)


@dataclass(frozen=True, slots=True)
class RaftParams:
    """The configuration of the core. Times are in seconds, with the defaults of Kafka's `QuorumConfig`."""

    me: ReplicaKey
    cluster_id: str
    listener_name: str  # the first controller listener, by which voters reach each other
    endpoints: Endpoints = field(default_factory=dict)  # of this node's controller; empty for a broker
    can_vote: bool = True  # has the controller role
    bootstrap: tuple[Address, ...] = ()
    election_timeout_s: float = 1.0
    fetch_timeout_s: float = 2.0
    backoff_max_s: float = 1.0
    retry_backoff_s: float = 0.02
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = ASK_FETCH_BYTES  # controller.quorum.fetch.max.bytes
    fetch_snapshot_max_bytes: int = ASK_SNAPSHOT_BYTES  # controller.quorum.fetch.snapshot.max.bytes
    kraft_versions: tuple[int, int] = (0, 1)  # supported range of the feature kraft.version
    auto_join: bool = False  # controller.quorum.auto.join.enable
    quick_failover: bool = True  # request pre-votes soon after the leader's connection was reset
    start_time_ms: int = 0  # of the process, in ms since 1970; reported to the leader

    @property
    def check_quorum_s(self) -> float:
        return 1.5 * self.fetch_timeout_s

    @property
    def begin_epoch_period_s(self) -> float:
        return self.fetch_timeout_s / 2

    @property
    def update_voter_period_s(self) -> float:
        return 3 * self.fetch_timeout_s
