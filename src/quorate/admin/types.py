"""The values that the admin client takes and returns, named as in Kafka's Admin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import NamedTuple

from quorate.dataclass import dataclass


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Node:
    """A broker or controller. `start_time_ms` is 0 if the cluster does not report it (KIP-536)."""

    id: int
    host: str
    port: int
    rack: str | None = None
    start_time_ms: int = 0
    fenced: bool = False

    def __str__(self) -> str:
        return (
            f"{self.host}:{self.port} (id: {self.id} rack: {self.rack or 'null'} isFenced: "
            f"{str(self.fenced).lower()})"
        )


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The nodes of a cluster. `endpoint_type` is 1 for brokers and 2 for controllers (KIP-919)."""

    cluster_id: str
    controller_id: int
    nodes: tuple[Node, ...]
    endpoint_type: int = 1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 means the default of the cluster. `assignment` has the brokers of each partition,
    in place of both numbers.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic in a list of all topics; `topic_id` is a UUID of 16 bytes."""

    name: str
    topic_id: bytes
    internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition. `elr` and `last_known_elr` are None if the cluster does not report them (KIP-966)."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int = -1
    offline: tuple[int, ...] = ()
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with all of its partitions; `topic_id` is a UUID of 16 bytes."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """An ongoing reassignment: all replicas of a partition, and those that it adds and removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ConfigSource(IntEnum):
    """The source of a value. Tools print these names."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigOp(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value that a configuration would have if the sources above this one did not set it."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A configuration, its value and its source. The value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool = False
    sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list of all groups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group. `instance_id` is None for a dynamic member (KIP-345)."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, its coordinator and its members. `assignor` is empty while nobody has joined."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: Node
    members: tuple[MemberDescription, ...]
    group_type: str = "Classic"


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset. The leader epoch is -1 if the client did not send one."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset and the timestamp of its record in ms since 1970. Both are -1 where no record matches."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A replica of the metadata log.

    Times are in ms since 1970, and -1 if unknown. `snapshot_end_offset` is that of its newest
    snapshot, -1 if it has none or is Apache Kafka's, and `start_time_ms` that of its process, 0 if
    unknown.
    """

    replica_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    snapshot_end_offset: int = -1
    start_time_ms: int = 0


FETCHING_MS = 3000
"""A replica that fetched within this time runs: it fetches at least every half second."""


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """The leader, voters and observers of the metadata quorum (DescribeQuorum)."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[tuple[str, str, int], ...]]
    """(listener, host, port) of each voter."""
    adding: tuple[tuple[int, bytes], ...] | None = None
    """(id, directory id) of the voters that an uncommitted change adds. None if the leader does not report
    them, as Apache Kafka's.
    """
    removing: tuple[tuple[int, bytes], ...] | None = None

    def silent_ms(self, replica: QuorumReplica) -> int | None:
        """Returns the time since the last Fetch of a replica, by the leader's clock.

        It is FETCHING_MS or more if it never fetched from this leader, and None if the leader
        reports no times (DescribeQuorum version 0).
        """
        now_ms = max((r.last_fetch_ms for r in self.voters if r.replica_id == self.leader_id), default=-1)
        if now_ms < 0 or replica.replica_id == self.leader_id:
            return 0 if replica.replica_id == self.leader_id else None
        return max(0, now_ms - replica.last_fetch_ms)


@dataclass(frozen=True, slots=True)
class Features:
    """The supported ranges and the finalized levels of features. `epoch` is -1 if there is none."""

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int


class FeatureUpgrade(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class TopicPartitionReplica(NamedTuple):
    """A replica of a partition on a broker."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker_id}"


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """The bytes of a replica, and by how many records it is behind. A future replica is a move between
    log directories.
    """

    size: int
    lag: int
    future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory and its replicas. The bytes are of the whole volume, and -1 if unknown.

    `future_replicas` are the copies that moves to this directory have made so far.
    """

    path: str
    error: str | None
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, ReplicaSize]
    future_replicas: Mapping[TopicPartition, ReplicaSize] = field(default_factory=dict)
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaLogDirInfo:
    """The directory of a replica, and the one to which it moves. A path is None if there is none, and its
    lag is then -1.
    """

    current_path: str | None = None
    current_lag: int = -1
    future_path: str | None = None
    future_lag: int = -1


class _AclCode(IntEnum):
    """A code in requests about ACLs. Codes that a newer cluster sends become UNKNOWN, which is 0."""

    @classmethod
    def _missing_(cls, value: object) -> _AclCode:
        return cls(0)


class ResourceType(_AclCode):
    """The type of the resource of an ACL."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_AclCode):
    """How the name of an ACL selects resources (KIP-290). ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_AclCode):
    """The operation that an ACL allows or denies. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(_AclCode):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class AclBinding:
    """An ACL: who may, or may not, do what to which resources. A principal is like `User:ann`."""

    resource_type: ResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission_type: AclPermissionType = AclPermissionType.ALLOW
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Selects ACLs. None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY


class KafkaPrincipal(NamedTuple):
    """Who sends a request, such as `User:ann`."""

    principal_type: str
    name: str

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token (KIP-48). Times are in ms since 1970. `hmac` is the password of the token."""

    token_id: str
    hmac: bytes = field(repr=False)
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
