"""Answers of the classic protocol, and what is read out of its requests: small pure functions beside
the rules of `classic.py`.
"""

from __future__ import annotations

from quorate.broker.coordinators.classic_group import ClassicGroup, GroupState
from quorate.broker.coordinators.model import Caller, ForeignGroup, ForeignRecord, Record
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from quorate.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def append_error(error: ErrorCode) -> ErrorCode:
    """What a member is told when its group's record could not be appended for `error`."""
    match error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION | ErrorCode.NOT_ENOUGH_REPLICAS | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error


def join_error(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(member_id=member_id, error_code=code, protocol_name=None)


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def request_protocols(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    """The protocols in the member's order; a repeated name counts once, as its first."""
    found: dict[str, bytes] = {}
    for protocol in request.protocols:
        found.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(found.items())


def joined(
    group: ClassicGroup,
    member_id: str,
    members: list[JoinGroupResponse.JoinGroupResponseMember],
    leader: str | None = None,
) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=(leader if leader is not None else group.leader_id) or "",
        member_id=member_id,
        members=members,
    )


def current_members(group: ClassicGroup) -> list[JoinGroupResponse.JoinGroupResponseMember]:
    """What the leader needs to assign: every member with its metadata for the elected protocol."""
    assert group.protocol_name is not None
    return [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members.values()
    ]


def synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    """Whether a SyncGroup speaks of this group's generation and protocol."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    try:
        group.validate_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        return error.code
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    for said, known in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if said is not None and known is not None and said != known:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def rebalance_timeout(request: JoinGroupRequest, caller: Caller) -> int:
    """Version 0 has no rebalance timeout: the session timeout serves as both."""
    return request.session_timeout_ms if caller.api_version == 0 else request.rebalance_timeout_ms


def join_reason(request: JoinGroupRequest) -> str:
    return f"client reason: {request.reason or 'not provided'}"


def foreign_tombstones(group: ForeignGroup) -> list[Record]:
    """Deletes every record of an empty group of another protocol; the group's own record (its lowest
    type but for offsets) goes last, as replay demands.
    """
    ordered = sorted(group.keys.items(), key=lambda item: (-item[1], item[0]))
    return [ForeignRecord(group.group_id, group.group_type, kind, key, None) for key, kind in ordered]
