"""Records of `__share_group_state`. KIP-932."""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Data, Struct, field, int8, int16, int32, int64, uuid


class ShareSnapshotKey(Data, key=0, versions="0"):
    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


class ShareSnapshotValue(Data, key=0, versions="0", flexible="0+"):
    class StateBatch(Struct):
        first_offset: int64 = 0
        last_offset: int64 = 0
        delivery_state: int8 = 0
        delivery_count: int16 = 0

    snapshot_epoch: int32 = 0
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = field(default=-1, tag=0)
    create_timestamp: int64 = 0
    write_timestamp: int64 = 0
    state_batches: list[StateBatch] = field(default_factory=list)


class ShareUpdateKey(Data, key=1, versions="0"):
    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


class ShareUpdateValue(Data, key=1, versions="0", flexible="0+"):
    class StateBatch(Struct):
        first_offset: int64 = 0
        last_offset: int64 = 0
        delivery_state: int8 = 0
        delivery_count: int16 = 0

    snapshot_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = field(default=-1, tag=0)
    state_batches: list[StateBatch] = field(default_factory=list)
