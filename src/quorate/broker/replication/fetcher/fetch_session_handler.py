"""The fetcher's half of an incremental fetch session (KIP-227, `FetchSessionHandler` in Kafka). The
broker's half is in `fetch_session.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from quorate.broker.replication.fetch_session import INITIAL_EPOCH, next_epoch
from quorate.dataclass import dataclass
from quorate.protocol.errors import ErrorCode

TopicIdPartition = tuple[bytes, int]
FetchPosition = tuple[int, int, int, int]
"""(fetch offset, log start offset, current leader epoch, last fetched epoch) of a partition."""


@dataclass(slots=True)
class FetchSessionHandler:
    """Reduces each request to the partitions whose position has changed since the last one."""

    session_id: int = 0
    epoch: int = INITIAL_EPOCH
    sent: dict[TopicIdPartition, FetchPosition] = field(default_factory=dict)

    def next(
        self, wanted: dict[TopicIdPartition, FetchPosition]
    ) -> tuple[dict[TopicIdPartition, FetchPosition], list[TopicIdPartition]]:
        """Returns (partitions to send, partitions to forget)."""
        if self.epoch == INITIAL_EPOCH:
            self.sent = dict(wanted)
            return wanted, []
        changed = {key: position for key, position in wanted.items() if self.sent.get(key) != position}
        forgotten = [key for key in self.sent if key not in wanted]
        self.sent = dict(wanted)
        return changed, forgotten

    def next_changes(
        self, changes: Mapping[TopicIdPartition, FetchPosition | None]
    ) -> tuple[dict[TopicIdPartition, FetchPosition], list[TopicIdPartition]]:
        """As `next`, in a session, for a caller that knows which partitions may have changed since the last
        request. Those with None are no longer wanted. The cost does not depend on the other partitions."""
        sent = self.sent
        changed: dict[TopicIdPartition, FetchPosition] = {}
        forgotten: list[TopicIdPartition] = []
        for key, position in changes.items():
            if position is None:
                if sent.pop(key, None) is not None:
                    forgotten.append(key)
            elif sent.get(key) != position:
                changed[key] = sent[key] = position
        return changed, forgotten

    @property
    def is_full(self) -> bool:
        """Whether the next request must have all partitions."""
        return self.epoch == INITIAL_EPOCH

    def handle_response(self, error: int, session_id: int) -> bool:
        """Returns whether the response can be used. After an error of the session the next request is a
        full one."""
        if error != ErrorCode.NONE:
            self.reset()
            return False
        if self.epoch == INITIAL_EPOCH:
            self.session_id = session_id
            self.epoch = next_epoch(INITIAL_EPOCH) if session_id else INITIAL_EPOCH
        else:
            self.epoch = next_epoch(self.epoch)
        return True

    def reset(self) -> None:
        """Makes the next request a full one, which requests a new session."""
        self.session_id, self.epoch, self.sent = 0, INITIAL_EPOCH, {}
