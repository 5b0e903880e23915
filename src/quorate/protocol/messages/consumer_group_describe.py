"""ConsumerGroupDescribe, API key 69.

Versions
  0  flexible (KIP-482) from the first
  1  type of member (KIP-1099); response gains groups.members.member_type
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int8, int16, int32, uuid


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+", listeners={"broker"}):
    """Shows state and members of new consumer groups. KIP-848."""

    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        topic_name: str = ""
        partitions: list[int32] = field(default_factory=list)

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = field(default_factory=list)

    class Member(Struct):
        member_id: str = ""
        instance_id: str | None = None
        rack_id: str | None = None
        member_epoch: int32 = 0
        client_id: str = ""
        client_host: str = ""
        subscribed_topic_names: list[str] = field(default_factory=list)
        subscribed_topic_regex: str | None = None
        assignment: ConsumerGroupDescribeResponse.Assignment = field(
            default_factory=lambda: ConsumerGroupDescribeResponse.Assignment()
        )
        target_assignment: ConsumerGroupDescribeResponse.Assignment = field(
            default_factory=lambda: ConsumerGroupDescribeResponse.Assignment()
        )
        member_type: int8 = field(default=-1, versions="1+", ignorable=True)

    class DescribedGroup(Struct):
        error_code: int16 = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int32 = 0
        assignment_epoch: int32 = 0
        assignor_name: str = ""
        members: list[ConsumerGroupDescribeResponse.Member] = field(default_factory=list)
        authorized_operations: int32 = -2147483648

    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = field(default_factory=list)
