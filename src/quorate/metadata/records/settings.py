"""Records about configuration, features, quotas and producer ids."""

from __future__ import annotations

from quorate.protocol.schema import Data, Struct, field, float64, int8, int16, int32, int64


class ConfigRecord(Data, key=4, versions="0", flexible="0+"):
    """Sets one configuration of a resource, or removes it if the value is null."""

    resource_type: int8 = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""


class FeatureLevelRecord(Data, key=12, versions="0", flexible="0+"):
    """Finalizes a feature at a level, or removes it if the level is 0. KIP-584."""

    name: str = ""
    feature_level: int16 = 0


class ClientQuotaRecord(Data, key=14, versions="0", flexible="0+"):
    """Sets or removes one quota of an entity. KIP-546."""

    class EntityData(Struct):
        entity_type: str = ""
        entity_name: str | None = ""

    entity: list[EntityData] = field(default_factory=list)
    key: str = ""
    value: float64 = 0.0
    remove: bool = False


class ProducerIdsRecord(Data, key=15, versions="0", flexible="0+"):
    """Assigns a block of producer ids to a broker. All ids below `next_producer_id` are assigned.
    KIP-730."""

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    next_producer_id: int64 = 0
