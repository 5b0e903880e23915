"""CreateAcls (30): KIP-140, KIP-290, KIP-1276."""

from __future__ import annotations

import ipaddress

from quorate.controller.changes.batched_change import STEP_ITEMS, ChangeSteps, in_one_turn, parts_of
from quorate.controller.context import Context, Result, View, bounded, recheck_in_one_step
from quorate.controller.handlers.acls import (
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    acl_identity,
    require_authorizer,
)
from quorate.metadata.features import FIRST_CIDR_ACLS, LEVELS
from quorate.metadata.records import AccessControlEntryRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from quorate.protocol.schema import Data


def create_acls(view: View, request: CreateAclsRequest, ctx: Context) -> Result[CreateAclsResponse]:
    """Creates entries. Errors are reported for each entry. An entry that exists already is a success
    without a record. Raises SECURITY_DISABLED."""
    return in_one_turn(create_acls_in_steps(view, request, ctx))


def create_acls_in_steps(
    view: View, request: CreateAclsRequest, ctx: Context
) -> ChangeSteps[Result[CreateAclsResponse]]:
    """Does the same as `create_acls` in steps, which yield the records."""
    require_authorizer(view)
    response = CreateAclsResponse()
    names = {creation.resource_name for creation in request.creations}
    existing = {acl_identity(acl) for acl in view.image.acls.by_id.values() if acl.resource_name in names}
    records: list[Data] = []
    for number, creation in enumerate(request.creations):
        if number and not number % STEP_ITEMS:
            yield []
        answer = CreateAclsResponse.AclCreationResult(error_message=None)
        response.results.append(answer)
        try:
            _check(creation, view.metadata_version)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
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
        if acl_identity(record) not in existing:
            existing.add(acl_identity(record))
            records.append(record)
    yield from parts_of(bounded(records, "Creating these ACLs"))

    def is_unchanged(newer: View) -> bool:
        return newer.image.acls is view.image.acls and newer.image.features is view.image.features

    return Result(response, recheck=recheck_in_one_step(is_unchanged))


def _check(creation: CreateAclsRequest.AclCreation, metadata_version: int) -> None:
    """Raises INVALID_REQUEST for an entry that is not valid, and UNSUPPORTED_VERSION for a CIDR host below
    the metadata.version that has them (KIP-1276)."""
    why = _invalid_reason(creation)
    if why is None and not creation.host:
        why = "Host pattern cannot be null or empty"
    if why is None and "/" in creation.host:
        if metadata_version < FIRST_CIDR_ACLS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"CIDR-based ACL host patterns require metadata version {LEVELS[FIRST_CIDR_ACLS]} or higher.",
            )
        address, _, length = creation.host.partition("/")
        try:
            most = 32 if ipaddress.ip_address(address).version == 4 else 128
            if not (length.isascii() and length.isdigit() and int(length[:4]) <= most):
                raise ValueError(f"{length!r} is no prefix length from 0 to {most}")
        except ValueError as error:
            why = f"Invalid CIDR notation '{creation.host}': {error}"
    if why is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def _invalid_reason(creation: CreateAclsRequest.AclCreation) -> str | None:
    """The reason why an entry is not valid, or None."""
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
            f"Could not parse principal from `{creation.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )
    return None
