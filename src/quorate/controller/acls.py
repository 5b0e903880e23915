"""CreateAcls, DeleteAcls, DescribeAcls (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quorate.controller.context import Context, Result, View, bounded
from quorate.metadata.image.parts import AclsImage
from quorate.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from quorate.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from quorate.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from quorate.protocol.schema import Data
from quorate.security.unenforced import refuse_acls

ANY = 1
RESOURCE_TYPES = range(2, 8)  # topic, group, cluster, transactional id, delegation token, user
MATCH, LITERAL, PREFIXED = 2, 3, 4
PATTERN_TYPES = (LITERAL, PREFIXED)
OPERATIONS = range(2, 16)  # all, read, ..., create tokens, describe tokens, two-phase commit
PERMISSIONS = (2, 3)  # deny, allow
WILDCARD = "*"


@dataclass(slots=True, frozen=True)
class AclFilter:
    """Which entries are meant; None and ANY match all."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def check(self) -> None:
        """Raises INVALID_REQUEST for codes that nobody knows."""
        if self.resource_type != ANY and self.resource_type not in RESOURCE_TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        if self.pattern_type not in (ANY, MATCH, *PATTERN_TYPES):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        if self.operation != ANY and self.operation not in OPERATIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
        if self.permission_type != ANY and self.permission_type not in PERMISSIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")

    def matches(self, acl: AccessControlEntryRecord) -> bool:
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission_type in (ANY, acl.permission_type)
        )

    def _matches_name(self, acl: AccessControlEntryRecord) -> bool:
        if self.pattern_type not in (ANY, MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type == MATCH:  # which entries would apply to this resource?
            if acl.pattern_type == LITERAL:
                return acl.resource_name in (self.resource_name, WILDCARD)
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name == self.resource_name


def matching(acls: AclsImage, wanted: AclFilter) -> Iterator[AccessControlEntryRecord]:
    return (acl for acl in acls.by_id.values() if wanted.matches(acl))


def create_acls(view: View, request: CreateAclsRequest, ctx: Context) -> Result[CreateAclsResponse]:
    """Errors are per entry; one that exists already is a success without a record. Raises SECURITY_DISABLED."""
    _need_authorizer(view)
    response = CreateAclsResponse()
    existing = {_identity(acl) for acl in view.image.acls.by_id.values()}
    records: list[Data] = []
    for creation in request.creations:
        answer = CreateAclsResponse.AclCreationResult(error_message=None)
        response.results.append(answer)
        why = _why_invalid(creation)
        if why is not None:
            answer.error_code, answer.error_message = ErrorCode.INVALID_REQUEST, why
            continue
        record = AccessControlEntryRecord(
            id=ctx.uuid(),
            resource_type=creation.resource_type,
            resource_name=creation.resource_name,
            pattern_type=creation.resource_pattern_type,
            principal=creation.principal,
            host=creation.host,
            operation=creation.operation,
            permission_type=creation.permission_type,
        )
        if _identity(record) not in existing:
            existing.add(_identity(record))
            records.append(record)
    return Result(response, bounded(records, "Creating these ACLs"))


def _need_authorizer(view: View) -> None:
    """An ACL that nobody enforces must not be taken."""
    if not view.config.authorizer:
        refuse_acls()


def _identity(acl: AccessControlEntryRecord) -> tuple[object, ...]:
    return (
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def _why_invalid(creation: CreateAclsRequest.AclCreation) -> str | None:
    if creation.resource_type not in RESOURCE_TYPES:
        return f"Invalid resourceType {creation.resource_type}"
    if creation.resource_pattern_type not in PATTERN_TYPES:
        return f"Invalid patternType {creation.resource_pattern_type}"
    if creation.operation not in OPERATIONS:
        return f"Invalid operation {creation.operation}"
    if creation.permission_type not in PERMISSIONS:
        return f"Invalid permissionType {creation.permission_type}"
    if not creation.resource_name:
        return "Resource name should not be empty"
    if ":" not in creation.principal:
        return (
            f"Could not parse principal from `{creation.principal}` (no colon is present separating the principal "
            "type from the principal name)"
        )
    return None


def delete_acls(view: View, request: DeleteAclsRequest, ctx: Context) -> Result[DeleteAclsResponse]:
    """Errors are per filter. Raises POLICY_VIOLATION for more than one batch of removals, SECURITY_DISABLED."""
    _need_authorizer(view)
    response = DeleteAclsResponse()
    removed: dict[bytes, Data] = {}
    for asked in request.filters:
        wanted = AclFilter(
            asked.resource_type_filter,
            asked.resource_name_filter,
            asked.pattern_type_filter,
            asked.principal_filter,
            asked.host_filter,
            asked.operation,
            asked.permission_type,
        )
        answer = DeleteAclsResponse.DeleteAclsFilterResult(error_message=None)
        response.filter_results.append(answer)
        try:
            wanted.check()
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
            continue
        for acl in matching(view.image.acls, wanted):
            removed[acl.id] = RemoveAccessControlEntryRecord(id=acl.id)
            answer.matching_acls.append(
                DeleteAclsResponse.DeleteAclsMatchingAcl(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                    error_message=None,
                )
            )
    return Result(response, bounded(list(removed.values()), "Deleting these ACLs"))


def describe_acls(acls: AclsImage, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Reads committed state, on any node. Raises INVALID_REQUEST."""
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
                resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
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
