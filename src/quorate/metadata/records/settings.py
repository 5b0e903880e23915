"""Records about configuration, features, quotas and producer ids."""

from __future__ import annotations

from quorate.protocol.schema import Data, Struct, field, float64, int8, int16, int32, int64


class ConfigRecord(Data, key=4, versions="0", flexible="0+"):
    """One configuration value of a resource; null removes it."""

    resource_type: int8 = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""


class FeatureLevelRecord(Data, key=12, versions="0", flexible="0+"):
    """A feature was finalized at a level; 0 removes it. KIP-584."""

    name: str = ""
    feature_level: int16 = 0


class ClientQuotaRecord(Data, key=14, versions="0", flexible="0+"):
    """One quota of an entity. KIP-546."""

    class EntityData(Struct):
        entity_type: str = ""
        entity_name: str | None = ""

    entity: list[EntityData] = field(default_factory=list)
    key: str = ""
    value: float64 = 0.0
    remove: bool = False


class ProducerIdsRecord(Data, key=15, versions="0", flexible="0+"):
    """A block of producer ids was given to a broker: all below the next one are taken. KIP-730."""

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    next_producer_id: int64 = 0
