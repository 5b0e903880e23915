"""Refuses to create ACLs, delegation tokens and the client quotas of users and client ids, because this
implementation does not enforce them.

An operator would rely on an ACL or a quota that has no effect. Records of them that a metadata log
already has stay in it for nodes that enforce them.
"""

from __future__ import annotations

from typing import Any, NoReturn

from quorate.protocol.api import REGISTRY
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.security.client_quota import IP


def refuse_acls() -> NoReturn:
    """Raises SECURITY_DISABLED, as Kafka's AclApis does without an authorizer."""
    raise KafkaError(
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured.",
        remedy="ACLs are not enforced here: limit access at the network, or run the brokers with Apache "
        "Kafka.",
    )


def refuse_quotas(request: Any) -> None:
    """Raises UNSUPPORTED_VERSION if an AlterClientQuotasRequest sets a quota of a user or a client id. It may
    remove them, and set the rate of new connections of an IP address."""
    unenforced = [entry for entry in request.entries if not _is_of_address(entry)]
    if any(not op.remove for entry in unenforced for op in entry.ops):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Client quotas of users and client ids are not enforced here: they are not taken, only "
            "removed. Limit clients by their address (kafka-configs --entity-type ips) or at the "
            "network, or run the brokers with Apache Kafka.",
        )


def _is_of_address(entry: Any) -> bool:
    """Whether an entry names an IP address. The controller refuses one that names a user, too."""
    return any(part.entity_type == IP for part in entry.entity)


def token_refusal(request: Any, code: ErrorCode, principal: str, api_version: int) -> Any:
    """Returns the error response to a request about delegation tokens, with the members that Kafka sets
    in it.
    """
    response: Any = REGISTRY[request.KEY].response()
    response.error_code = code
    for time in ("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"):
        if hasattr(response, time):
            setattr(response, time, -1)
    if hasattr(response, "principal_type"):
        kind, _, name = principal.partition(":")
        response.principal_type, response.principal_name = kind, name
        if api_version >= 3:
            response.token_requester_principal_type, response.token_requester_principal_name = kind, name
            if request.owner_principal_name:
                response.principal_type = request.owner_principal_type or ""
                response.principal_name = request.owner_principal_name
    return response
