"""ApiVersions, API key 18.

Versions
  0  the oldest
  1  response gains throttle_time_ms
  2  the answer is sent before the throttle time is served (KIP-219)
  3  software name and version (KIP-511), features (KIP-584); request gains client_software_name,
     client_software_version; response gains supported_features, finalized_features_epoch, finalized_features,
     zk_migration_ready; flexible (KIP-482)
  4  supported features may begin at level 0; to older versions such features are not shown
  5  the server checks that it is the one that the client means (KIP-1242); request gains cluster_id, node_id
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class ApiVersionsRequest(Request, key=18, versions="0-5", flexible="3+", listeners={"broker", "controller"}):
    """Tells which APIs and versions the listener serves, and the cluster's features. Its response
    always has header version 0, so that any client can read it."""

    client_software_name: str = field(default="", versions="3+", ignorable=True)
    client_software_version: str = field(default="", versions="3+", ignorable=True)
    cluster_id: str | None = field(default=None, versions="5+", ignorable=True)
    node_id: int32 = field(default=-1, versions="5+", ignorable=True)


class ApiVersionsResponse(Response, key=18, versions="0-5", flexible="3+"):
    class ApiVersion(Struct):
        api_key: int16 = 0
        min_version: int16 = 0
        max_version: int16 = 0

    class SupportedFeatureKey(Struct):
        name: str = ""
        min_version: int16 = 0
        max_version: int16 = 0

    class FinalizedFeatureKey(Struct):
        name: str = ""
        max_version_level: int16 = 0
        min_version_level: int16 = 0

    error_code: int16 = 0
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: int32 = field(default=0, versions="1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        default_factory=list, versions="3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int64 = field(default=-1, versions="3+", tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(
        default_factory=list, versions="3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = field(default=False, versions="3+", tag=3, ignorable=True)
