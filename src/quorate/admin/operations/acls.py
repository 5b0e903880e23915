"""Operations on access control lists (KIP-140)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from quorate.admin.errors import ErrorCode, KafkaError, check, error_of
from quorate.admin.transport import Transport
from quorate.admin.types import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from quorate.protocol import messages
from quorate.protocol.schema import Struct

M = TypeVar("M", bound=Struct)


class AclOperations:
    """The admin client's operations on access control lists."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def describe_acls(self, wanted: AclBindingFilter | None = None) -> list[AclBinding]:
        """Returns the ACLs that match a filter, or all (None).

        Raises SECURITY_DISABLED if the cluster has no authorizer.
        """
        request = _filled(messages.DescribeAclsRequest, wanted or AclBindingFilter())
        answer = await self.transport.call(request, lambda a: check(a.error_code, a.error_message))
        return [_binding(resource, acl) for resource in answer.resources for acl in resource.acls]

    async def create_acls(self, acls: Sequence[AclBinding]) -> dict[AclBinding, KafkaError | None]:
        """Creates ACLs and returns the error of each, or None."""
        request = messages.CreateAclsRequest(
            creations=[
                messages.CreateAclsRequest.AclCreation(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    resource_pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
                for acl in acls
            ]
        )
        answer = await self.transport.call(request, lambda a: _retry_controller(a.results))
        return {
            acl: error_of(result.error_code, result.error_message)
            for acl, result in zip(acls, answer.results, strict=True)
        }

    async def delete_acls(
        self, filters: Sequence[AclBindingFilter]
    ) -> dict[AclBindingFilter, list[AclBinding] | KafkaError]:
        """Deletes the ACLs that match filters. Returns the deleted ACLs of each filter, or its error."""
        request = messages.DeleteAclsRequest(
            filters=[_filled(messages.DeleteAclsRequest.DeleteAclsFilter, match) for match in filters]
        )
        answer = await self.transport.call(request, lambda a: _retry_controller(a.filter_results))
        return {
            match: error_of(result.error_code, result.error_message) or _deleted(result)
            for match, result in zip(filters, answer.filter_results, strict=True)
        }


def _filled(message: type[M], match: AclBindingFilter) -> M:
    """A message, or a part of one, with the fields of a filter."""
    return message(
        resource_type_filter=match.resource_type,
        resource_name_filter=match.resource_name,
        pattern_type_filter=match.pattern_type,
        principal_filter=match.principal,
        host_filter=match.host,
        operation=match.operation,
        permission_type=match.permission_type,
    )


def _binding(resource: Any, acl: Any) -> AclBinding:
    """The ACL of a response. `resource` has the fields of its resource pattern."""
    return AclBinding(
        ResourceType(resource.resource_type),
        resource.resource_name,
        acl.principal,
        AclOperation(acl.operation),
        AclPermissionType(acl.permission_type),
        acl.host,
        PatternType(resource.pattern_type),
    )


def _deleted(result: Any) -> list[AclBinding] | KafkaError:
    """Returns the ACLs that one filter deleted, or the error of the first that was not deleted."""
    for acl in result.matching_acls:
        error = error_of(acl.error_code, acl.error_message)
        if error is not None:
            return error
    return [_binding(acl, acl) for acl in result.matching_acls]


def _retry_controller(results: Any) -> None:
    """Raises NOT_CONTROLLER, so that the request is sent to the next controller."""
    for result in results:
        if result.error_code == ErrorCode.NOT_CONTROLLER:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, result.error_message)
