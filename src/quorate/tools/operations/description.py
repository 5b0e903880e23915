"""The description of a cluster at one moment, from which operations are planned. It has no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from quorate.admin.types import TopicPartition
from quorate.dataclass import dataclass
from quorate.metadata.features import KRAFT_VERSION, METADATA_VERSION
from quorate.protocol.uuids import ZERO_UUID


@dataclass(frozen=True, slots=True)
class Start:
    """When a process started, as far as the cluster tells, in ms since 1970.

    `time_ms` is the start time that the node has registered (KIP-536), or the time of its registration in the
    metadata log, which is all that Apache Kafka's nodes leave. It is None if only `at_most_ms` is known,
    because the registration is in a snapshot. The incarnation id is different for each process.
    """

    incarnation_id: bytes
    time_ms: int | None = None
    at_most_ms: int | None = None

    def since(self, time_ms: int) -> bool:
        """Whether the process certainly started at or after a time."""
        return self.time_ms is not None and self.time_ms >= time_ms


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker, as the cluster describes it."""

    id: int
    start: Start
    host: str = ""
    port: int = 0
    rack: str | None = None
    fenced: bool = False
    in_controlled_shutdown: bool = False
    directories: tuple[bytes, ...] = ()
    """The ids of its log directories that are online. Empty below metadata.version 17."""
    cordoned: bool = False
    """Whether it gets no new replicas, because all of its log directories are cordoned (KIP-1066)."""
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    """Its dynamic configuration, without the default of all brokers."""
    capacity: int | None = None
    """The most bytes that its replicas can have together, until its disks are full. None if unknown."""
    rooms: tuple[int, ...] | None = None
    """How many bytes of new replicas each of its volumes has room for, the largest first. None if unknown."""

    @property
    def active(self) -> bool:
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True)
class Controller:
    """A registered controller, as the cluster describes it."""

    id: int
    start: Start
    endpoints: tuple[tuple[str, str, int], ...] = ()
    """Name, host and port of its listeners. The voters use the first."""
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return self.endpoints[0][1] if self.endpoints else ""

    @property
    def port(self) -> int:
        return self.endpoints[0][2] if self.endpoints else 0


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica of the metadata log. `follows` means that it fetches and has (almost) all of the leader's
    records. The leader itself follows."""

    id: int
    directory_id: bytes = ZERO_UUID
    follows: bool = True
    last_fetch_ms: int = 0


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition. `min_isr` is its effective min.insync.replicas, `size` its bytes, or 0 if unknown."""

    tp: TopicPartition
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int = -1
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    min_isr: int = 1
    directories: tuple[bytes, ...] = ()
    """The directory id of each replica. It may be empty, and an id may be one that stands for "not known"."""
    size: int = 0

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that remain when the reassignment in progress, if any, is completed."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)


class Partitions:
    """All partitions, by name and by the brokers that have their replicas."""

    __slots__ = ("_by_broker", "_by_name")

    def __init__(self, partitions: Iterable[Partition] = ()) -> None:
        self._by_name = {partition.tp: partition for partition in partitions}
        self._by_broker: dict[int, list[Partition]] = {}
        for partition in self._by_name.values():
            for replica in partition.replicas:
                self._by_broker.setdefault(replica, []).append(partition)

    def __getitem__(self, tp: TopicPartition) -> Partition:
        return self._by_name[tp]

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def on(self, broker_id: int) -> Sequence[Partition]:
        """The partitions with a replica on a broker."""
        return self._by_broker.get(broker_id, ())


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster at one moment."""

    cluster_id: str = ""
    now_ms: int = 0
    """The clock of the active controller."""
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    controllers: Mapping[int, Controller] = field(default_factory=dict)
    leader_id: int = -1
    voters: tuple[Replica, ...] = ()
    observers: tuple[Replica, ...] = ()
    features: Mapping[str, int] = field(default_factory=dict)
    """The finalized levels, with kraft.version."""
    partitions: Partitions = field(default_factory=Partitions)
    throttled: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The throttle configurations of topics, by topic."""

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION, 0)

    @property
    def kraft_version(self) -> int:
        return self.features.get(KRAFT_VERSION, 0)

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker is registered, unfenced and not stopping."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active

    def voter(self, node_id: int) -> Replica | None:
        return next((voter for voter in self.voters if voter.id == node_id), None)

    def replica(self, node_id: int) -> Replica | None:
        """The replica of the metadata log that a node has now.

        The leader also lists what the node had before its disk was replaced, for five minutes as an observer,
        or until it is removed as a voter. The current one is that which fetched last.
        """
        found = [replica for replica in (*self.voters, *self.observers) if replica.id == node_id]
        return max(found, key=lambda replica: (replica.follows, replica.last_fetch_ms), default=None)


def ids(values: Iterable[object]) -> str:
    """Joins ids for a text."""
    return ", ".join(map(str, values))


def some(partitions: Iterable[TopicPartition], limit: int = 3) -> str:
    """Names the first of several partitions, and the number of the others."""
    names = sorted(partitions)
    shown = ", ".join(map(str, names[:limit]))
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"
