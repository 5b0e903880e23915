"""Reads hosted partitions for Fetch: checks bounds, leader epochs and isolation, and decides whether a
waiting Fetch has enough data.

Results hold file regions, seldom bytes: records are sent from the page cache to the socket without a copy.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from quorate.broker.replication.replica_selector import LEADER, preferred_read_replica
from quorate.dataclass import dataclass
from quorate.log.errors import DiskAccess
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.uuids import ZERO_UUID
from quorate.records.errors import CorruptRecordError

if TYPE_CHECKING:
    from quorate.broker.replication.fetch_session import FetchPartition
    from quorate.broker.replication.partition import Partition
    from quorate.broker.replication.replica_manager import ReplicaManager
    from quorate.log.partition.partition_log import PartitionLog
    from quorate.protocol.file_region import FileRegion

logger = logging.getLogger("quorate.broker.fetch")
UNKNOWN_OFFSET = -1

MAX_COPIED_BYTES = 1024 * 1024
"""The limit for records of one response that are copied to memory, because no descriptor is left. One batch
may exceed it. A client may ask for 2 GiB, and many slow readers may wait at the same time."""


class Isolation(enum.IntEnum):
    """The offset at which a reader's view of a log ends."""

    LOG_END = 0  # followers
    HIGH_WATERMARK = 1  # consumers, read_uncommitted
    TXN_COMMITTED = 2  # consumers, read_committed: the last stable offset


class FetchParams(NamedTuple):
    """The parameters that a Fetch gives for all its partitions."""

    replica_id: int  # -1: a consumer
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: Isolation
    only_leader: bool
    rack: str = ""
    """The rack of a consumer that is sent to the replica there. Empty for all other readers."""
    listener: str = ""

    @property
    def is_from_follower(self) -> bool:
        """Whether the reader is another broker, not a consumer."""
        return self.replica_id >= 0


@dataclass(slots=True)
class ReadResult:
    """The result of reading one partition. After an error all offsets are -1."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = UNKNOWN_OFFSET
    last_stable_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    parts: Sequence[FileRegion | bytes] = ()
    """Bytes if too many descriptors are in use to keep one more until the records are sent."""
    size: int = 0
    aborted: list[tuple[int, int]] | None = None  # (producer id, first offset)
    diverging: tuple[int, int] | None = None  # (epoch, end offset)
    preferred_read_replica: int = LEADER


def upper_offset(log: PartitionLog, isolation: Isolation) -> int:
    """The offset at which a view with this isolation ends."""
    if isolation is Isolation.HIGH_WATERMARK:
        return log.high_watermark
    if isolation is Isolation.LOG_END:
        return log.log_end_offset
    return log.last_stable_offset


def read(
    manager: ReplicaManager,
    params: FetchParams,
    wanted: Sequence[FetchPartition],
    *,
    note_follower: bool,
    size: int = 0,
) -> list[ReadResult]:
    """Reads the partitions in order, up to the limit of the request. The first non-empty one may exceed
    the limits by one batch, so that a reader always makes progress.

    Each region holds a descriptor until it is sent. While slow readers hold too many, a response has the
    records of few partitions, and the reader asks again for the others.

    `size` is the size of the results of the request's earlier partitions, which were read in other turns.
    """
    left = max(0, params.max_bytes - size)
    min_one = size == 0
    results = []
    files = manager.logs.files
    for part in wanted:
        if files.is_exhausted and not min_one:
            left = 0
        result = _read_partition(manager, params, part, min(part.max_bytes, left), min_one, note_follower)
        if result.size > 0:
            min_one = False
            left = max(0, left - result.size)
        results.append(result)
    return results


def read_one(manager: ReplicaManager, params: FetchParams, part: FetchPartition) -> ReadResult:
    """Reads the only partition of a consumer's request, as `read` does."""
    return _read_partition(manager, params, part, min(part.max_bytes, max(0, params.max_bytes)), True, False)


def _read_partition(
    manager: ReplicaManager,
    params: FetchParams,
    part: FetchPartition,
    max_bytes: int,
    min_one: bool,
    note_follower: bool,
) -> ReadResult:
    try:
        topic = part.topic
        assert topic is not None, "partitions of unknown topic ids are answered before reading"
        partition = manager.partition(topic, part.partition)
        if part.topic_id != ZERO_UUID and part.topic_id != partition.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        partition.check_leader(part.current_leader_epoch, only_leader=params.only_leader)
        if params.rack and partition.is_leader:
            preferred = preferred_read_replica(
                partition, manager.metadata, params.rack, params.listener, part.fetch_offset
            )
            if preferred != LEADER:
                log = partition.log
                return ReadResult(
                    high_watermark=log.high_watermark,
                    last_stable_offset=log.last_stable_offset,
                    log_start_offset=log.log_start_offset,
                    preferred_read_replica=preferred,
                )
        if params.is_from_follower and not partition.has_follower(params.replica_id):
            # With the current leader epoch the follower is ahead of this broker's metadata and will retry.
            unknown = ErrorCode.NOT_LEADER_OR_FOLLOWER if part.current_leader_epoch == -1 else None
            raise KafkaError(
                unknown or ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"Broker {params.replica_id} is not a replica of {topic}-{part.partition} here.",
            )
        return _read_log(manager, params, part, partition, max_bytes, min_one, note_follower)
    except KafkaError as error:
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            manager.handle_storage_failure(error)
        elif error.code == ErrorCode.CORRUPT_MESSAGE:
            _log_damage(manager, f"{part.topic}-{part.partition}", error)
        return ReadResult(error.code)
    except Exception:
        logger.exception(
            "[Fetch broker=%d] Reading %s-%s failed", manager.node_id, part.topic, part.partition
        )
        return ReadResult(ErrorCode.UNKNOWN_SERVER_ERROR)


def _log_damage(manager: ReplicaManager, partition: str, error: KafkaError) -> None:
    """Logs that a batch is damaged, at a limited rate: each reader tries again after its back-off."""
    suffix = manager.damage_log.due(partition, manager.clock.now())
    if suffix is not None:
        text = "[Fetch broker=%d] Reading %s failed: %s%s"
        logger.error(text, manager.node_id, partition, error.message, suffix)


def _read_log(
    manager: ReplicaManager,
    params: FetchParams,
    part: FetchPartition,
    partition: Partition,
    max_bytes: int,
    min_one: bool,
    note_follower: bool,
) -> ReadResult:
    log = partition.log
    offset = part.fetch_offset
    # The end before the read: records that are appended meanwhile must not make a follower late.
    end = log.log_end_offset
    start = log.log_start_offset
    result = ReadResult(ErrorCode.NONE, log.high_watermark, log.last_stable_offset, start)
    if part.last_fetched_epoch >= 0:
        result.diverging = _diverging(partition, log, part)
        if result.diverging is not None:
            return result
    if offset < start or offset > end:
        if offset > end and not partition.is_leader:
            raise _not_available(part, log)
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of {part.topic}-{part.partition} is not in the log, which has {start} to "
            f"{end}.",
        )
    isolation = params.isolation
    upper = result.high_watermark if isolation is Isolation.HIGH_WATERMARK else upper_offset(log, isolation)
    if manager.quotas.leader.is_active and throttles(manager, params, partition):
        pass  # the Fetch still counts as one of the follower, and brings it the high watermark
    elif offset < upper and (max_bytes > 0 or min_one):
        data = log.read(offset, max_bytes, upper_offset=upper, min_one=min_one)
        result.parts = data.parts
        result.size = data.size
        if manager.logs.files.is_exhausted:
            if data.size > MAX_COPIED_BYTES:
                data = log.read(offset, MAX_COPIED_BYTES, upper_offset=upper, min_one=min_one)
            result.parts = [_copied(log, region) for region in data.parts]
            result.size = data.size
        if isolation is Isolation.TXN_COMMITTED:
            result.aborted = (
                log.aborted_transactions(offset, min(upper, data.next_offset)) if data.size else []
            )
    elif isolation is Isolation.TXN_COMMITTED:
        result.aborted = []
    if note_follower and params.is_from_follower:
        partition.follower_fetched(
            params.replica_id, params.replica_epoch, offset, part.log_start_offset, end, manager.clock.now()
        )
        result.high_watermark = log.high_watermark
    return result


def _copied(log: PartitionLog, region: FileRegion) -> bytes:
    """The bytes of a region.

    Raises LogDirFailure, and CorruptRecordError if the file is shorter than the log.
    """
    try:
        with DiskAccess(str(log.dir.parent), log.dir.name, "reading from"):
            return region.read()
    except EOFError as error:
        # The file has lost its end, but the disk answers. So the directory and its other logs stay online,
        # as in Kafka, whose RecordBatchIterator reports a corrupt record where a file ends too early.
        raise CorruptRecordError(f"Log {log.dir.name} in dir {log.dir.parent} is damaged: {error}") from error


def _not_available(part: FetchPartition, log: PartitionLog) -> KafkaError:
    """The error of a follower for an offset that it does not have yet.

    Only the leader knows whether there is such an offset: a follower may have been added a moment ago, or
    truncate its log. A consumer may reset its position after OFFSET_OUT_OF_RANGE, which Kafka's followers
    return, but not after OFFSET_NOT_AVAILABLE (KIP-392, cases 1 and 2).
    """
    return KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"This follower of {part.topic}-{part.partition} does not have offset {part.fetch_offset} "
        f"yet. Its log ends at {log.log_end_offset}.",
    )


def _diverging(partition: Partition, log: PartitionLog, part: FetchPartition) -> tuple[int, int] | None:
    """Returns the (epoch, end offset) at which the reader's log diverges from the leader's, or None
    (KIP-595). Raises OFFSET_OUT_OF_RANGE if the leader does not know the epoch, and OFFSET_NOT_AVAILABLE if
    a follower's log diverges."""
    offset, last = part.fetch_offset, part.last_fetched_epoch
    if offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    epoch, end = log.end_offset_for_epoch(last)
    if last <= epoch and offset <= end:
        return None
    if not partition.is_leader:
        raise _not_available(part, log)
    if epoch < 0 or end < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"The end of epoch {last} of {part.topic}-{part.partition} is not known here.",
        )
    return epoch, end


def throttles(manager: ReplicaManager, params: FetchParams, partition: Partition) -> bool:
    """Whether this leader holds back the data of a partition because its replication limit is exceeded. A
    follower in the ISR always gets its data: it would drop out of the ISR otherwise."""
    quota = manager.quotas.leader
    return (
        params.is_from_follower
        and params.replica_id not in partition.isr
        and quota.holds_back(partition.topic, partition.partition, manager.clock.now())
    )


def record_throttled(
    manager: ReplicaManager,
    params: FetchParams,
    wanted: Sequence[FetchPartition],
    results: Sequence[ReadResult],
) -> None:
    """Counts what a response sends to a follower in throttled partitions."""
    quota = manager.quotas.leader
    if quota.is_active and params.is_from_follower:
        size = sum(
            result.size
            for part, result in zip(wanted, results, strict=True)
            if quota.is_throttled(part.topic or "", part.partition)
        )
        if size:
            quota.record(size, manager.clock.now())


def is_ready(manager: ReplicaManager, params: FetchParams, wanted: Sequence[FetchPartition]) -> bool:
    """Whether a waiting Fetch can be answered: it has enough bytes, or a partition has an error or a
    divergence to report."""
    return missing_bytes(manager, params, wanted, params.min_bytes) <= 0


def missing_bytes(
    manager: ReplicaManager, params: FetchParams, wanted: Sequence[FetchPartition], missing: int
) -> int:
    """Returns how many of `missing` bytes the partitions do not have, or 0 if the Fetch can be answered."""
    for part in wanted:
        partition = manager.partitions.get((part.topic, part.partition)) if part.topic is not None else None
        if partition is None:
            return 0
        try:
            partition.check_leader(part.current_leader_epoch, only_leader=params.only_leader)
            log = partition.log
        except KafkaError:
            return 0
        upper, offset = upper_offset(log, params.isolation), part.fetch_offset
        # The watermark of a follower, or of a new leader, may still be below the offset. (Kafka does not
        # wait for it.)
        if offset < log.log_start_offset or offset > log.log_end_offset:
            return 0  # truncated or deleted since the first read
        throttled = manager.quotas.leader.is_active and throttles(manager, params, partition)
        if offset < upper and not throttled:
            if missing <= 1:
                return 0
            missing -= log.read(offset, part.max_bytes, upper_offset=upper, min_one=True).size
            if missing <= 0:
                return 0
        if part.last_fetched_epoch >= 0:
            try:
                if _diverging(partition, log, part) is not None:
                    return 0
            except KafkaError:
                return 0
    return missing
