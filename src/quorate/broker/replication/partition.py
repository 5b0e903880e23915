"""One replica on this broker (Kafka's `Partition`): its role, ISR, high watermark and waiting requests.

The log object of an unreplicated partition is created on the first read or write, so a metadata delta with
thousands of new partitions is cheap. No file is created before the first append. All code runs on the event
loop. KIP-497 (pending ISR), KIP-101 and KIP-320 (leader epochs), KIP-841 (broker epochs in the ISR).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from quorate.broker.replication.purgatory import DelayedOperations
from quorate.broker.replication.replica_state import (
    ENDED_BY_METADATA,
    FollowerState,
    Move,
    PendingIsr,
    deletion_offset,
)
from quorate.log.errors import LogDirFailure
from quorate.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from quorate.broker.metadata.cache import MetadataCache
    from quorate.clock import Clock
    from quorate.log.partition.partition_log import PartitionLog
    from quorate.log.partition.producer_state import AppendOrigin
    from quorate.log.partition.results import AppendInfo, NewBatch
    from quorate.metadata.image import PartitionImage

logger = logging.getLogger("quorate.broker.replication.partition")
NO_LEADER = NO_EPOCH = -1


class PartitionHost(Protocol):
    """The members of the `ReplicaManager` that a partition uses."""

    node_id: int
    clock: Clock
    metadata: MetadataCache
    replica_lag_max_s: float
    accepts_appends: bool

    def open_log(self, partition: Partition) -> PartitionLog:
        """Opens or creates the log. Raises KAFKA_STORAGE_ERROR."""
        ...

    def alter_isr(self, partition: Partition, pending: PendingIsr) -> None:
        """Sends an ISR change to the controller."""
        ...

    def handle_storage_failure(self, error: BaseException) -> None:
        """Takes the log directory offline if `error` is a LogDirFailure."""
        ...


class Partition:
    """A replica that this broker hosts, as leader or as follower."""

    __slots__ = (
        "_host",
        "_log",
        "adding_replicas",
        "followers",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_epoch_start",
        "leader_id",
        "move",
        "partition",
        "partition_epoch",
        "pending_isr",
        "replicas",
        "topic",
        "topic_id",
        "waiting",
    )

    def __init__(self, host: PartitionHost, topic: str, partition: int, topic_id: bytes) -> None:
        self._host = host
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.is_leader = False
        self.leader_id = NO_LEADER
        self.leader_epoch = self.partition_epoch = NO_EPOCH
        self.leader_epoch_start: int | None = None
        """The LEO at the start of this leader epoch, or None if the log was not used in it yet."""
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.pending_isr: PendingIsr | None = None
        self.followers: dict[int, FollowerState] = {}
        self._log: PartitionLog | None = None
        self.waiting: DelayedOperations | None = None
        """None until the first request waits: most partitions of a large broker are idle."""
        self.move: Move | None = None

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.partition} leader={self.leader_id} epoch={self.leader_epoch})"

    # --- the log ----------------------------------------------------------------------------------

    @property
    def log(self) -> PartitionLog:
        """The log. The first use in a leader epoch opens it and records the epoch in it. Raises
        KAFKA_STORAGE_ERROR."""
        log = self._log
        if log is None:
            try:
                log = self._log = self._host.open_log(self)
            except LogDirFailure as error:
                self._host.handle_storage_failure(error)
                raise
        if self.is_leader and self.leader_epoch_start is None:
            self._begin_leader_epoch(log)
        return log

    @property
    def has_log(self) -> bool:
        """Whether the log has been opened. Reading this property does not open it."""
        return self._log is not None

    def use_log(self, log: PartitionLog) -> None:
        """Replaces the log by one with the same records in another directory."""
        self._log = log

    def forget_log(self) -> None:
        """Drops the log, because the partition was deleted or its directory failed.
        Drops a pending ISR change too: handling its response would open the log again."""
        self._log = self.pending_isr = self.leader_epoch_start = None

    def _begin_leader_epoch(self, log: PartitionLog) -> None:
        # The epoch is recorded even if nothing is appended in it. A follower's last records may have a later
        # epoch than those of this leader, and the follower must find the offset to truncate to.
        self.leader_epoch_start = log.log_end_offset
        log.epochs.assign(self.leader_epoch, log.log_end_offset)
        self.maybe_increment_high_watermark(log)

    # --- role -------------------------------------------------------------------------------------

    def make_leader(self, image: PartitionImage, now: float) -> bool:
        """Becomes or stays the leader. Returns whether it was not the leader before. An image with an older
        partition epoch is ignored: the response to an AlterPartition may be ahead of the metadata log."""
        if image.partition_epoch < self.partition_epoch:
            return False
        self.end_quiet()
        was_leader = self.is_leader
        # After a gap in the leader epochs, followers may have truncated their logs for another leader. Their
        # known progress is then discarded. (Kafka keeps it.)
        led_throughout = was_leader and image.leader_epoch <= self.leader_epoch + 1
        new_epoch = image.leader_epoch > self.leader_epoch
        # The response to an AlterPartition may have brought this partition epoch already, and the next change
        # may be in flight. The controller may have committed it, so it still counts. (Kafka forgets it.)
        if not was_leader or image.partition_epoch > self.partition_epoch:
            self.pending_isr = None
        self._assign(image)
        self.isr = image.isr
        if len(image.replicas) > 1 or self.followers:
            known = self.followers if led_throughout else {}
            others = (replica for replica in image.replicas if replica != self._host.node_id)
            self.followers = {replica: known.get(replica) or FollowerState() for replica in others}
        self.is_leader = True
        if new_epoch or not was_leader:
            self.leader_epoch_start = None
            self.leader_epoch = image.leader_epoch
            if self.followers:
                end = self.log.log_end_offset
                for replica, state in self.followers.items():
                    state.reset(now, end, new_leader=not led_throughout, in_sync=replica in image.isr)
        if self._log is not None:
            self.maybe_increment_high_watermark(self.log)
        # Deletions may have waited for a follower that is no longer a replica.
        self.complete_deletions()
        return not was_leader

    def make_follower(self, image: PartitionImage) -> bool:
        """Becomes or stays a follower. Returns whether the leader epoch is new, so that fetching restarts."""
        if image.partition_epoch < self.partition_epoch:
            return False
        self.end_quiet()
        new_epoch = image.leader_epoch > self.leader_epoch
        was_leader = self.is_leader
        self.is_leader = False
        self._assign(image)
        self.leader_epoch = image.leader_epoch
        self.leader_epoch_start = None
        self.isr, self.pending_isr, self.followers = (), None, {}
        if was_leader or new_epoch:
            self.fail_delayed_operations(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return new_epoch

    def _assign(self, image: PartitionImage) -> None:
        self.leader_id = image.leader
        self.partition_epoch = image.partition_epoch
        self.replicas = image.replicas
        self.adding_replicas = image.adding_replicas

    def check_leader(self, current_leader_epoch: int, *, only_leader: bool = True) -> None:
        """Checks the leader epoch of a request, unless it is -1, and the role. Raises FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER."""
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"The requested leader epoch {current_leader_epoch} of {self.topic}-{self.partition} is "
                    f"older than the current one, {self.leader_epoch}.",
                )
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"The requested leader epoch {current_leader_epoch} of {self.topic}-{self.partition} is "
                f"newer than the one known here, {self.leader_epoch}.",
            )
        if only_leader and not self.is_leader:
            raise self.not_leader()

    def not_leader(self) -> KafkaError:
        """The error of a request that only the leader serves."""
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Broker {self._host.node_id} is not the leader of {self.topic}-{self.partition}.",
        )

    # --- writing ----------------------------------------------------------------------------------

    def effective_min_isr(self, log: PartitionLog) -> int:
        """min.insync.replicas, at most the number of replicas."""
        return min(log.config.min_insync_replicas, len(self.followers) + 1)

    def check_append(self, acks: int) -> PartitionLog:
        """Returns the log if records may be appended. Raises NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS."""
        if not (self.is_leader and self._host.accepts_appends):
            raise self.not_leader()
        log = self.log
        if acks == -1 and self.followers and len(self.isr) < (min_isr := self.effective_min_isr(log)):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The ISR {list(self.isr)} of {self.topic}-{self.partition} is smaller than the effective "
                f"min.insync.replicas, {min_isr}. Not in sync: {sorted(self.followers.keys() - self.isr)}.",
            )
        return log

    def append(self, records: NewBatch, acks: int, now_ms: int, origin: AppendOrigin) -> AppendInfo:
        """Appends as the leader. Raises the errors of `check_append` and of the log."""
        log = self.check_append(acks)
        try:
            info = log.append_as_leader(records, self.leader_epoch, now_ms, origin)
        except LogDirFailure as error:
            self._host.handle_storage_failure(error)
            raise
        self.maybe_increment_high_watermark(log)
        if self.followers:  # followers wait for a higher LEO
            self._wake_fetches()
        return info

    def maximal_isr(self) -> tuple[int, ...]:
        """The ISR that the high watermark waits for. A pending expansion already counts (KIP-497)."""
        pending = self.pending_isr
        return pending.isr if pending is not None and pending.expands else self.isr

    def maybe_increment_high_watermark(self, log: PartitionLog | None = None) -> bool:
        """Raises the leader's high watermark as far as its followers allow. Returns whether it moved."""
        log = log or self.log
        end = log.log_end_offset
        if self.followers:
            if len(self.isr) < self.effective_min_isr(log):
                return False
            now, max_lag_s = self._host.clock.now(), self._host.replica_lag_max_s
            isr, new = self.maximal_isr(), end
            for replica, state in self.followers.items():
                if state.log_end_offset < new and (
                    replica in isr
                    # A caught-up follower outside of the ISR of a busy partition could never join otherwise.
                    or (
                        state.is_caught_up(end, now, max_lag_s)
                        and self._is_isr_eligible(replica, state)
                        and not self._host.metadata.has_failed_directory(self.topic, self.partition, replica)
                    )
                ):
                    new = state.log_end_offset
            end = new
        return self._move_high_watermark(log, end)

    def _move_high_watermark(self, log: PartitionLog, offset: int) -> bool:
        """Raises the high watermark and wakes the requests that wait for it. Returns whether it rose."""
        if offset <= log.high_watermark:
            return False
        log.high_watermark = offset
        self.end_quiet()
        if (delayed := self.waiting) is not None:
            if delayed.fetches:
                delayed.wake_fetches()
            if delayed.appends:
                delayed.complete_appends(offset, self.ack_error(log))
        return True

    def _move_log_start(self, log: PartitionLog, offset: int, reason: str) -> None:
        """Raises the log start offset for a reason other than retention. Wakes deletions, and fetches
        that may wait at a deleted offset. Raises OFFSET_OUT_OF_RANGE above the high watermark."""
        if log.increment_log_start_offset(offset, reason):
            self._wake_fetches()
            self.complete_deletions()

    # --- followers --------------------------------------------------------------------------------

    def follower_fetched(
        self,
        replica_id: int,
        broker_epoch: int,
        offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now: float,
    ) -> None:
        """Records a follower's progress. Raises NOT_LEADER_OR_FOLLOWER for an older incarnation of it."""
        if (state := self.followers.get(replica_id)) is None:
            return
        known_epoch = self._host.metadata.alive_broker_epoch(replica_id)
        if broker_epoch != -1 and known_epoch is not None and known_epoch > broker_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Fetch of broker {replica_id} carries broker epoch {broker_epoch}, the current one is "
                f"{known_epoch}.",
            )
        if state.quiet_in is not None:  # in another session
            self.end_quiet()
        previous_end = state.log_end_offset
        state.fetched(offset, log_start_offset, now, leader_end_offset, broker_epoch)
        self._maybe_expand_isr(replica_id, state)
        if previous_end != state.log_end_offset:
            self.maybe_increment_high_watermark()
        self.complete_deletions()

    def has_follower(self, replica_id: int) -> bool:
        """Whether the broker is another replica of this partition."""
        return replica_id in self.followers

    def _is_isr_eligible(self, replica: int, state: FollowerState) -> bool:
        metadata = self._host.metadata
        if metadata.is_fenced(replica) or metadata.is_shutting_down(replica) or state.broker_epoch is None:
            return False
        return state.broker_epoch == -1 or state.broker_epoch == metadata.alive_broker_epoch(replica)

    def _maybe_expand_isr(self, replica: int, state: FollowerState) -> None:
        if self.pending_isr is not None or replica in self.isr or not self._is_isr_eligible(replica, state):
            return
        log = self.log
        start = self.leader_epoch_start
        if start is None or state.log_end_offset < log.high_watermark or state.log_end_offset < start:
            return
        self._request_isr((*self.isr, replica), expands=True)

    def maybe_shrink_isr(self, now: float, max_lag_s: float) -> None:
        """Requests an ISR without the followers that have not caught up for `max_lag_s`."""
        if not self.is_leader or self.pending_isr is not None or len(self.isr) <= 1:
            return
        end = self.log.log_end_offset
        late = [
            replica
            for replica in self.isr
            if (state := self.followers.get(replica)) is not None
            and not state.is_caught_up(end, now, max_lag_s)
        ]
        if late:
            kept = tuple(replica for replica in self.isr if replica not in late)
            logger.info(
                "[Partition %s-%d broker=%d] Shrinking ISR from %s to %s. Leader: high watermark %d, end "
                "offset %d. Late: %s",
                self.topic,
                self.partition,
                self._host.node_id,
                ",".join(map(str, self.isr)),
                ",".join(map(str, kept)),
                self.log.high_watermark,
                end,
                ", ".join(f"{replica} at {self.followers[replica].log_end_offset}" for replica in late),
            )
            self._request_isr(kept, expands=False)

    def _request_isr(self, isr: tuple[int, ...], *, expands: bool) -> None:
        offset = self._host.metadata.offset
        pending = self.pending_isr = PendingIsr(isr, expands, self.leader_epoch, self.partition_epoch, offset)
        self._host.alter_isr(self, pending)

    def isr_altered(
        self, pending: PendingIsr, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        """Applies the controller's response to an AlterPartition."""
        if self.pending_isr is not pending:
            return  # the metadata log was faster or the role changed
        if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return
        self.end_quiet()
        self.pending_isr = None
        self.isr = isr
        self.partition_epoch = partition_epoch
        updated = "[Partition %s-%d broker=%d] ISR updated to %s and partition epoch to %d"
        ids = ",".join(map(str, isr))
        logger.info(updated, self.topic, self.partition, self._host.node_id, ids, partition_epoch)
        self.maybe_increment_high_watermark()

    def isr_rejected(self, pending: PendingIsr, error: ErrorCode) -> bool:
        """Handles the error of an AlterPartition. Returns whether the same request must be sent again."""
        if self.pending_isr is not pending:
            return False
        if error in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
            # Only these errors prove that the change was not applied: the committed ISR applies again.
            self.pending_isr = None
            # The high watermark had waited for the replica that was to join the ISR.
            self.maybe_increment_high_watermark()
            return False
        return error not in ENDED_BY_METADATA

    # --- following --------------------------------------------------------------------------------

    def follow_offsets(self, high_watermark: int, log_start_offset: int) -> None:
        """Adopts the leader's high watermark, limited to the end of this log, and its log start offset.

        The high watermark comes first, as in ReplicaFetcherThread.processPartitionData, because the log
        start offset must not exceed it. A log start offset after the end of this log is ignored: the
        leader answers the next Fetch with OFFSET_OUT_OF_RANGE.
        """
        log = self.log
        self._move_high_watermark(log, min(high_watermark, log.log_end_offset))
        if log.log_start_offset < log_start_offset <= log.high_watermark:
            self._move_log_start(log, log_start_offset, "leader offset incremented")

    def truncate_to(self, offset: int) -> None:
        """Drops this follower's records from `offset` on. Wakes consumers that wait at a dropped offset."""
        self.log.truncate_to(offset)
        if self.move is not None:
            self.move.truncated(offset)
        self._wake_fetches()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops all records of this follower. Its log continues at `offset`."""
        self.log.truncate_fully_and_start_at(offset)
        if self.move is not None:
            self.move.truncated(offset)
        self._wake_fetches()

    # --- DeleteRecords ----------------------------------------------------------------------------

    def low_watermark(self) -> int:
        """The lowest log start offset of the live replicas, and of the future log of this one."""
        low = self.log.log_start_offset
        metadata = self._host.metadata
        for replica, state in self.followers.items():
            if metadata.alive_broker_epoch(replica) is not None:
                low = min(low, state.log_start_offset)
        return low if self.move is None else min(low, self.move.log_start_offset)

    def delete_records(self, offset: int) -> tuple[int, int]:
        """Raises the log start offset to `offset`, or to the high watermark for -1. Returns it and the low
        watermark. Raises NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION, OFFSET_OUT_OF_RANGE."""
        if not self.is_leader:
            raise self.not_leader()
        wanted = deletion_offset(self.log, offset)
        self._move_log_start(self.log, wanted, "client delete records request")
        return wanted, self.low_watermark()

    # --- waiting requests -------------------------------------------------------------------------

    @property
    def delayed_operations(self) -> DelayedOperations:
        """The requests that wait for this partition."""
        if self.waiting is None:
            self.waiting = DelayedOperations()
        return self.waiting

    def ack_error(self, log: PartitionLog) -> ErrorCode:
        """The error code for a Produce whose records are now below the high watermark: the ISR may have
        shrunk below min.insync.replicas after the append."""
        if self.followers and len(self.maximal_isr()) < self.effective_min_isr(log):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def fail_delayed_operations(self, error: ErrorCode) -> None:
        """Ends the waiting requests after this replica got another role or was removed."""
        self.end_quiet()
        if self.waiting is not None:
            self.waiting.fail(error)

    def end_quiet(self) -> None:
        """Lets every follower's session read this partition again, because it has changed."""
        for state in self.followers.values():
            if (quiet := state.quiet_in) is not None:
                quiet.changed((self.topic_id, self.partition), self)

    def _wake_fetches(self) -> None:
        self.end_quiet()
        if (delayed := self.waiting) is not None and delayed.fetches:
            delayed.wake_fetches()

    def complete_deletions(self) -> None:
        """Completes the deletions that no longer wait for a log start offset."""
        if (delayed := self.waiting) is not None and delayed.has_deletions:
            delayed.complete_deletions(self.low_watermark())
