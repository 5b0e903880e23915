"""RenewDelegationToken (39): KIP-48."""

from __future__ import annotations

from quorate.controller.context import Context, Result, View
from quorate.controller.handlers.delegation_tokens import check_not_expired, find_token, with_expiry
from quorate.protocol.errors import KafkaError
from quorate.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


def renew_delegation_token(
    view: View, request: RenewDelegationTokenRequest, ctx: Context
) -> Result[RenewDelegationTokenResponse]:
    """Extends the expiry of a token."""
    try:
        token = find_token(view, request.hmac, ctx)
        check_not_expired(token, ctx)
    except KafkaError as error:
        return Result(RenewDelegationTokenResponse(error_code=error.code))
    period = view.config.token_renew_lifetime_ms
    if request.renew_period_ms > 0:
        period = min(period, request.renew_period_ms)
    expiry = min(token.max_timestamp, ctx.now_ms + period)
    return Result(RenewDelegationTokenResponse(expiry_timestamp_ms=expiry), [with_expiry(token, expiry)])
