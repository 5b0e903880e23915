"""The data that members of classic consumer groups exchange through JoinGroup and SyncGroup.

An int16, its version, precedes each. Readers treat a higher version as the highest that they know.
"""

from __future__ import annotations

from quorate.protocol.schema import Data, Struct, field, int32


class ConsumerProtocolSubscription(Data, versions="0-3"):
    """The topics that a member wants. Versions: 1 owned_partitions (KIP-429); 2 generation_id; 3 rack_id
    (KIP-881)."""

    class TopicPartition(Struct):
        topic: str = ""
        partitions: list[int32] = field(default_factory=list)

    topics: list[str] = field(default_factory=list)
    user_data: bytes | None = None
    owned_partitions: list[TopicPartition] = field(default_factory=list, versions="1+", ignorable=True)
    generation_id: int32 = field(default=-1, versions="2+", ignorable=True)
    rack_id: str | None = field(default=None, versions="3+", ignorable=True)


class ConsumerProtocolAssignment(Data, versions="0-3"):
    """The partitions that a member gets."""

    class TopicPartition(Struct):
        topic: str = ""
        partitions: list[int32] = field(default_factory=list)

    assigned_partitions: list[TopicPartition] = field(default_factory=list)
    user_data: bytes | None = None
