"""Requests that every controller answers, active or not, from committed metadata.

Also the restrictions on requests that a client sends to a controller directly instead of through a
broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_modules
from quorate.net.dispatch import SecurityProtocol
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.schema import Response
from quorate.security.unenforced_apis import refuse_acls, refuse_quotas, token_refusal

if TYPE_CHECKING:
    from quorate.controller.handlers import describe_acls, describe_cluster, describe_configs
    from quorate.controller.state import ControllerState
    from quorate.net.dispatch import Handler, RequestContext
else:
    describe_acls, describe_cluster, describe_configs = lazy_modules(
        "quorate.controller.handlers", "describe_acls", "describe_cluster", "describe_configs"
    )


def read_routes(state: ControllerState, submit: Callable[[RequestContext, Any], Any]) -> dict[int, Handler]:
    """The handlers by API key. `submit` handles the requests that change metadata."""

    def cluster(ctx: RequestContext, request: Any) -> Response:
        leader = state.raft.leader_and_epoch.leader_id
        return describe_cluster.describe_cluster(
            state.image,
            request,
            ctx.api_version,
            ctx.listener,
            state.config.cluster_id,
            -1 if leader is None else leader,
        )

    def configs(ctx: RequestContext, request: Any) -> Response:
        return describe_configs.describe_configs(state.image, request, state.config)

    def acls(ctx: RequestContext, request: Any) -> Response:
        if not state.config.authorizer:
            refuse_acls()
        return describe_acls.describe_acls(state.image.acls, request)

    def quotas(ctx: RequestContext, request: Any) -> Any:
        """Rejects quotas that this cluster does not enforce. Requests in an Envelope are not checked
        here, since the quotas are enforced, or not, by the broker that forwards them."""
        refuse_quotas(request)
        return submit(ctx, request)

    def tokens(ctx: RequestContext, request: Any) -> Any:
        """Rejects requests for delegation tokens of clients that are not authenticated."""
        if ctx.security_protocol == SecurityProtocol.PLAINTEXT:
            code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            return token_refusal(request, code, ctx.principal, ctx.api_version)
        return submit(ctx, request)

    return {
        ApiKey.DESCRIBE_CLUSTER: cluster,
        ApiKey.DESCRIBE_CONFIGS: configs,
        ApiKey.DESCRIBE_ACLS: acls,
        ApiKey.ALTER_CLIENT_QUOTAS: quotas,
        ApiKey.CREATE_DELEGATION_TOKEN: tokens,
        ApiKey.RENEW_DELEGATION_TOKEN: tokens,
        ApiKey.EXPIRE_DELEGATION_TOKEN: tokens,
    }
