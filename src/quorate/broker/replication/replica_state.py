"""The state of a leader's followers and of the ISR change in flight, and the rules of DeleteRecords. KIP-497
(AlterPartition), KIP-841 (broker epochs in the ISR)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from quorate.dataclass import dataclass
from quorate.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from quorate.log.partition.partition_log import PartitionLog

UNKNOWN_OFFSET = -1

ENDED_BY_METADATA = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    )
)
"""Errors of an AlterPartition after which the current ISR arrives through the metadata log, which ends the
pending state."""


class Quiet(Protocol):
    """The quiet partitions of a fetch session (`QuietPartitions`)."""

    def changed(self, key: tuple[bytes | str, int], partition: Any) -> None:
        """Makes a partition active, because it has changed."""
        ...


class Move(Protocol):
    """The move of a replica to another log directory (`LogDirMove`)."""

    @property
    def log_start_offset(self) -> int:
        """The log start offset of the future log."""
        ...

    @property
    def awaits_metadata(self) -> bool:
        """Whether the new directory was reported to the controller and is not in the metadata yet."""
        ...

    def truncated(self, offset: int) -> None:
        """Notes that the current log was truncated to `offset`."""
        ...

    def assigned(self, directory_id: bytes) -> None:
        """Notes the directory that the metadata assigns to the replica."""
        ...

    def cancel(self, *, delete: bool) -> None:
        """Ends the move. `delete` deletes the future log."""
        ...


@dataclass(slots=True)
class FollowerState:
    """The state of a follower, from its Fetch requests (`ReplicaState` in Kafka). Times are monotonic
    seconds, 0.0 for never."""

    log_start_offset: int = UNKNOWN_OFFSET
    log_end_offset: int = UNKNOWN_OFFSET
    last_fetch_leader_end_offset: int = 0
    last_fetch: float = 0.0
    last_caught_up: float = 0.0
    broker_epoch: int | None = None
    quiet_in: Quiet | None = None
    """The session in which the partition is quiet. Its requests are not recorded here while it is."""

    def had_everything(self, at: float) -> None:
        """Records that the follower had caught up at its Fetch at that time."""
        self.last_fetch = max(self.last_fetch, at)
        self.last_caught_up = max(self.last_caught_up, at)

    def fetched(
        self, offset: int, log_start_offset: int, now: float, leader_end_offset: int, broker_epoch: int
    ) -> None:
        """Records a Fetch. A follower that reads at the leader's end has caught up now. One that reads at or
        after the leader's end of its previous Fetch had caught up at that Fetch. Therefore the follower
        of a busy partition stays in the ISR although it never reads at the very end."""
        if offset >= leader_end_offset:
            self.last_caught_up = max(self.last_caught_up, now)
        elif offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up = max(self.last_caught_up, self.last_fetch)
        self.log_start_offset = log_start_offset
        self.log_end_offset = offset
        self.last_fetch_leader_end_offset = max(leader_end_offset, self.last_fetch_leader_end_offset)
        self.last_fetch = now
        self.broker_epoch = broker_epoch

    def reset(self, now: float, leader_end_offset: int, *, new_leader: bool, in_sync: bool) -> None:
        """Starts a leader epoch: a member of the ISR counts as caught up now, others as never caught up."""
        self.last_caught_up = now if in_sync else 0.0
        if new_leader:
            self.log_start_offset = self.log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
            self.last_fetch = 0.0
            self.broker_epoch = None
        else:
            self.last_fetch_leader_end_offset = leader_end_offset
            self.last_fetch = now if in_sync else 0.0

    def is_caught_up(self, leader_end_offset: int, now: float, max_lag_s: float) -> bool:
        """Whether the follower may be in the ISR (`replica.lag.time.max.ms`)."""
        return self.log_end_offset == leader_end_offset or now - self.last_caught_up <= max_lag_s


@dataclass(frozen=True, slots=True)
class PendingIsr:
    """An ISR that was sent to the controller and is not acknowledged yet. Meanwhile the high watermark waits
    for the larger of the two ISRs: for the new one if it expands, else for the old one."""

    isr: tuple[int, ...]
    expands: bool
    leader_epoch: int
    partition_epoch: int
    metadata_offset: int
    """The offset of the metadata that the ISR was chosen by. A repetition of the request keeps it."""


def deletion_offset(log: PartitionLog, offset: int) -> int:
    """The offset up to which DeleteRecords deletes, the high watermark for -1. Raises POLICY_VIOLATION,
    OFFSET_OUT_OF_RANGE."""
    if not log.config.deletes:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Records of partition {log.name} can not be deleted due to the configured policy",
        )
    wanted = log.high_watermark if offset == -1 else offset
    if wanted < 0 or wanted > log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"The offset {wanted} is not between 0 and the high watermark {log.high_watermark} of {log.name}",
        )
    return wanted
