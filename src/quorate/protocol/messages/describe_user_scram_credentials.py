"""DescribeUserScramCredentials, API key 50.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class DescribeUserScramCredentialsRequest(
    Request, key=50, versions="0", flexible="0+", listeners={"broker", "controller"}
):
    """Shows which SCRAM credentials users have (never the secrets)."""

    class UserName(Struct):
        name: str = ""

    users: list[UserName] | None = field(default_factory=list)


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible="0+"):
    class CredentialInfo(Struct):
        mechanism: int8 = 0
        iterations: int32 = 0

    class DescribeUserScramCredentialsResult(Struct):
        user: str = ""
        error_code: int16 = 0
        error_message: str | None = ""
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = field(
            default_factory=list
        )

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = field(default_factory=list)
