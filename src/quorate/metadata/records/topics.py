"""Records about topics and partitions."""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Data, field, int8, int32, uuid


class TopicRecord(Data, key=2, versions="0", flexible="0+"):
    """Creates a topic without partitions. A PartitionRecord for each of them follows."""

    name: str = ""
    topic_id: uuid = ZERO_UUID


class PartitionRecord(Data, key=3, versions="0-2", flexible="0+"):
    """The whole state of a partition. Versions: 1 adds directories (KIP-858); 2 adds eligible leader
    replicas (KIP-966)."""

    partition_id: int32 = -1
    topic_id: uuid = ZERO_UUID
    replicas: list[int32] = field(default_factory=list)
    isr: list[int32] = field(default_factory=list)
    removing_replicas: list[int32] = field(default_factory=list)
    adding_replicas: list[int32] = field(default_factory=list)
    leader: int32 = -1
    leader_recovery_state: int8 = field(default=0, tag=0)
    leader_epoch: int32 = -1
    partition_epoch: int32 = -1
    directories: list[uuid] = field(default_factory=list, versions="1+")
    eligible_leader_replicas: list[int32] | None = field(default=None, versions="2+", tag=1)
    last_known_elr: list[int32] | None = field(default=None, versions="2+", tag=2)


class PartitionChangeRecord(Data, key=5, versions="0-2", flexible="0+"):
    """Changes a partition. A null field, or leader -2, leaves its part unchanged. Each record increments
    the partition epoch, and a record with a leader also increments the leader epoch.

    Versions: 1 adds directories (KIP-858); 2 adds eligible leader replicas (KIP-966).
    """

    partition_id: int32 = -1
    topic_id: uuid = ZERO_UUID
    isr: list[int32] | None = field(default=None, tag=0)
    leader: int32 = field(default=-2, tag=1)
    replicas: list[int32] | None = field(default=None, tag=2)
    removing_replicas: list[int32] | None = field(default=None, tag=3)
    adding_replicas: list[int32] | None = field(default=None, tag=4)
    leader_recovery_state: int8 = field(default=-1, tag=5)
    directories: list[uuid] | None = field(default=None, versions="1+", tag=8)
    eligible_leader_replicas: list[int32] | None = field(default=None, versions="2+", tag=6)
    last_known_elr: list[int32] | None = field(default=None, versions="2+", tag=7)


class RemoveTopicRecord(Data, key=9, versions="0", flexible="0+"):
    """Deletes a topic with its partitions and configuration."""

    topic_id: uuid = ZERO_UUID


class ClearElrRecord(Data, key=28, versions="0", flexible="0+"):
    """Clears the eligible leader replicas of a topic, or of all topics if the name is empty. KIP-966."""

    topic_name: str = ""
