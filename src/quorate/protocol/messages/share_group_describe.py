"""ShareGroupDescribe, API key 77.

Versions
  1  the first stable one; 0 was early access
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, uuid


class ShareGroupDescribeRequest(Request, key=77, versions="1", flexible="0+", listeners={"broker"}):
    """Shows state and members of share groups. KIP-932."""

    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False


class ShareGroupDescribeResponse(Response, key=77, versions="1", flexible="0+"):
    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        topic_name: str = ""
        partitions: list[int32] = field(default_factory=list)

    class Assignment(Struct):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = field(default_factory=list)

    class Member(Struct):
        member_id: str = ""
        rack_id: str | None = None
        member_epoch: int32 = 0
        client_id: str = ""
        client_host: str = ""
        subscribed_topic_names: list[str] = field(default_factory=list)
        assignment: ShareGroupDescribeResponse.Assignment = field(
            default_factory=lambda: ShareGroupDescribeResponse.Assignment()
        )

    class DescribedGroup(Struct):
        error_code: int16 = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int32 = 0
        assignment_epoch: int32 = 0
        assignor_name: str = ""
        members: list[ShareGroupDescribeResponse.Member] = field(default_factory=list)
        authorized_operations: int32 = -2147483648

    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = field(default_factory=list)
