"""DescribeDelegationToken, API key 41.

Versions
  1  the oldest
  2  flexible (KIP-482)
  3  response gains tokens.token_requester_principal_type, tokens.token_requester_principal_name
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class DescribeDelegationTokenRequest(
    Request, key=41, versions="1-3", flexible="2+", listeners={"broker", "controller"}
):
    """Describes the delegation tokens of these owners. Null asks for those of all owners."""

    class DescribeDelegationTokenOwner(Struct):
        principal_type: str = ""
        principal_name: str = ""

    owners: list[DescribeDelegationTokenOwner] | None = field(default_factory=list)


class DescribeDelegationTokenResponse(Response, key=41, versions="1-3", flexible="2+"):
    class DescribedDelegationTokenRenewer(Struct):
        principal_type: str = ""
        principal_name: str = ""

    class DescribedDelegationToken(Struct):
        principal_type: str = ""
        principal_name: str = ""
        token_requester_principal_type: str = field(default="", versions="3+")
        token_requester_principal_name: str = field(default="", versions="3+")
        issue_timestamp: int64 = 0
        expiry_timestamp: int64 = 0
        max_timestamp: int64 = 0
        token_id: str = ""
        hmac: bytes = b""
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = field(
            default_factory=list
        )

    error_code: int16 = 0
    tokens: list[DescribedDelegationToken] = field(default_factory=list)
    throttle_time_ms: int32 = 0
