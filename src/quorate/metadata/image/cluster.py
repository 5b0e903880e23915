"""Registered brokers and controllers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from immutables import Map

from quorate.dataclass import dataclass

UnknownTags = tuple[tuple[int, bytes], ...]
"""Tagged fields that this version does not know, as pairs of tag and bytes in ascending order."""

NestedTags = tuple[tuple[str, UnknownTags], ...]
"""The unknown tags of a registration by their place: '' is the record itself, 'endpoint NAME' and
'feature NAME' are its parts."""


class Endpoint(NamedTuple):
    """The address of a listener. `security_protocol` is 0 for PLAINTEXT, 1 for SSL, 2 for
    SASL_PLAINTEXT, 3 for SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A registered broker and its state. `epoch` is the broker epoch. `start_time_ms` is 0 if the record
    has no start time. `cordoned_log_dirs` is None until a heartbeat has named them (KIP-1066).

    `registered_offset` is the offset of the RegisterBrokerRecord, or the last offset of a snapshot that
    contains it. `unfenced_offset` is the offset of the last record that unfenced the broker, or
    `registered_offset` if there was none. Both are not compared, because a snapshot does not preserve them.
    """

    id: int
    epoch: int
    incarnation_id: bytes
    listeners: tuple[Endpoint, ...] = ()
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()
    start_time_ms: int = 0
    is_migrating_zk_broker: bool = False
    unknown_tags: NestedTags = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    registered_offset: int = field(default=-1, compare=False)
    unfenced_offset: int = field(default=-1, compare=False)

    @property
    def active(self) -> bool:
        """Whether the broker is neither fenced nor in controlled shutdown, so that it may lead and join
        an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def has_uncordoned_directory(self) -> bool:
        """Whether new replicas may be placed on the broker: not all of its log directories are cordoned, as
        far as they are known."""
        if not self.log_dirs or self.cordoned_log_dirs is None:
            return True
        return any(directory not in self.cordoned_log_dirs for directory in self.log_dirs)

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of a listener, or None if the broker has no listener of this name."""
        for endpoint in self.listeners:
            if endpoint.name == listener:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A registered controller (KIP-919). `registered_offset` is that of its record, or the last offset of a
    snapshot that contains it. It is not compared, because a snapshot does not preserve it.
    """

    id: int
    incarnation_id: bytes
    zk_migration_ready: bool = False
    listeners: tuple[Endpoint, ...] = ()
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unknown_tags: NestedTags = ()
    registered_offset: int = field(default=-1, compare=False)

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of a listener, or None if the controller has no listener of this name."""
        for endpoint in self.listeners:
            if endpoint.name == listener:
                return endpoint
        return None


_NONE: Map[int, Any] = Map()


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The registered brokers and controllers by id."""

    brokers: Map[int, BrokerRegistration] = _NONE
    controllers: Map[int, ControllerRegistration] = _NONE

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """The registration of a broker, or None."""
        return self.brokers.get(broker_id)

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker is registered and neither fenced nor in controlled shutdown."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active


def sorted_directories(directories: Iterable[bytes]) -> tuple[bytes, ...]:
    """Directory ids in the order of Kafka's Uuid class, which compares them as two signed 64-bit
    numbers."""
    return tuple(sorted(directories, key=_signed_halves))


def _signed_halves(directory: bytes) -> tuple[int, int]:
    return int.from_bytes(directory[:8], "big", signed=True), int.from_bytes(
        directory[8:], "big", signed=True
    )
