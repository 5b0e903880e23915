"""Registered brokers and controllers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from immutables import Map

UnknownTags = tuple[tuple[int, bytes], ...]
"""Tagged fields that this version does not know, as (tag, bytes), ascending."""

NestedTags = tuple[tuple[str, UnknownTags], ...]
"""Unknown tags of a registration: '' for the record itself, 'endpoint NAME' and 'feature NAME' for its
parts."""


class Endpoint(NamedTuple):
    """Where a node is reached. `security_protocol`: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker as it registered, and its state since. `epoch` is the broker epoch; `start_time_ms` 0
    where its record had none.

    `registered_offset` is where its RegisterBroker record lies (or the snapshot's last offset): not
    part of the value, since a snapshot does not keep it.
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
    registered_offset: int = field(default=-1, compare=False)

    @property
    def active(self) -> bool:
        """Neither fenced nor in controlled shutdown: may lead and be in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        """The end point of a listener name, None when the broker has none of that name."""
        for endpoint in self.listeners:
            if endpoint.name == listener:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A controller as it registered (KIP-919)."""

    id: int
    incarnation_id: bytes
    zk_migration_ready: bool = False
    listeners: tuple[Endpoint, ...] = ()
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unknown_tags: NestedTags = ()

    def endpoint(self, listener: str) -> Endpoint | None:
        """The end point of a listener name, None when the controller has none of that name."""
        for endpoint in self.listeners:
            if endpoint.name == listener:
                return endpoint
        return None


_NONE: Map[int, Any] = Map()


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Every registered broker and controller, by id."""

    brokers: Map[int, BrokerRegistration] = _NONE
    controllers: Map[int, ControllerRegistration] = _NONE

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """The registration, None when there is none."""
        return self.brokers.get(broker_id)

    def active_brokers(self) -> Iterator[BrokerRegistration]:
        """Brokers that are neither fenced nor shutting down."""
        return (broker for broker in self.brokers.values() if broker.active)

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker is registered, unfenced and not in controlled shutdown."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active


def sorted_directories(directories: Iterable[bytes]) -> tuple[bytes, ...]:
    """Directory ids in Kafka's order: two signed 64-bit halves."""
    return tuple(sorted(directories, key=_signed_halves))


def _signed_halves(directory: bytes) -> tuple[int, int]:
    return int.from_bytes(directory[:8], "big", signed=True), int.from_bytes(
        directory[8:], "big", signed=True
    )
