"""CreateDelegationToken (38): KIP-48, KIP-373."""

from __future__ import annotations

from quorate.controller.context import Context, Result, View
from quorate.controller.handlers.delegation_tokens import FOREVER, USER_TYPE, require_secret_key, token_hmac
from quorate.metadata.records import DelegationTokenRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from quorate.protocol.uuids import uuid_text


def create_delegation_token(
    view: View, request: CreateDelegationTokenRequest, ctx: Context
) -> Result[CreateDelegationTokenResponse]:
    """Creates a token. The response names its owner and requester even if it has an error."""
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
        secret = require_secret_key(view)
        if owner.startswith(":") or any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    except KafkaError as error:
        response.error_code = error.code
        return Result(response)
    lifetime = view.config.token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime = min(lifetime, request.max_lifetime_ms)
    latest = min(FOREVER, ctx.now_ms + lifetime)
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
    response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms = (
        ctx.now_ms,
        expiry,
        latest,
    )
    response.token_id = token_id
    response.hmac = token_hmac(secret, token_id)
    return Result(response, [record])
