"""Delegation tokens (KIP-48, KIP-373, KIP-900): create, renew, expire, and the sweep of those that ran out.

The secret of a token, its HMAC, is never in the log: it is computed from the token id and delegation.token.secret.key.
"""

from __future__ import annotations

import hmac

from quorate.controller.context import Context, Result, View
from quorate.metadata.features import FIRST_TOKENS
from quorate.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from quorate.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from quorate.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from quorate.protocol.schema import Data
from quorate.protocol.uuids import uuid_text

_FOREVER = 2**63 - 1
USER_TYPE = "User"


def token_hmac(secret: str, token_id: str) -> bytes:
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def create_delegation_token(
    view: View, request: CreateDelegationTokenRequest, ctx: Context
) -> Result[CreateDelegationTokenResponse]:
    """Errors are told in the response's own field, which also names owner and requester."""
    requester = ctx.principal
    owner = requester
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
    response = CreateDelegationTokenResponse()
    response.principal_type, _, response.principal_name = owner.partition(":")
    if ctx.api_version >= 3:
        kind, _, name = requester.partition(":")
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    try:
        secret = _secret(view)
        if owner.startswith(":") or any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    except KafkaError as error:
        response.error_code = error.code
        return Result(response)
    lifetime = view.config.token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime = min(lifetime, request.max_lifetime_ms)
    latest = min(_FOREVER, ctx.now_ms + lifetime)
    expiry = min(latest, ctx.now_ms + view.config.token_renew_lifetime_ms)
    token_id = uuid_text(ctx.uuid())
    record = DelegationTokenRecord(
        owner=owner,
        requester=requester,
        renewers=[f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
        issue_timestamp=ctx.now_ms,
        max_timestamp=latest,
        expiration_timestamp=expiry,
        token_id=token_id,
    )
    response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms = ctx.now_ms, expiry, latest
    response.token_id = token_id
    response.hmac = token_hmac(secret, token_id)
    return Result(response, [record])


def renew_delegation_token(
    view: View, request: RenewDelegationTokenRequest, ctx: Context
) -> Result[RenewDelegationTokenResponse]:
    try:
        token = _token(view, request.hmac, ctx)
        _check_not_expired(token, ctx)
    except KafkaError as error:
        return Result(RenewDelegationTokenResponse(error_code=error.code))
    period = view.config.token_renew_lifetime_ms
    if request.renew_period_ms > 0:
        period = min(period, request.renew_period_ms)
    expiry = min(token.max_timestamp, ctx.now_ms + period)
    return Result(RenewDelegationTokenResponse(expiry_timestamp_ms=expiry), [_expiring(token, expiry)])


def expire_delegation_token(
    view: View, request: ExpireDelegationTokenRequest, ctx: Context
) -> Result[ExpireDelegationTokenResponse]:
    """A negative period removes the token at once, an expired one too."""
    try:
        token = _token(view, request.hmac, ctx)
        if request.expiry_time_period_ms < 0:
            record = RemoveDelegationTokenRecord(token_id=token.token_id)
            return Result(ExpireDelegationTokenResponse(expiry_timestamp_ms=ctx.now_ms), [record])
        _check_not_expired(token, ctx)
    except KafkaError as error:
        return Result(ExpireDelegationTokenResponse(error_code=error.code))
    expiry = min(token.max_timestamp, ctx.now_ms + request.expiry_time_period_ms)
    return Result(ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry), [_expiring(token, expiry)])


def expired_tokens(view: View, now_ms: int, limit: int) -> list[Data]:
    """Removals of tokens that ran out, at most `limit` in one sweep."""
    records: list[Data] = []
    for token in view.image.delegation_tokens.tokens.values():
        if token.max_timestamp < now_ms or token.expiration_timestamp < now_ms:
            records.append(RemoveDelegationTokenRecord(token_id=token.token_id))
            if len(records) >= limit:
                break
    return records


def _secret(view: View) -> str:
    if view.config.token_secret is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if view.metadata_version < FIRST_TOKENS:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return view.config.token_secret


def _token(view: View, given: bytes, ctx: Context) -> DelegationTokenRecord:
    secret = _secret(view)
    for token in view.image.delegation_tokens.tokens.values():
        if hmac.compare_digest(token_hmac(secret, token.token_id), given):
            if ctx.principal != token.owner and ctx.principal not in token.renewers:
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
            return token
    raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def _check_not_expired(token: DelegationTokenRecord, ctx: Context) -> None:
    if token.max_timestamp < ctx.now_ms or token.expiration_timestamp < ctx.now_ms:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _expiring(token: DelegationTokenRecord, expiry: int) -> DelegationTokenRecord:
    """The token with another expiry; records in an image are never changed."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expiry,
        token_id=token.token_id,
    )
