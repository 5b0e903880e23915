"""Metadata records of old releases, which kafka-dump-log prints and nodes reject.

They are the records of Kafka 2.8 (frame version 0), and two types of KIP-631 that were removed later:
AccessControlRecord (6) and FailedReplicasRecord (13), which no release wrote.

In 2.8 most of them were not flexible; the field types are those of that release.
"""

from __future__ import annotations

from typing import Final

from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import FRAME_VERSION, read_uvarint
from quorate.metadata.json import dump_json, record_json
from quorate.protocol.schema import (
    ZERO_UUID,
    Data,
    Struct,
    field,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint16,
    uuid,
)

LEGACY_FRAME: Final = 0


class RegisterBrokerRecord(Data, key=0, versions="0"):
    """As in 2.8, without fencing state and directories."""

    class BrokerEndpoint(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0
        security_protocol: int16 = 0

    class BrokerFeature(Struct):
        name: str = ""
        min_supported_version: int16 = 0
        max_supported_version: int16 = 0

    broker_id: int32 = 0
    incarnation_id: uuid = ZERO_UUID
    broker_epoch: int64 = 0
    end_points: list[BrokerEndpoint] = field(default_factory=list)
    features: list[BrokerFeature] = field(default_factory=list)
    rack: str | None = None


class UnregisterBrokerRecord(Data, key=1, versions="0"):
    """The record as of Kafka 2.8."""

    broker_id: int32 = 0
    broker_epoch: int64 = 0


class TopicRecord(Data, key=2, versions="0"):
    """The record as of Kafka 2.8."""

    name: str = ""
    topic_id: uuid = ZERO_UUID


class PartitionRecord(Data, key=3, versions="0"):
    """As in 2.8, where the reassignment lists may be null."""

    partition_id: int32 = -1
    topic_id: uuid = ZERO_UUID
    replicas: list[int32] = field(default_factory=list)
    isr: list[int32] = field(default_factory=list)
    removing_replicas: list[int32] | None = None
    adding_replicas: list[int32] | None = None
    leader: int32 = -1
    leader_epoch: int32 = -1
    partition_epoch: int32 = -1


class ConfigRecord(Data, key=4, versions="0"):
    """As in 2.8, where a value is never null."""

    resource_type: int8 = 0
    resource_name: str = ""
    name: str = ""
    value: str = ""


class PartitionChangeRecord(Data, key=5, versions="0", flexible="0+"):
    """The record as of Kafka 2.8."""

    partition_id: int32 = -1
    topic_id: uuid = ZERO_UUID
    isr: list[int32] | None = field(default=None, tag=0)
    leader: int32 = field(default=-2, tag=1)


class AccessControlRecord(Data, key=6, versions="0", flexible="0+"):
    """An access control entry without an id. AccessControlEntryRecord replaced it."""

    resource_type: int8 = 0
    resource_name: str | None = None
    pattern_type: int8 = 0
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


class FenceBrokerRecord(Data, key=7, versions="0"):
    """The record as of Kafka 2.8."""

    id: int32 = 0
    epoch: int64 = 0


class UnfenceBrokerRecord(Data, key=8, versions="0"):
    """The record as of Kafka 2.8."""

    id: int32 = 0
    epoch: int64 = 0


class RemoveTopicRecord(Data, key=9, versions="0"):
    """The record as of Kafka 2.8."""

    topic_id: uuid = ZERO_UUID


class DelegationTokenRecord(Data, key=10, versions="0"):
    """As in 2.8, without the requester."""

    owner: str = ""
    renewers: list[str] = field(default_factory=list)
    issue_timestamp: int64 = 0
    max_timestamp: int64 = 0
    expiration_timestamp: int64 = 0
    token_id: str = ""


class UserScramCredentialRecord(Data, key=11, versions="0"):
    """As in 2.8, with all credentials of a user in one record."""

    class CredentialInfo(Struct):
        mechanism: int8 = 0
        salt: bytes = b""
        salted_password: bytes = b""
        iterations: int32 = 0

    name: str = ""
    credential_infos: list[CredentialInfo] = field(default_factory=list)


class FeatureLevelRecord(Data, key=12, versions="0"):
    """As in 2.8, with a range of levels."""

    name: str = ""
    min_feature_level: int16 = 0
    max_feature_level: int16 = 0


class FailedReplicasRecord(Data, key=13, versions="0"):
    """As in KIP-631: a broker reports failed replicas of a topic."""

    broker_id: int32 = 0
    topic: uuid = ZERO_UUID


class QuotaRecord(Data, key=14, versions="0"):
    """The name of ClientQuotaRecord in 2.8."""

    class EntityData(Struct):
        entity_type: str = ""
        entity_name: str | None = None

    entity: list[EntityData] = field(default_factory=list)
    key: str = ""
    value: float64 = 0.0
    remove: bool = False


_LEGACY: Final[dict[int, type[Data]]] = {
    cls.KEY: cls
    for cls in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        AccessControlRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        FailedReplicasRecord,
        QuotaRecord,
    )
}
_REMOVED: Final[dict[int, type[Data]]] = {6: AccessControlRecord, 13: FailedReplicasRecord}


def legacy_text(value: bytes) -> str | None:
    """Returns the JSON of an old record, or None for any other. Raises DecodeError for a malformed one."""
    try:
        frame, position = read_uvarint(value, 0, "frame version")
        kind, position = read_uvarint(value, position, "record type")
        version, position = read_uvarint(value, position, "record version")
    except MetadataError:
        return None
    known = _LEGACY if frame == LEGACY_FRAME else _REMOVED if frame == FRAME_VERSION else {}
    cls = known.get(kind)
    if cls is None or version != 0:
        return None
    return dump_json(record_json(cls.decode(memoryview(value)[position:], version), version))
