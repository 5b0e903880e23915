"""BrokerRegistration, API key 62.

Versions
  0  flexible (KIP-482) from the first
  1  migration from ZooKeeper (KIP-866); request gains is_migrating_zk_broker
  2  log directories (KIP-858); request gains log_dirs
  3  the epoch before, after a clean shutdown (KIP-966); request gains previous_broker_epoch
  4  features may begin at level 0
"""

from __future__ import annotations

from quorate.protocol import our_tags
from quorate.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    field,
    int16,
    int32,
    int64,
    uint16,
    uuid,
)


class BrokerRegistrationRequest(Request, key=62, versions="0-4", flexible="0+", listeners={"controller"}):
    """Announces a broker to the controller and obtains its broker epoch. KIP-631."""

    class Listener(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0
        security_protocol: int16 = 0

    class Feature(Struct):
        name: str = ""
        min_supported_version: int16 = 0
        max_supported_version: int16 = 0

    broker_id: int32 = 0
    cluster_id: str = ""
    incarnation_id: uuid = ZERO_UUID
    listeners: list[Listener] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)
    rack: str | None = ""
    is_migrating_zk_broker: bool = field(default=False, versions="1+")
    log_dirs: list[uuid] = field(default_factory=list, versions="2+", ignorable=True)
    previous_broker_epoch: int64 = field(default=-1, versions="3+", ignorable=True)
    start_time_ms: int64 = field(default=0, tag=our_tags.START_TIME_MS, ignorable=True)


class BrokerRegistrationResponse(Response, key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    broker_epoch: int64 = -1
