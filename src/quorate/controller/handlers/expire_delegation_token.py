"""ExpireDelegationToken (40): KIP-48."""

from __future__ import annotations

from quorate.controller.context import Context, Result, View
from quorate.controller.handlers.delegation_tokens import check_not_expired, find_token, with_expiry
from quorate.metadata.records import RemoveDelegationTokenRecord
from quorate.protocol.errors import KafkaError
from quorate.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


def expire_delegation_token(
    view: View, request: ExpireDelegationTokenRequest, ctx: Context
) -> Result[ExpireDelegationTokenResponse]:
    """Changes the expiry of a token. A negative period removes the token at once, even if it has
    expired."""
    try:
        token = find_token(view, request.hmac, ctx)
        if request.expiry_time_period_ms < 0:
            record = RemoveDelegationTokenRecord(token_id=token.token_id)
            return Result(ExpireDelegationTokenResponse(expiry_timestamp_ms=ctx.now_ms), [record])
        check_not_expired(token, ctx)
    except KafkaError as error:
        return Result(ExpireDelegationTokenResponse(error_code=error.code))
    expiry = min(token.max_timestamp, ctx.now_ms + request.expiry_time_period_ms)
    return Result(ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry), [with_expiry(token, expiry)])
