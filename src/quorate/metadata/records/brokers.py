"""Records about brokers and controllers."""

from __future__ import annotations

from quorate.protocol import our_tags
from quorate.protocol.schema import ZERO_UUID, Data, Struct, field, int8, int16, int32, int64, uint16, uuid


class RegisterBrokerRecord(Data, key=0, versions="0-3", flexible="0+"):
    """Registers a broker. Its broker epoch is the offset of this record.

    Versions: 1 adds in_controlled_shutdown; 2 adds is_migrating_zk_broker; 3 adds log_dirs.
    """

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
    is_migrating_zk_broker: bool = field(default=False, versions="2+")
    incarnation_id: uuid = ZERO_UUID
    broker_epoch: int64 = 0
    end_points: list[BrokerEndpoint] = field(default_factory=list)
    features: list[BrokerFeature] = field(default_factory=list)
    rack: str | None = ""
    fenced: bool = True
    in_controlled_shutdown: bool = field(default=False, versions="1+")
    log_dirs: list[uuid] = field(default_factory=list, versions="3+", tag=0)
    start_time_ms: int64 = field(default=0, tag=our_tags.START_TIME_MS, ignorable=True)


class UnregisterBrokerRecord(Data, key=1, versions="0", flexible="0+"):
    """Removes the registration of a broker."""

    broker_id: int32 = 0
    broker_epoch: int64 = 0


class FenceBrokerRecord(Data, key=7, versions="0", flexible="0+"):
    """Fences a broker. Replaced by BrokerRegistrationChangeRecord, which is written instead."""

    id: int32 = 0
    epoch: int64 = 0


class UnfenceBrokerRecord(Data, key=8, versions="0", flexible="0+"):
    """Unfences a broker. Replaced by BrokerRegistrationChangeRecord, which is written instead."""

    id: int32 = 0
    epoch: int64 = 0


class BrokerRegistrationChangeRecord(Data, key=17, versions="0-2", flexible="0+"):
    """Changes parts of a registration. `fenced` is 1 to fence and -1 to unfence.
    `in_controlled_shutdown` is 1 to begin a controlled shutdown (version 1). `log_dirs` replaces the
    log directories unless it is empty (version 2)."""

    class BrokerEndpoint(Struct):
        """An endpoint as in RegisterBrokerRecord. Kafka's record does not have this field."""

        name: str = ""
        host: str = ""
        port: uint16 = 0
        security_protocol: int16 = 0

    broker_id: int32 = 0
    broker_epoch: int64 = 0
    fenced: int8 = field(default=0, tag=0)
    in_controlled_shutdown: int8 = field(default=0, versions="1+", tag=1)
    log_dirs: list[uuid] = field(default_factory=list, versions="2+", tag=2)
    end_points: list[BrokerEndpoint] | None = field(
        default=None, tag=our_tags.CHANGED_END_POINTS, ignorable=True
    )


class RegisterControllerRecord(Data, key=27, versions="0", flexible="0+"):
    """Registers a controller with its listeners and features. KIP-919."""

    class ControllerEndpoint(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0
        security_protocol: int16 = 0

    class ControllerFeature(Struct):
        name: str = ""
        min_supported_version: int16 = 0
        max_supported_version: int16 = 0

    controller_id: int32 = 0
    incarnation_id: uuid = ZERO_UUID
    zk_migration_ready: bool = False
    end_points: list[ControllerEndpoint] = field(default_factory=list)
    features: list[ControllerFeature] = field(default_factory=list)


class UnregisterControllerRecord(Data, key=29, versions="0", flexible="0+"):
    """Removes the registration of a controller. KIP-1312."""

    controller_id: int32 = 0
