"""UpdateFeatures, API key 57.

Versions
  0  flexible (KIP-482) from the first
  1  kinds of downgrade, validation only; request gains feature_updates.upgrade_type, validate_only; request
     loses feature_updates.allow_downgrade
  2  one result for all; response loses results
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class UpdateFeaturesRequest(
    Request, key=57, versions="0-2", flexible="0+", listeners={"broker", "controller"}
):
    """Raises or lowers finalized feature levels. KIP-584."""

    class FeatureUpdateKey(Struct):
        feature: str = ""
        max_version_level: int16 = 0
        allow_downgrade: bool = field(default=False, versions="0")
        upgrade_type: int8 = field(default=1, versions="1+")

    timeout_ms: int32 = 60000
    feature_updates: list[FeatureUpdateKey] = field(default_factory=list)
    validate_only: bool = field(default=False, versions="1+")


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    class UpdatableFeatureResult(Struct):
        feature: str = ""
        error_code: int16 = 0
        error_message: str | None = ""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    results: list[UpdatableFeatureResult] = field(default_factory=list, versions="0-1", ignorable=True)
