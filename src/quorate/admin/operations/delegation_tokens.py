"""Operations on delegation tokens (KIP-48, KIP-373)."""

from __future__ import annotations

from collections.abc import Sequence

from quorate.admin.errors import check
from quorate.admin.transport import Transport
from quorate.admin.types import DelegationToken, KafkaPrincipal
from quorate.protocol import messages


class DelegationTokenOperations:
    """The admin client's operations on delegation tokens."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def create_delegation_token(
        self,
        *,
        renewers: Sequence[KafkaPrincipal] = (),
        owner: KafkaPrincipal | None = None,
        max_lifetime_ms: int = -1,
    ) -> DelegationToken:
        """Creates a token for an owner (None: for who asks). -1 is the longest lifetime that the cluster
        allows. Raises KafkaError.
        """
        request = messages.CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner.principal_type,
            owner_principal_name=None if owner is None else owner.name,
            renewers=[
                messages.CreateDelegationTokenRequest.CreatableRenewers(
                    principal_type=renewer.principal_type, principal_name=renewer.name
                )
                for renewer in renewers
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        created = await self.transport.call(request, lambda a: check(a.error_code))
        return DelegationToken(
            token_id=created.token_id,
            hmac=bytes(created.hmac),
            owner=KafkaPrincipal(created.principal_type, created.principal_name),
            requester=KafkaPrincipal(
                created.token_requester_principal_type, created.token_requester_principal_name
            ),
            renewers=tuple(renewers),
            issue_timestamp_ms=created.issue_timestamp_ms,
            expiry_timestamp_ms=created.expiry_timestamp_ms,
            max_timestamp_ms=created.max_timestamp_ms,
        )

    async def renew_delegation_token(self, hmac: bytes, *, renew_period_ms: int = -1) -> int:
        """Postpones the expiry of a token and returns its new time in ms since 1970. -1 is the period of the
        cluster. Raises KafkaError.
        """
        request = messages.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms)
        answer = await self.transport.call(request, lambda a: check(a.error_code))
        return int(answer.expiry_timestamp_ms)

    async def expire_delegation_token(self, hmac: bytes, *, expiry_period_ms: int = -1) -> int:
        """Sets when a token expires and returns that time in ms since 1970. A negative period deletes the
        token at once. Raises KafkaError.
        """
        request = messages.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_period_ms)
        answer = await self.transport.call(request, lambda a: check(a.error_code))
        return int(answer.expiry_timestamp_ms)

    async def describe_delegation_tokens(
        self, owners: Sequence[KafkaPrincipal] | None = None
    ) -> list[DelegationToken]:
        """Returns the tokens of owners, or all that may be seen (None). Raises KafkaError."""
        names = None
        if owners is not None:
            names = [
                messages.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(
                    principal_type=owner.principal_type, principal_name=owner.name
                )
                for owner in owners
            ]
        answer = await self.transport.call(
            messages.DescribeDelegationTokenRequest(owners=names), lambda a: check(a.error_code)
        )
        return [
            DelegationToken(
                token_id=token.token_id,
                hmac=bytes(token.hmac),
                owner=KafkaPrincipal(token.principal_type, token.principal_name),
                requester=KafkaPrincipal(
                    token.token_requester_principal_type, token.token_requester_principal_name
                ),
                renewers=tuple(KafkaPrincipal(r.principal_type, r.principal_name) for r in token.renewers),
                issue_timestamp_ms=token.issue_timestamp,
                expiry_timestamp_ms=token.expiry_timestamp,
                max_timestamp_ms=token.max_timestamp,
            )
            for token in answer.tokens
        ]
