"""What a node keeps for those who enforce it but does not enforce itself may not be asked of it: an ACL that lets everybody in
or a quota that slows nobody down would be believed. Records of them that a directory already has are left alone.
"""

from __future__ import annotations

from typing import Any, NoReturn

from quorate.protocol.errors import ErrorCode, KafkaError


def refuse_acls() -> NoReturn:
    """Raises SECURITY_DISABLED, as Apache Kafka does without an authorizer."""
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def refuse_quotas(request: Any) -> None:
    """An AlterClientQuotasRequest may take quotas away, not set them: raises UNSUPPORTED_VERSION."""
    if any(not op.remove for entry in request.entries for op in entry.ops):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Client quotas are not enforced here: they are not taken, only removed. Limit clients at the network, or run the "
            "brokers with Apache Kafka.",
        )
