"""DeleteAcls (31): KIP-140, KIP-290."""

from __future__ import annotations

from quorate.controller.changes.batched_change import STEP_ITEMS, ChangeSteps, in_one_turn, parts_of
from quorate.controller.config import MAX_RECORDS_PER_USER_OP
from quorate.controller.context import Context, Result, View, recheck_in_one_step
from quorate.controller.handlers.acls import AclFilter, AclIndex, require_authorizer
from quorate.metadata.records import RemoveAccessControlEntryRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from quorate.protocol.schema import Data


def delete_acls(view: View, request: DeleteAclsRequest, ctx: Context) -> Result[DeleteAclsResponse]:
    """Deletes the entries that match a filter. Errors are reported for each filter.

    Raises SECURITY_DISABLED, and INVALID_REQUEST if the removals do not fit into one batch or if the
    filters are compared with too many entries.
    """
    return in_one_turn(delete_acls_in_steps(view, request, ctx))


def delete_acls_in_steps(
    view: View, request: DeleteAclsRequest, ctx: Context
) -> ChangeSteps[Result[DeleteAclsResponse]]:
    """Does the same as `delete_acls` in steps, which yield the records."""
    require_authorizer(view)
    response = DeleteAclsResponse()
    entries = AclIndex(view.image.acls)
    removed: dict[bytes, Data] = {}
    reported = 0
    for number, asked in enumerate(request.filters):
        if number and not number % STEP_ITEMS:
            yield []
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
        matches = yield from entries.matching(wanted)
        reported += len(matches)
        if reported > MAX_RECORDS_PER_USER_OP:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"These filters match more than {MAX_RECORDS_PER_USER_OP} entries, counted for each filter.",
            )
        for acl in matches:
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
    yield from parts_of(list(removed.values()))
    return Result(response, recheck=recheck_in_one_step(lambda newer: newer.image.acls is view.image.acls))
