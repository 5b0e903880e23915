"""AlterUserScramCredentials, API key 51.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class AlterUserScramCredentialsRequest(
    Request, key=51, versions="0", flexible="0+", listeners={"broker", "controller"}
):
    """Sets and removes SCRAM credentials."""

    class ScramCredentialDeletion(Struct):
        name: str = ""
        mechanism: int8 = 0

    class ScramCredentialUpsertion(Struct):
        name: str = ""
        mechanism: int8 = 0
        iterations: int32 = 0
        salt: bytes = b""
        salted_password: bytes = b""

    deletions: list[ScramCredentialDeletion] = field(default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = field(default_factory=list)


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    class AlterUserScramCredentialsResult(Struct):
        user: str = ""
        error_code: int16 = 0
        error_message: str | None = ""

    throttle_time_ms: int32 = 0
    results: list[AlterUserScramCredentialsResult] = field(default_factory=list)
