"""Builds the responses of the classic protocol and reads its requests."""

from __future__ import annotations

from quorate.broker.coordinators.group.classic.classic_group import ClassicGroup, ClassicGroupState
from quorate.broker.coordinators.group.model import Caller, Record, UnsupportedGroup, UnsupportedGroupRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from quorate.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def join_error(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    """The response to a JoinGroup that failed."""
    return JoinGroupResponse(member_id=member_id, error_code=code, protocol_name=None)


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    """The response to a SyncGroup that failed."""
    return SyncGroupResponse(error_code=code)


def request_protocols(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    """The protocols in the member's order. Of a repeated name the first entry counts."""
    found: dict[str, bytes] = {}
    for protocol in request.protocols:
        found.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(found.items())


def join_response(
    group: ClassicGroup,
    member_id: str,
    members: list[JoinGroupResponse.JoinGroupResponseMember],
    leader: str | None = None,
) -> JoinGroupResponse:
    """The response to a JoinGroup that succeeded."""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=(leader if leader is not None else group.leader_id) or "",
        member_id=member_id,
        members=members,
    )


def current_members(group: ClassicGroup) -> list[JoinGroupResponse.JoinGroupResponseMember]:
    """All members with their metadata for the selected protocol, which the leader needs to assign."""
    assert group.protocol_name is not None
    return [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members.values()
    ]


def sync_response(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    """The response to a SyncGroup that succeeded."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    """Compares a SyncGroup with the group's members, generation and protocol. Returns NONE or the error."""
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    try:
        group.validate_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        return error.code
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    for given, known in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if given is not None and known is not None and given != known:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def rebalance_timeout(request: JoinGroupRequest, caller: Caller) -> int:
    """The rebalance timeout of a request. Version 0 has none and uses the session timeout."""
    return request.session_timeout_ms if caller.api_version == 0 else request.rebalance_timeout_ms


def join_reason(request: JoinGroupRequest) -> str:
    """The client's reason for joining, for the log (KIP-800)."""
    return f"client reason: {request.reason or 'not provided'}"


def unsupported_group_tombstones(group: UnsupportedGroup) -> list[Record]:
    """Tombstones for all records of an empty group of an unsupported type. The group's own record, which
    has the lowest type, is deleted last, as Kafka's replay requires."""
    ordered = sorted(group.keys.items(), key=lambda item: (-item[1], item[0]))
    return [
        UnsupportedGroupRecord(group.group_id, group.group_type, kind, key, None) for key, kind in ordered
    ]
