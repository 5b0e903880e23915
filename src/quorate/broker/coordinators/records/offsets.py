"""Records of committed offsets and classic groups in `__consumer_offsets`."""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Data, Struct, field, int32, int64, uuid


class LegacyOffsetCommitKey(Data, key=0, versions="0"):
    group: str = ""
    topic: str = ""
    partition: int32 = 0


class LegacyOffsetCommitValue(Data, key=0, versions="0"):
    offset: int64 = 0
    metadata: str = ""
    commit_timestamp: int64 = 0


class OffsetCommitKey(Data, key=1, versions="0"):
    group: str = ""
    topic: str = ""
    partition: int32 = 0


class OffsetCommitValue(Data, key=1, versions="0-4", flexible="4+"):
    offset: int64 = 0
    leader_epoch: int32 = field(default=-1, versions="3+", ignorable=True)
    metadata: str = ""
    commit_timestamp: int64 = 0
    expire_timestamp: int64 = field(default=-1, versions="1", ignorable=True)
    topic_id: uuid = field(default=ZERO_UUID, versions="4+", tag=0, ignorable=True)


class GroupMetadataKey(Data, key=2, versions="0"):
    group: str = ""


class GroupMetadataValue(Data, key=2, versions="0-4", flexible="4+"):
    class MemberMetadata(Struct):
        member_id: str = ""
        group_instance_id: str | None = field(default=None, versions="3+", ignorable=True)
        client_id: str = ""
        client_host: str = ""
        rebalance_timeout: int32 = field(default=-1, versions="1+", ignorable=True)
        session_timeout: int32 = 0
        subscription: bytes = b""
        assignment: bytes = b""

    protocol_type: str = ""
    generation: int32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: int64 = field(default=-1, versions="2+", ignorable=True)
    members: list[MemberMetadata] = field(default_factory=list)
