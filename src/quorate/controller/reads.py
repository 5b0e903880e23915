"""Questions that any controller answers, active or not, from committed metadata; and what a client that
asks a controller itself is refused before it gets to a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quorate.net.dispatch import SecurityProtocol
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.schema import Response
from quorate.security.unenforced import refuse_acls, refuse_quotas, token_refusal

if TYPE_CHECKING:
    from quorate.controller.driver import QuorumController
    from quorate.net.dispatch import Handler, RequestContext


def read_routes(controller: QuorumController) -> dict[int, Handler]:
    def cluster(ctx: RequestContext, request: Any) -> Response:
        from quorate.controller.handlers.describe_cluster import describe_cluster

        leader = controller.raft.leader_and_epoch.leader_id
        return describe_cluster(
            controller.image,
            request,
            ctx.api_version,
            ctx.listener,
            controller.config.cluster_id,
            -1 if leader is None else leader,
        )

    def configs(ctx: RequestContext, request: Any) -> Response:
        from quorate.controller.handlers.describe_configs import describe_configs

        return describe_configs(controller.image, request, controller.config)

    def acls(ctx: RequestContext, request: Any) -> Response:
        from quorate.controller.handlers.describe_acls import describe_acls

        if not controller.config.authorizer:
            refuse_acls()
        return describe_acls(controller.image.acls, request)

    def quotas(ctx: RequestContext, request: Any) -> Any:
        """A change, not a question: asked for here it is this cluster's to enforce, passed on in an
        Envelope that broker's."""
        refuse_quotas(request)
        return controller.requests.submit(ctx, request)

    def tokens(ctx: RequestContext, request: Any) -> Any:
        """Only for those who have shown who they are."""
        if ctx.security_protocol == SecurityProtocol.PLAINTEXT:
            code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            return token_refusal(request, code, ctx.principal, ctx.api_version)
        return controller.requests.submit(ctx, request)

    return {
        ApiKey.DESCRIBE_CLUSTER: cluster,
        ApiKey.DESCRIBE_CONFIGS: configs,
        ApiKey.DESCRIBE_ACLS: acls,
        ApiKey.ALTER_CLIENT_QUOTAS: quotas,
        ApiKey.CREATE_DELEGATION_TOKEN: tokens,
        ApiKey.RENEW_DELEGATION_TOKEN: tokens,
        ApiKey.EXPIRE_DELEGATION_TOKEN: tokens,
    }
