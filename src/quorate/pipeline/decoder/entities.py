"""The entity columns of each record type, as the decoder by columns finds them."""

from __future__ import annotations

from dataclasses import field
from typing import Final

import numpy as np
import pyarrow as pa

from quorate.dataclass import dataclass
from quorate.metadata import records as r
from quorate.pipeline.datasource.columns import ENTITY_COLUMNS, struct_kind
from quorate.pipeline.decoder.arrays import Bytes, arrow_type, field_array
from quorate.pipeline.decoder.objects import broker_id
from quorate.pipeline.decoder.shape import Fixed, Shape
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.schema import Data


@dataclass(frozen=True, slots=True)
class Entity:
    """The columns that a record type has."""

    fields: dict[str, str] = field(default_factory=dict)
    """Column to the field of the record that has its value."""
    resource_type: str | None = None
    decided_by: str | None = None
    """The int8 field that decides which columns there are. Records with different values of it are decoded
    apart."""


_PARTITION: Final = Entity({"topic_id": "topic_id", "partition": "partition_id"})
_BROKER: Final = Entity({"broker_id": "broker_id"})
_CONTROLLER: Final = Entity({"broker_id": "controller_id"})
_FENCING: Final = Entity({"broker_id": "id"})
_USER: Final = Entity({"resource_name": "name"}, "USER")
_TOKEN: Final = Entity({"resource_name": "token_id"}, "DELEGATION_TOKEN")
_ACL: Final = Entity({"resource_name": "id"}, "ACL")

ENTITIES: Final[dict[type[Data], Entity]] = {
    r.TopicRecord: Entity({"topic_id": "topic_id", "topic_name": "name"}),
    r.RemoveTopicRecord: Entity({"topic_id": "topic_id"}),
    r.ClearElrRecord: Entity({"topic_name": "topic_name"}),
    r.PartitionRecord: _PARTITION,
    r.PartitionChangeRecord: _PARTITION,
    r.ConfigRecord: Entity(
        {"resource_name": "resource_name", "key": "name", "value": "value"}, decided_by="resource_type"
    ),
    r.FeatureLevelRecord: Entity({"key": "name", "value": "feature_level"}),
    r.RegisterBrokerRecord: _BROKER,
    r.UnregisterBrokerRecord: _BROKER,
    r.BrokerRegistrationChangeRecord: _BROKER,
    r.ProducerIdsRecord: _BROKER,
    r.FenceBrokerRecord: _FENCING,
    r.UnfenceBrokerRecord: _FENCING,
    r.RegisterControllerRecord: _CONTROLLER,
    r.UnregisterControllerRecord: _CONTROLLER,
    r.UserScramCredentialRecord: _USER,
    r.RemoveUserScramCredentialRecord: _USER,
    r.DelegationTokenRecord: _TOKEN,
    r.RemoveDelegationTokenRecord: _TOKEN,
    r.AccessControlEntryRecord: _ACL,
    r.RemoveAccessControlEntryRecord: _ACL,
    r.NoOpRecord: Entity(),
    r.BeginTransactionRecord: Entity(),
    r.EndTransactionRecord: Entity(),
    r.AbortTransactionRecord: Entity(),
    r.ZkMigrationStateRecord: Entity(),
}
"""ClientQuotaRecord is not in it: its columns are texts of several of its fields."""


def deciding_position(cls: type[Data], shape: Shape) -> int | None:
    """The position of the byte that decides which columns a record has, or None."""
    name = ENTITIES[cls].decided_by
    if name is None:
        return None
    part = shape.fields[name]
    assert isinstance(part, Fixed)
    return part.at


def entity_arrays(
    cls: type[Data], shape: Shape, records: Bytes, columns: tuple[str, ...]
) -> dict[str, pa.Array]:
    """The entity columns among `columns` that records of a shape have. The byte at `deciding_position` must
    be the same in all of them."""
    entity = ENTITIES[cls]
    found = {
        column: _field(cls, shape, records, column, name)
        for column, name in entity.fields.items()
        if column in columns
    }
    resource_type = entity.resource_type
    at = deciding_position(cls, shape)
    if at is not None:
        resource_type = ConfigResourceType.name_of(int(records[0, at].astype(np.int8)))
        if resource_type == "TOPIC" and "topic_name" in columns:
            found["topic_name"] = _field(cls, shape, records, "topic_name", "resource_name")
        elif resource_type == "BROKER" and "broker_id" in columns:
            names = _field(cls, shape, records, "resource_name", "resource_name").to_pylist()
            found["broker_id"] = pa.array([broker_id(name) for name in names], pa.int32())
    if resource_type is not None and "resource_type" in columns:
        found["resource_type"] = pa.repeat(pa.scalar(resource_type), len(records))
    return found


def _field(cls: type[Data], shape: Shape, records: Bytes, column: str, name: str) -> pa.Array:
    kind = dict(struct_kind(cls, cls).fields)[name]
    return field_array(shape.fields[name], records, kind).cast(arrow_type(ENTITY_COLUMNS[column]))
