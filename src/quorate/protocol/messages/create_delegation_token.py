"""CreateDelegationToken, API key 38.

Versions
  1  the oldest
  2  flexible (KIP-482)
  3  in the name of another owner (KIP-373); request gains owner_principal_type, owner_principal_name;
     response gains token_requester_principal_type, token_requester_principal_name
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class CreateDelegationTokenRequest(
    Request, key=38, versions="1-3", flexible="2+", listeners={"broker", "controller"}
):
    """Creates a delegation token."""

    class CreatableRenewers(Struct):
        principal_type: str = ""
        principal_name: str = ""

    owner_principal_type: str | None = field(default="", versions="3+")
    owner_principal_name: str | None = field(default="", versions="3+")
    renewers: list[CreatableRenewers] = field(default_factory=list)
    max_lifetime_ms: int64 = 0


class CreateDelegationTokenResponse(Response, key=38, versions="1-3", flexible="2+"):
    error_code: int16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = field(default="", versions="3+")
    token_requester_principal_name: str = field(default="", versions="3+")
    issue_timestamp_ms: int64 = 0
    expiry_timestamp_ms: int64 = 0
    max_timestamp_ms: int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: int32 = 0
