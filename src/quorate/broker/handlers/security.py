"""The APIs of security and quotas: DescribeAcls (29), delegation tokens (38 to 41), DescribeClientQuotas
(48), AlterClientQuotas (49) and DescribeUserScramCredentials (50).

Without an authorizer there are no ACLs, and DescribeAcls returns SECURITY_DISABLED. Delegation
tokens need an authenticated client, which a plaintext listener does not have. Client quotas of
users and client ids are not enforced, and AlterClientQuotas can only remove them.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from quorate.net.dispatch import SecurityProtocol
from quorate.net.turns import Rounds
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.describe_acls import DescribeAclsResponse
from quorate.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from quorate.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
)
from quorate.security.client_quota import ENTITY_TYPES, IP
from quorate.security.unenforced_apis import refuse_quotas, token_refusal

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext

AT_ONCE = 200
"""Users that are described in one turn of the event loop."""

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_TOKEN_KEYS = (
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)


def describe_acls(_services: Services, _context: RequestContext, _request: Any) -> Any:
    """Answers SECURITY_DISABLED, as there is no authorizer."""
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )


def tokens(services: Services, context: RequestContext, request: Any) -> Any:
    """Rejects requests about delegation tokens in Kafka's order: first because of the connection, then
    because tokens are disabled."""
    if context.security_protocol == SecurityProtocol.PLAINTEXT or context.token_authenticated:
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return token_refusal(request, code, context.principal, context.api_version)
    if request.KEY != ApiKey.DESCRIBE_DELEGATION_TOKEN:
        return services.channel.forward(context, request)
    return token_refusal(
        request, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, context.principal, context.api_version
    )


def alter_quotas(services: Services, context: RequestContext, request: Any) -> Any:
    """Forwards a request, unless it sets a quota that is not enforced: then it raises."""
    refuse_quotas(request)
    return services.channel.forward(context, request)


def describe_quotas(services: Services, _context: RequestContext, request: Any) -> Any:
    """Describes the quotas whose entity matches every component of the filter (KIP-546)."""
    exact: dict[str, str | None] = {}
    any_name: set[str] = set()
    for part in request.components:
        _check_component(part, exact, any_name)
        if part.match_type == _SPECIFIED:
            any_name.add(part.entity_type)
        else:
            exact[part.entity_type] = part.match
    asked = exact.keys() | any_name
    if IP in asked and len(asked) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component.",
        )
    response = DescribeClientQuotasResponse()
    assert response.entries is not None
    for entity, values in services.metadata.image.client_quotas.entities.items():
        names = dict(entity)
        if request.strict and len(names) != len(asked):
            continue
        if not any_name <= names.keys() or any(names.get(kind, "") != name for kind, name in exact.items()):
            continue
        if not exact.keys() <= names.keys():
            continue
        response.entries.append(
            DescribeClientQuotasResponse.EntryData(
                entity=[
                    DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
                values=[
                    DescribeClientQuotasResponse.ValueData(key=key, value=value)
                    for key, value in sorted(values.items())
                ],
            )
        )
    return response


def _check_component(part: Any, exact: dict[str, str | None], any_name: set[str]) -> None:
    kind = part.entity_type
    if not kind:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
    if kind in exact or kind in any_name:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
        )
    if kind not in ENTITY_TYPES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    if part.match_type == _EXACT and part.match is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
        )
    if part.match_type in (_DEFAULT, _SPECIFIED) and part.match is not None:
        name = "DEFAULT" if part.match_type == _DEFAULT else "SPECIFIED"
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Request specified MATCH_TYPE_{name}, but also specified a match string.",
        )
    if part.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {part.match_type}")


def describe_scram(services: Services, rounds: Rounds, _context: RequestContext, request: Any) -> Any:
    """Describes the mechanisms and iterations of users, without their secrets (KIP-554)."""
    credentials: dict[str, dict[int, int]] = {}
    for (mechanism, user), record in services.metadata.image.scram.credentials.items():
        credentials.setdefault(user, {})[mechanism] = record.iterations
    asked = [user.name for user in request.users] if request.users else sorted(credentials)
    counts = Counter(asked)

    def described(name: str) -> DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult:
        result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult(
            user=name, error_message=None
        )
        if counts[name] > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            )
        elif name not in credentials:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
        else:
            result.credential_infos = [
                DescribeUserScramCredentialsResponse.CredentialInfo(
                    mechanism=mechanism, iterations=iterations
                )
                for mechanism, iterations in sorted(credentials[name].items())
            ]
        return result

    return rounds.answer(
        len(counts),
        map(described, counts),
        lambda results: DescribeUserScramCredentialsResponse(error_message=None, results=results),
    )


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {
        int(ApiKey.DESCRIBE_ACLS): lambda context, request: describe_acls(services, context, request),
        int(ApiKey.DESCRIBE_CLIENT_QUOTAS): lambda context, request: describe_quotas(
            services, context, request
        ),
        int(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS): partial(describe_scram, services, Rounds(AT_ONCE)),
        int(ApiKey.ALTER_CLIENT_QUOTAS): lambda context, request: alter_quotas(services, context, request),
        **{int(key): lambda context, request: tokens(services, context, request) for key in _TOKEN_KEYS},
    }
