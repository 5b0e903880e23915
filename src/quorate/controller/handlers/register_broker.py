"""BrokerRegistration (62): a broker joins the cluster or returns to it (KIP-631, KIP-858).

The broker epoch is the offset of the next record when the registration is handled, so it always
increases. The RegisterBrokerRecord is the last record of its batch: if the controller fails before it is
written, the broker registers again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quorate.controller.changes.batched_change import Continuation, cursor_of
from quorate.controller.context import Context, Result, View
from quorate.controller.replication.broker_changes import (
    ChangeBatch,
    clean_up_incarnation,
)
from quorate.metadata.features import (
    FIRST_DIRECTORIES,
    KRAFT_VERSION,
    METADATA_VERSION,
)
from quorate.metadata.image.cluster import BrokerRegistration
from quorate.metadata.records import RegisterBrokerRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from quorate.protocol.schema import Data
from quorate.protocol.uuids import is_reserved, uuid_text

SECURITY_PROTOCOLS = range(4)
"""PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL."""
PREVIOUS_EPOCH_SINCE_VERSION = 3
"""BrokerRegistration has the broker epoch of the last clean shutdown from version 3 on."""


def register_broker(
    view: View, request: BrokerRegistrationRequest, ctx: Context
) -> Result[BrokerRegistrationResponse]:
    """Registers a broker. Raises INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION,
    INVALID_REGISTRATION, UNSUPPORTED_VERSION, and BROKER_ID_NOT_REGISTERED for a broker that is
    migrating from ZooKeeper."""
    broker_id = request.broker_id
    existing = view.broker(broker_id)
    if request.cluster_id != view.config.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Broker {broker_id} belongs to cluster {request.cluster_id}; this is cluster "
            f"{view.config.cluster_id}.",
            remedy="Correct controller.quorum.bootstrap.servers of the broker, or format its "
            f"directories with --cluster-id {view.config.cluster_id}.",
        )
    same_incarnation = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and not same_incarnation and _may_live(view, existing, request, ctx):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with id {broker_id}.",
            remedy="If it was restarted just now, its old session ends within "
            f"{view.broker_sessions.session_timeout_s:g} s and the registration is then accepted. "
            "Otherwise give one of the two another node.id.",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, "Brokers of a ZooKeeper cluster cannot register here."
        )
    check_listeners(f"Broker {broker_id}", request.listeners)
    directories_supported = view.metadata_version >= FIRST_DIRECTORIES
    if directories_supported:
        _check_directories(view, broker_id, request.log_dirs)
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=request.incarnation_id,
        rack=request.rack,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=_checked_features(view, request),
        start_time_ms=request.start_time_ms,
    )
    if directories_supported:
        record.log_dirs = list(request.log_dirs)
    records: list[Data] = []
    if same_incarnation and existing is not None:
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        record.broker_epoch = existing.epoch
    else:
        # -2 differs from -1, which stands for an unknown previous epoch.
        stored_epoch = existing.epoch if existing is not None else -2
        clean = (
            ctx.api_version >= PREVIOUS_EPOCH_SINCE_VERSION and stored_epoch == request.previous_broker_epoch
        )
        batch = ChangeBatch(cursor_of(ctx.continuation))
        clean_up_incarnation(view, broker_id, clean, records, batch)
        if batch.continuation is not None:
            return Result(
                BrokerRegistrationResponse(),
                records,
                atomic=False,
                continuation=Continuation(batch.continuation, leaving=(broker_id,)),
            )
        record.fenced = True
        record.broker_epoch = view.next_offset
    records.append(record)
    response = BrokerRegistrationResponse(broker_epoch=record.broker_epoch)
    return Result(response, records, atomic=False, registered=None if same_incarnation else broker_id)


def _may_live(
    view: View, existing: BrokerRegistration, request: BrokerRegistrationRequest, ctx: Context
) -> bool:
    """Whether the registered incarnation may still be running.

    It is not running if its session has expired, or if it was an earlier process of this very node. It
    is also not running if its connection is closed and the new process uses one of its log directories,
    because the lock on this directory was released.
    """
    session = (existing.id, existing.epoch)
    if not view.broker_sessions.has_session(*session, ctx.now) or session == view.broker_sessions.predecessor:
        return False
    gone = session in view.broker_sessions.disconnected
    return not (gone and set(existing.log_dirs) & set(request.log_dirs))


def check_listeners(who: str, listeners: Iterable[Any]) -> None:
    """Raises INVALID_REGISTRATION for an unknown security protocol. An Apache Kafka node stops when it
    replays such a record."""
    for listener in listeners:
        if listener.security_protocol not in SECURITY_PROTOCOLS:
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION,
                f"{who} names the unknown security protocol {listener.security_protocol} for its listener "
                f"{listener.name}.",
            )


def _check_directories(view: View, broker_id: int, directories: list[bytes]) -> None:
    """Raises INVALID_REGISTRATION for directory ids that are missing, reserved, repeated, or registered
    by another broker."""

    def invalid(why: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REGISTRATION, why)

    if not directories:
        raise invalid(f"Broker {broker_id} names no log directory.")
    if any(is_reserved(directory) for directory in directories):
        raise invalid(f"Broker {broker_id} names a reserved directory id.")
    wanted = set(directories)
    if len(wanted) != len(directories):
        raise invalid(f"Broker {broker_id} names a directory id twice.")
    for other in view.image.cluster.brokers.values():
        if other.id != broker_id:
            for directory in other.log_dirs:
                if directory in wanted:
                    raise invalid(
                        f"Broker {other.id} is already registered with directory {uuid_text(directory)}, "
                        f"which broker {broker_id} names."
                    )


def _checked_features(
    view: View, request: BrokerRegistrationRequest
) -> list[RegisterBrokerRecord.BrokerFeature]:
    """The features of a registration. Raises an error if the broker does not support a finalized level."""
    finalized: dict[str, int] = dict(view.image.features.finalized)
    finalized[KRAFT_VERSION] = view.kraft_version
    offered: dict[str, tuple[int, int]] = {
        feature.name: (feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    }
    for name, (low, high) in offered.items():
        _check_range(name, low, high, finalized.get(name, 0))
    if METADATA_VERSION not in offered:
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION, f"Broker {request.broker_id} does not offer {METADATA_VERSION}."
        )
    for name, level in finalized.items():
        if level and name not in offered:
            _check_range(name, 0, 0, level)
    return [
        RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in offered.items()
    ]


def _check_range(name: str, low: int, high: int, level: int) -> None:
    if not low <= level <= high:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register: {name} is finalized at {level}; the broker supports {low} to {high}.",
            remedy="Start the broker with a release that supports it.",
        )
