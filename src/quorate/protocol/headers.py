"""The headers before the bodies of requests and responses."""

from __future__ import annotations

from quorate.protocol.schema import Data, field, int16, int32


class RequestHeader(Data, versions="0-2", flexible="2+"):
    """Version 1 adds the client id. Version 2, for flexible requests, adds tagged fields, and the client id
    keeps its int16 length.
    """

    request_api_key: int16 = 0
    request_api_version: int16 = 0
    correlation_id: int32 = 0
    client_id: str | None = field(default="", versions="1+", ignorable=True, flexible=False)


class ResponseHeader(Data, versions="0-1", flexible="1+"):
    """Version 1, for flexible responses, adds tagged fields."""

    correlation_id: int32 = 0
