"""Envelope, API key 58.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol import our_tags
from quorate.protocol.schema import ZERO_UUID, Request, Response, field, int16, int64, uuid


class EnvelopeRequest(Request, key=58, versions="0", flexible="0+", listeners={"controller"}):
    """A request that a broker forwards to the controller in the name of a client. KIP-590."""

    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""
    request_id: uuid = field(default=ZERO_UUID, tag=our_tags.FORWARDED_REQUEST_ID, ignorable=True)
    unanswered_attempts: int16 = field(
        default=0, tag=our_tags.FORWARDED_REQUEST_UNANSWERED_ATTEMPTS, ignorable=True
    )


class EnvelopeResponse(Response, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = None
    error_code: int16 = 0
    committed_offset: int64 = field(default=-1, tag=our_tags.COMMITTED_OFFSET, ignorable=True)
