"""Registrations and other objects of the image as text, as the `toString` methods of Kafka print them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from quorate.admin.types import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate.protocol.uuids import uuid_text

if TYPE_CHECKING:
    from quorate.metadata.image import MetadataImage
    from quorate.metadata.image.cluster import BrokerRegistration, ControllerRegistration, Endpoint
    from quorate.metadata.image.partitions import PartitionImage
    from quorate.metadata.records import (
        AccessControlEntryRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
    )

PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
RECOVERY_STATES = {0: "RECOVERED", 1: "RECOVERING"}
_MAX_SHORT = 32767


def provenance_text(image: MetadataImage) -> str:
    """Returns offset, epoch and time of the last record, like Kafka's ProvenanceNode."""
    offset, epoch, timestamp_ms = image.provenance
    return f"offset {offset}, epoch {epoch}, time {zoned_time(timestamp_ms)}"


def zoned_time(timestamp_ms: int) -> str:
    """Returns a time in Java's ISO_ZONED_DATE_TIME, which drops the zeros at the end of a fraction."""
    seconds, fraction = divmod(timestamp_ms, 1000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}{f'.{fraction:03d}'.rstrip('0') if fraction else ''}Z[UTC]"


def broker_text(broker: BrokerRegistration) -> str:
    """Returns a registration of a broker. Its start time (KIP-536) is added if it is known."""
    cordoned = "null" if broker.cordoned_log_dirs is None else _list(map(uuid_text, broker.cordoned_log_dirs))
    started = f", startTimeMs={broker.start_time_ms}" if broker.start_time_ms else ""
    return (
        f"BrokerRegistration(id={broker.id}, epoch={broker.epoch}, "
        f"incarnationId={uuid_text(broker.incarnation_id)}, {_listeners(broker.listeners)}, "
        f"{_features(broker.features)}, rack={_optional(broker.rack)}, fenced={_bool(broker.fenced)}, "
        f"inControlledShutdown={_bool(broker.in_controlled_shutdown)}, "
        f"isMigratingZkBroker={_bool(broker.is_migrating_zk_broker)}, "
        f"directories={_list(map(uuid_text, broker.log_dirs))}, cordonedDirectories={cordoned}{started})"
    )


def controller_text(controller: ControllerRegistration) -> str:
    """Returns a registration of a controller."""
    return (
        f"ControllerRegistration(id={controller.id}, incarnationId={uuid_text(controller.incarnation_id)}, "
        f"zkMigrationReady={_bool(controller.zk_migration_ready)}, {_listeners(controller.listeners)}, "
        f"{_features(controller.features)})"
    )


def partition_text(partition: PartitionImage) -> str:
    """Returns the state of a partition."""
    recovery = RECOVERY_STATES.get(partition.leader_recovery_state, str(partition.leader_recovery_state))
    return (
        f"PartitionRegistration(replicas={_list(partition.replicas)}, "
        f"directories={_list(map(uuid_text, partition.directories))}, isr={_list(partition.isr)}, "
        f"removingReplicas={_list(partition.removing_replicas)}, "
        f"addingReplicas={_list(partition.adding_replicas)}, elr={_list(partition.elr)}, "
        f"lastKnownElr={_list(partition.last_known_elr)}, leader={partition.leader}, "
        f"leaderRecoveryState={recovery}, leaderEpoch={partition.leader_epoch}, "
        f"partitionEpoch={partition.partition_epoch})"
    )


def acl_text(acl: AccessControlEntryRecord) -> str:
    """Returns an access control entry."""
    return (
        f"StandardAcl[resourceType={ResourceType(acl.resource_type).name}, resourceName={acl.resource_name}, "
        f"patternType={PatternType(acl.pattern_type).name}, principal={acl.principal}, host={acl.host}, "
        f"operation={AclOperation(acl.operation).name}, "
        f"permissionType={AclPermissionType(acl.permission_type).name}]"
    )


def scram_text(credential: UserScramCredentialRecord) -> str:
    """Returns a SCRAM credential. Who may read the metadata may read its keys, as in Kafka's shell."""
    return (
        f"ScramCredentialData(salt={bytes(credential.salt).hex()}, "
        f"storedKey={bytes(credential.stored_key).hex()}, serverKey={bytes(credential.server_key).hex()}, "
        f"iterations={credential.iterations})"
    )


def token_text(token: DelegationTokenRecord) -> str:
    """Returns a delegation token. The brackets are those of Kafka's DelegationTokenDataNode."""
    return (
        f"DelegationTokenDatatokenId={token.token_id}(owner={token.owner}(tokenRequester={token.requester}"
        f"(renewers={' '.join(token.renewers)}, issueTimestamp={token.issue_timestamp}, "
        f"maxTimestamp={token.max_timestamp}), expiryTimestamp={token.expiration_timestamp}"
    )


def double_text(value: float) -> str:
    """Returns a number as Java prints a double: with an exponent below 0.001 and from ten million on."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    if not isinstance(exponent, int):  # NaN and infinities
        return {"NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity"}[str(Decimal(repr(value)))]
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent + len(digits) - 1}"


def _listeners(listeners: Iterable[Endpoint]) -> str:
    found = [
        f"Endpoint(listenerName='{e.name}', securityProtocol={PROTOCOLS.get(e.security_protocol)}, "
        f"host='{e.host}', port={e.port})"
        for e in sorted(listeners, key=lambda e: e.name)
    ]
    return f"listeners={_list(found)}"


def _features(features: Mapping[str, tuple[int, int]]) -> str:
    found = [f"{name}: {_range(*features[name])}" for name in sorted(features)]
    return f"supportedFeatures={{{', '.join(found)}}}"


def _range(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low}+" if high == _MAX_SHORT else f"{low}-{high}"


def _list(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _optional(value: str | None) -> str:
    return "Optional.empty" if value is None else f"Optional[{value}]"


def _bool(value: bool) -> str:
    return "true" if value else "false"
