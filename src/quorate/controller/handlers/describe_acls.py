"""DescribeAcls (29): KIP-140, KIP-290."""

from __future__ import annotations

from quorate.controller.handlers.acls import AclFilter, matching
from quorate.metadata.image.small_images import AclsImage
from quorate.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def describe_acls(acls: AclsImage, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The committed entries that a filter matches, on any controller. Raises INVALID_REQUEST."""
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    wanted.check()
    resources: dict[tuple[int, str, int], DescribeAclsResponse.DescribeAclsResource] = {}
    for acl in matching(acls, wanted):
        key = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = DescribeAclsResponse.DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
            )
        resource.acls.append(
            DescribeAclsResponse.AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
