"""Rules of delegation tokens (KIP-48, KIP-373, KIP-900).

The HMAC of a token is its secret and is never in the log. It is computed from the token id and
delegation.token.secret.key.
"""

from __future__ import annotations

import hmac

from quorate.controller.context import Context, View
from quorate.metadata.features import FIRST_TOKENS
from quorate.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.schema import Data

FOREVER = 2**63 - 1
USER_TYPE = "User"


def token_hmac(secret: str, token_id: str) -> bytes:
    """The HMAC of a token."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def expired_tokens(view: View, now_ms: int, limit: int) -> list[Data]:
    """The removals of expired tokens, at most `limit` at a time."""
    records: list[Data] = []
    for token in view.image.delegation_tokens.tokens.values():
        if token.max_timestamp < now_ms or token.expiration_timestamp < now_ms:
            records.append(RemoveDelegationTokenRecord(token_id=token.token_id))
            if len(records) >= limit:
                break
    return records


def require_secret_key(view: View) -> str:
    """The secret key of this node. Raises an error if tokens are disabled or not supported."""
    if view.config.token_secret is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if view.metadata_version < FIRST_TOKENS:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return view.config.token_secret


def find_token(view: View, given: bytes, ctx: Context) -> DelegationTokenRecord:
    """The token with this HMAC. Raises an error if there is none or if the client is neither its owner
    nor a renewer."""
    secret = require_secret_key(view)
    for token in view.image.delegation_tokens.tokens.values():
        if hmac.compare_digest(token_hmac(secret, token.token_id), given):
            if ctx.principal != token.owner and ctx.principal not in token.renewers:
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
            return token
    raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def check_not_expired(token: DelegationTokenRecord, ctx: Context) -> None:
    """Raises DELEGATION_TOKEN_EXPIRED if the token has expired."""
    if token.max_timestamp < ctx.now_ms or token.expiration_timestamp < ctx.now_ms:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def with_expiry(token: DelegationTokenRecord, expiry: int) -> DelegationTokenRecord:
    """A copy of the token's record with another expiry. Records in an image are never modified."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expiry,
        token_id=token.token_id,
    )
