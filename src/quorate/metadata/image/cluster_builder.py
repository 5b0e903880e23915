"""Replays the records of brokers and controllers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quorate.metadata.errors import MetadataError
from quorate.metadata.image.cluster import (
    BrokerRegistration,
    ClusterImage,
    ControllerRegistration,
    Endpoint,
    NestedTags,
    sorted_directories,
)
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)

_FENCING = {0: None, 1: True, -1: False}
_SHUTDOWN = {0: None, 1: True}


class ClusterBuilder:
    """Replays registration records onto a cluster image."""

    __slots__ = ("_base", "brokers", "controllers")

    def __init__(self, base: ClusterImage) -> None:
        self._base = base
        self.brokers = base.brokers
        self.controllers = base.controllers

    def finish(self) -> ClusterImage:
        """The next image, or the base itself if no record changed it."""
        if self.brokers is self._base.brokers and self.controllers is self._base.controllers:
            return self._base
        return ClusterImage(self.brokers, self.controllers)

    def register_broker(self, record: RegisterBrokerRecord, offset: int) -> None:
        """Adds a registration, or replaces the registration of the same broker id."""
        self.brokers = self.brokers.set(
            record.broker_id,
            BrokerRegistration(
                id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                listeners=tuple(
                    [Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points]
                ),
                features={
                    f.name: (f.min_supported_version, f.max_supported_version) for f in record.features
                },
                rack=record.rack,
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                log_dirs=sorted_directories(record.log_dirs),
                start_time_ms=record.start_time_ms,
                is_migrating_zk_broker=record.is_migrating_zk_broker,
                unknown_tags=_nested_tags(record),
                cordoned_log_dirs=None
                if record.cordoned_log_dirs is None
                else tuple(record.cordoned_log_dirs),
                registered_offset=offset,
                unfenced_offset=offset,
            ),
        )

    def unregister_broker(self, record: UnregisterBrokerRecord, offset: int) -> None:
        """Removes the registration of a broker."""
        if record.broker_id in self.brokers:
            self.brokers = self.brokers.delete(record.broker_id)

    def _broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        """The registration of this broker epoch. Raises MetadataError if there is another or none."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise MetadataError(f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise MetadataError(
                f"the record is for epoch {epoch} of broker {broker_id}, whose registration has epoch "
                f"{broker.epoch}"
            )
        return broker

    def fence(self, record: FenceBrokerRecord, offset: int) -> None:
        """Marks a broker as fenced."""
        broker = self._broker(record.id, record.epoch)
        self.brokers = self.brokers.set(record.id, _changed(broker, fenced=True))

    def unfence(self, record: UnfenceBrokerRecord, offset: int) -> None:
        """Marks a broker as not fenced."""
        broker = self._broker(record.id, record.epoch)
        if broker.fenced:
            self.brokers = self.brokers.set(record.id, replace(broker, fenced=False, unfenced_offset=offset))

    def change_broker(self, record: BrokerRegistrationChangeRecord, offset: int) -> None:
        """Changes some fields of a registration."""
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced not in _FENCING:
            raise MetadataError(f"{record.fenced} is no value of its field fenced")
        if record.in_controlled_shutdown not in _SHUTDOWN:
            raise MetadataError(
                f"{record.in_controlled_shutdown} is no value of its field inControlledShutdown"
            )
        changes: dict[str, Any] = {}
        fenced, shutdown = _FENCING[record.fenced], _SHUTDOWN[record.in_controlled_shutdown]
        if fenced is not None:
            changes["fenced"] = fenced
            if broker.fenced and not fenced:
                changes["unfenced_offset"] = offset
        if shutdown is not None:
            changes["in_controlled_shutdown"] = shutdown
        if record.log_dirs:
            changes["log_dirs"] = sorted_directories(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = tuple(record.cordoned_log_dirs)
        if record.end_points is not None:
            changes["listeners"] = tuple(
                [Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points]
            )
        self.brokers = self.brokers.set(record.broker_id, _changed(broker, **changes))

    def register_controller(self, record: RegisterControllerRecord, offset: int) -> None:
        """Adds or replaces the registration of a controller."""
        self.controllers = self.controllers.set(
            record.controller_id,
            ControllerRegistration(
                id=record.controller_id,
                incarnation_id=record.incarnation_id,
                zk_migration_ready=record.zk_migration_ready,
                listeners=tuple(
                    [Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points]
                ),
                features={
                    f.name: (f.min_supported_version, f.max_supported_version) for f in record.features
                },
                unknown_tags=_nested_tags(record),
                registered_offset=offset,
            ),
        )

    def unregister_controller(self, record: UnregisterControllerRecord, offset: int) -> None:
        """Removes the registration of a controller."""
        if record.controller_id not in self.controllers:
            raise MetadataError(f"controller {record.controller_id} is not registered")
        self.controllers = self.controllers.delete(record.controller_id)


def _changed(broker: BrokerRegistration, **changes: Any) -> BrokerRegistration:
    """The registration with some fields changed, or the same object if no field differs."""
    if all(getattr(broker, name) == value for name, value in changes.items()):
        return broker
    return replace(broker, **changes)


def _nested_tags(record: RegisterBrokerRecord | RegisterControllerRecord) -> NestedTags:
    """The unknown tags of a registration record and of the structures in it, by their place."""
    tags: list[tuple[str, Mapping[int, bytes] | None]] = [("", record.unknown_tags)]
    tags += [(f"endpoint {endpoint.name}", endpoint.unknown_tags) for endpoint in record.end_points]
    tags += [(f"feature {feature.name}", feature.unknown_tags) for feature in record.features]
    return tuple(sorted([(where, tuple(sorted(found.items()))) for where, found in tags if found]))
