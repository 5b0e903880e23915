"""ControllerRegistration, API key 70.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, uint16, uuid


class ControllerRegistrationRequest(Request, key=70, versions="0", flexible="0+", listeners={"controller"}):
    """Announces a controller, its listeners and features, to the active one. KIP-919."""

    class Listener(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0
        security_protocol: int16 = 0

    class Feature(Struct):
        name: str = ""
        min_supported_version: int16 = 0
        max_supported_version: int16 = 0

    controller_id: int32 = 0
    incarnation_id: uuid = ZERO_UUID
    zk_migration_ready: bool = False
    listeners: list[Listener] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)


class ControllerRegistrationResponse(Response, key=70, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
