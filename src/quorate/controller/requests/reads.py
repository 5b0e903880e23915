"""Requests that every controller answers, active or not, from committed metadata, and changes of the levels
of its loggers.

Also the restrictions on requests that a client sends to a controller directly instead of through a
broker.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module, lazy_modules
from quorate.net.dispatch import SecurityProtocol
from quorate.net.turns import Rounds
from quorate.protocol.api import ApiKey
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.schema import Response

if TYPE_CHECKING:
    from quorate import log_levels
    from quorate.controller.handlers import describe_acls, describe_cluster, describe_configs
    from quorate.controller.state import ControllerState
    from quorate.net.dispatch import Handler, RequestContext
    from quorate.protocol.messages import incremental_alter_configs as alter_configs_messages
    from quorate.security import unenforced_apis
else:
    log_levels = lazy_module("quorate.log_levels")
    alter_configs_messages = lazy_module("quorate.protocol.messages.incremental_alter_configs")
    unenforced_apis = lazy_module("quorate.security.unenforced_apis")
    describe_acls, describe_cluster, describe_configs = lazy_modules(
        "quorate.controller.handlers", "describe_acls", "describe_cluster", "describe_configs"
    )


_CONFIGS_AT_ONCE = 50
"""Resources whose configurations are described in one turn of the event loop: up to a third of a millisecond
each."""


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

    rounds = Rounds(_CONFIGS_AT_ONCE)

    def configs(ctx: RequestContext, request: Any) -> Any:
        results = describe_configs.results_of(state.image, request, state.config)
        return rounds.answer(len(request.resources), results, describe_configs.response_of)

    def alter(ctx: RequestContext, request: Any) -> Any:
        """Changes the levels of this process's loggers (KIP-412). Submits the other resources, if there are
        any: the request may have been sent to a standby."""
        kind = ConfigResourceType.BROKER_LOGGER
        loggers = [one for one in request.resources if one.resource_type == kind]
        if not loggers:
            return submit(ctx, request)
        changed = [_change_levels(state.config.node_id, one, request.validate_only) for one in loggers]
        others = [one for one in request.resources if one.resource_type != kind]
        if not others:
            return alter_configs_messages.IncrementalAlterConfigsResponse(responses=changed)
        rest = type(request)(resources=others, validate_only=request.validate_only)
        return _with_results(submit(ctx, rest), changed)

    def acls(ctx: RequestContext, request: Any) -> Response:
        if not state.config.authorizer:
            unenforced_apis.refuse_acls()
        return describe_acls.describe_acls(state.image.acls, request)

    def quotas(ctx: RequestContext, request: Any) -> Any:
        """Rejects quotas that this cluster does not enforce. Requests in an Envelope are not checked
        here, since the quotas are enforced, or not, by the broker that forwards them."""
        unenforced_apis.refuse_quotas(request)
        return submit(ctx, request)

    def tokens(ctx: RequestContext, request: Any) -> Any:
        """Rejects requests for delegation tokens of clients that are not authenticated."""
        if ctx.security_protocol == SecurityProtocol.PLAINTEXT:
            code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            return unenforced_apis.token_refusal(request, code, ctx.principal, ctx.api_version)
        return submit(ctx, request)

    return {
        ApiKey.DESCRIBE_CLUSTER: cluster,
        ApiKey.DESCRIBE_CONFIGS: configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: alter,
        ApiKey.DESCRIBE_ACLS: acls,
        ApiKey.ALTER_CLIENT_QUOTAS: quotas,
        ApiKey.CREATE_DELEGATION_TOKEN: tokens,
        ApiKey.RENEW_DELEGATION_TOKEN: tokens,
        ApiKey.EXPIRE_DELEGATION_TOKEN: tokens,
    }


def _change_levels(node_id: int, resource: Any, validate_only: bool) -> Any:
    """The result of the changes of one resource of loggers."""
    code, message = int(ErrorCode.NONE), None
    try:
        log_levels.change_levels(
            node_id, resource.resource_name, resource.configs, validate_only=validate_only
        )
    except KafkaError as error:
        code, message = error.code, error.message
    return alter_configs_messages.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _with_results(response: Any, results: list[Any]) -> Any:
    """The response, or its future, with more results."""
    if inspect.isawaitable(response):
        return _later(response, results)
    response.responses += results
    return response


async def _later(waiting: Awaitable[Any], results: list[Any]) -> Any:
    response = await waiting
    response.responses += results
    return response
