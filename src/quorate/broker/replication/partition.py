"""One replica on this broker: its role, its ISR, its high watermark, and who waits for it.

A partition holds its log lazily: the log object is made when somebody reads or writes, so that a delta
with thousands of new partitions costs next to nothing, and no file is made before the first append.
Everything runs on the event loop; nothing locks. Facts: KIP-497 (pending ISR), KIP-101 and KIP-320
(leader epochs), KIP-841.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING

from quorate.broker.replication.replica_state import FollowerState, PendingIsr
from quorate.log.errors import LogDirFailure
from quorate.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quorate.broker.replication.purgatory import DelayedAcks, DelayedFetch
    from quorate.broker.replication.replica_manager import ReplicaManager
    from quorate.log.partition.partition_log import PartitionLog
    from quorate.log.partition.producer_state import AppendOrigin
    from quorate.log.partition.results import AppendInfo
    from quorate.metadata.image import PartitionImage

log_ = logging.getLogger("quorate.broker.replication.partition")
NO_LEADER = -1
NO_EPOCH = -1


class Partition:
    """A hosted replica, leader or follower."""

    __slots__ = (
        "_ack_waiters",
        "_fetch_waiters",
        "_log",
        "_manager",
        "adding_replicas",
        "followers",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_epoch_start",
        "leader_id",
        "low_watermark_waiters",
        "partition",
        "partition_epoch",
        "pending_isr",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(self, manager: ReplicaManager, topic: str, partition: int, topic_id: bytes) -> None:
        self._manager = manager
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.is_leader = False
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.leader_epoch_start: int | None = None
        """LEO when this leader epoch began; None while the log has not been touched since."""
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.pending_isr: PendingIsr | None = None
        self.followers: dict[int, FollowerState] = {}
        self.low_watermark_waiters: list[tuple[int, DelayedAcks, int]] | None = None
        self._log: PartitionLog | None = None
        self._fetch_waiters: dict[DelayedFetch, None] | None = None  # in order of arrival, quick to leave
        self._ack_waiters: deque[tuple[int, DelayedAcks, int]] | None = None

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.partition} leader={self.leader_id} epoch={self.leader_epoch})"

    # --- the log ----------------------------------------------------------------------------------

    @property
    def log(self) -> PartitionLog:
        """The log; made, and told of the leader epoch, on first use. Raises KAFKA_STORAGE_ERROR."""
        log = self._log
        if log is None:
            try:
                log = self._log = self._manager.open_log(self)
            except LogDirFailure as error:
                self._manager.note_storage_failure(error)
                raise
        if self.is_leader and self.leader_epoch_start is None:
            self._begin_leader_epoch(log)
        return log

    @property
    def has_log(self) -> bool:
        """Whether the log object exists already (looking does not make it)."""
        return self._log is not None

    def forget_log(self) -> PartitionLog | None:
        """Lets go of the log (the partition is deleted or its directory failed)."""
        log, self._log = self._log, None
        self.leader_epoch_start = None
        return log

    def _begin_leader_epoch(self, log: PartitionLog) -> None:
        # Epochs are noted even where nothing is appended in them: a follower that has records of a
        # later epoch than this leader's last one must find out where to cut.
        self.leader_epoch_start = log.log_end_offset
        log.assign_epoch(self.leader_epoch, log.log_end_offset)
        self.maybe_advance(log)

    # --- role -------------------------------------------------------------------------------------

    def make_leader(self, image: PartitionImage, now: float) -> bool:
        """Takes the leader role as the metadata says; true when it was not the leader before. Older
        partition epochs than the known one are skipped: AlterPartition's answer may be ahead of the
        log."""
        if image.partition_epoch < self.partition_epoch:
            return False
        was_leader = self.is_leader
        new_epoch = image.leader_epoch > self.leader_epoch
        self._assign(image)
        self.isr = image.isr
        self.pending_isr = None
        me = self._manager.node_id
        if len(image.replicas) > 1 or self.followers:
            self.followers = {
                replica: self.followers.get(replica) or FollowerState()
                for replica in image.replicas
                if replica != me
            }
        self.is_leader = True
        if new_epoch or not was_leader:
            self.leader_epoch_start = None
            self.leader_epoch = image.leader_epoch
            if self.followers:
                end = self.log.log_end_offset
                for replica, state in self.followers.items():
                    state.reset(now, end, new_leader=not was_leader, in_sync=replica in image.isr)
        if self._log is not None:
            self.maybe_advance(self.log)
        if self.low_watermark_waiters:
            self._wake_low_watermark()  # a follower that they wait for may be no replica any more
        return not was_leader

    def make_follower(self, image: PartitionImage) -> bool:
        """Takes the follower role; true when the leader epoch is new, so that fetching must begin anew."""
        if image.partition_epoch < self.partition_epoch:
            return False
        new_epoch = image.leader_epoch > self.leader_epoch
        was_leader = self.is_leader
        self.is_leader = False
        self._assign(image)
        self.leader_epoch = image.leader_epoch
        self.leader_epoch_start = None
        self.isr = ()
        self.pending_isr = None
        self.followers = {}
        if was_leader or new_epoch:
            self.fail_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return new_epoch

    def _assign(self, image: PartitionImage) -> None:
        self.leader_id = image.leader
        self.partition_epoch = image.partition_epoch
        self.replicas = image.replicas
        self.adding_replicas = image.adding_replicas

    def check_leader(self, current_leader_epoch: int, *, only_leader: bool = True) -> None:
        """Raises what a request with this view of the partition must be told: FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER. An epoch of -1 is not checked."""
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"The requested leader epoch {current_leader_epoch} of {self.topic}-{self.partition} is "
                    "older "
                    f"than the current one, {self.leader_epoch}.",
                )
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"The requested leader epoch {current_leader_epoch} of {self.topic}-{self.partition} is "
                "newer "
                f"than the one known here, {self.leader_epoch}.",
            )
        if only_leader and not self.is_leader:
            raise self.not_leader()

    def not_leader(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Broker {self._manager.node_id} is not the leader of {self.topic}-{self.partition}.",
        )

    # --- writing ----------------------------------------------------------------------------------

    def effective_min_isr(self, log: PartitionLog) -> int:
        return min(log.config.min_insync_replicas, len(self.followers) + 1)

    def append(self, records: bytes | memoryview, acks: int, now_ms: int, origin: AppendOrigin) -> AppendInfo:
        """Appends as the leader. Raises NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, and what the log
        raises."""
        if not (self.is_leader and self._manager.accepts_appends):
            raise self.not_leader()
        log = self.log
        if acks == -1 and self.followers and len(self.isr) < self.effective_min_isr(log):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The ISR {list(self.isr)} of {self.topic}-{self.partition} is smaller than the "
                f"min.insync.replicas in force, {self.effective_min_isr(log)}.",
            )
        try:
            info = log.append_as_leader(records, self.leader_epoch, now_ms, origin)
        except LogDirFailure as error:
            self._manager.note_storage_failure(error)
            raise
        self.maybe_advance(log)
        if self.followers and self._fetch_waiters:  # followers wait for the LEO
            self._wake_fetches()
        return info

    def maximal_isr(self) -> tuple[int, ...]:
        """The ISR that the high watermark must wait for: with an expansion already counted."""
        pending = self.pending_isr
        return pending.isr if pending is not None and pending.expands else self.isr

    def maybe_advance(self, log: PartitionLog | None = None) -> bool:
        """Moves the leader's high watermark as far as the replicas allow it; whether it moved."""
        log = log or self.log
        end = log.log_end_offset
        if self.followers:
            if len(self.isr) < self.effective_min_isr(log):
                return False
            now = self._manager.clock.now()
            max_lag_s = self._manager.replica_lag_max_s
            isr = self.maximal_isr()
            new = end
            for replica, state in self.followers.items():
                if state.log_end_offset < new and (
                    replica in isr
                    # One that is about to join is waited for, or it would never catch up with a busy leader.
                    or (state.is_caught_up(end, now, max_lag_s) and self._is_isr_eligible(replica, state))
                ):
                    new = state.log_end_offset
            end = new
        return self._move_high_watermark(log, end)

    def _move_high_watermark(self, log: PartitionLog, offset: int) -> bool:
        """The one place where the high watermark of a hosted replica rises: what waits for it is woken
        here. Whether it rose."""
        if offset <= log.high_watermark:
            return False
        log.high_watermark = offset
        if self._fetch_waiters:
            self._wake_fetches()
        if self._ack_waiters:
            self._wake_acks(log)
        return True

    def _move_log_start(self, log: PartitionLog, offset: int, reason: str) -> None:
        """The one place where the log start of a hosted replica is raised for another reason than
        retention. Wakes readers, who may wait at an offset that is gone, and deletions. Raises
        OFFSET_OUT_OF_RANGE above the high watermark."""
        if log.increment_log_start_offset(offset, reason):
            if self._fetch_waiters:
                self._wake_fetches()
            if self.low_watermark_waiters:
                self._wake_low_watermark()

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
        """Notes how far a follower has got. Raises NOT_LEADER_OR_FOLLOWER for a Fetch of an older
        incarnation."""
        state = self.followers.get(replica_id)
        if state is None:
            return
        known_epoch = self._manager.metadata.alive_broker_epoch(replica_id)
        if broker_epoch != -1 and known_epoch is not None and known_epoch > broker_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Fetch of broker {replica_id} carries broker epoch {broker_epoch}, the current one is "
                f"{known_epoch}.",
            )
        previous_end = state.log_end_offset
        state.fetched(offset, log_start_offset, now, leader_end_offset, broker_epoch)
        self._maybe_expand_isr(replica_id, state)
        if previous_end != state.log_end_offset:
            self.maybe_advance()
        if self.low_watermark_waiters:
            self._wake_low_watermark()

    def has_follower(self, replica_id: int) -> bool:
        return replica_id in self.followers

    def _is_isr_eligible(self, replica: int, state: FollowerState) -> bool:
        metadata = self._manager.metadata
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
        self._ask_isr((*self.isr, replica), expands=True)

    def maybe_shrink_isr(self, now: float, max_lag_s: float) -> None:
        """Asks for an ISR without the followers that have not caught up for `max_lag_s`."""
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
            log_.info(
                "[Partition %s-%d broker=%d] Shrinking ISR from %s to %s. Leader: high watermark %d, end "
                "offset %d. Late: %s",
                self.topic,
                self.partition,
                self._manager.node_id,
                ",".join(map(str, self.isr)),
                ",".join(map(str, kept)),
                self.log.high_watermark,
                end,
                ", ".join(f"{replica} at {self.followers[replica].log_end_offset}" for replica in late),
            )
            self._ask_isr(kept, expands=False)

    def _ask_isr(self, isr: tuple[int, ...], *, expands: bool) -> None:
        pending = PendingIsr(isr, expands, self.leader_epoch, self.partition_epoch)
        self.pending_isr = pending
        self._manager.alter_isr(self, pending)

    def isr_altered(
        self, pending: PendingIsr, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        """The controller's answer to an AlterPartition."""
        if self.pending_isr is not pending:
            return  # the metadata log was faster, or the role changed
        if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return
        self.pending_isr = None
        self.isr = isr
        self.partition_epoch = partition_epoch
        log_.info(
            "[Partition %s-%d broker=%d] ISR updated to %s and partition epoch to %d",
            self.topic,
            self.partition,
            self._manager.node_id,
            ",".join(map(str, isr)),
            partition_epoch,
        )
        self.maybe_advance()

    def isr_refused(self, pending: PendingIsr, error: ErrorCode) -> bool:
        """The controller refused; true when the same request is to be sent again."""
        if self.pending_isr is not pending:
            return False
        if error in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
            # The only errors that prove that nothing was applied: back to the committed ISR.
            self.pending_isr = None
            self.maybe_advance()  # it waited for the replica that was to join
            return False
        # After these the metadata log brings the truth, and with it the end of the pending state.
        return error not in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.INVALID_UPDATE_VERSION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NEW_LEADER_ELECTED,
        )

    # --- what a follower takes over from its leader -----------------------------------------------

    def follow_offsets(self, high_watermark: int, log_start_offset: int) -> None:
        """Takes over the leader's high watermark, as far as this log goes, and its log start.

        The high watermark comes first, as in ReplicaFetcherThread.processPartitionData: the log start
        may lie at it, and cannot pass the one that is known here. A log start that lies behind this log
        is left to the next Fetch, which the leader answers with OFFSET_OUT_OF_RANGE.
        """
        log = self.log
        self._move_high_watermark(log, min(high_watermark, log.log_end_offset))
        if log.log_start_offset < log_start_offset <= log.high_watermark:
            self._move_log_start(log, log_start_offset, "leader offset incremented")

    def truncate_to(self, offset: int) -> None:
        """Drops this follower's records from `offset` on. Consumers that read from it look again:
        theirs may be gone."""
        self.log.truncate_to(offset)
        self._wake_fetches()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops all records of this follower; its log goes on at `offset`."""
        self.log.truncate_fully_and_start_at(offset)
        self._wake_fetches()

    # --- DeleteRecords ----------------------------------------------------------------------------

    def low_watermark(self) -> int:
        """The lowest log start offset of the live replicas."""
        low = self.log.log_start_offset
        metadata = self._manager.metadata
        for replica, state in self.followers.items():
            if metadata.alive_broker_epoch(replica) is not None:
                low = min(low, state.log_start_offset)
        return low

    def delete_records(self, offset: int) -> tuple[int, int]:
        """Raises the log start to `offset` (-1: the high watermark); (offset asked for, low watermark).
        Raises NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION, OFFSET_OUT_OF_RANGE."""
        if not self.is_leader:
            raise self.not_leader()
        log = self.log
        if not log.config.deletes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of partition {self.topic}-{self.partition} can not be deleted due to the "
                "configured policy",
            )
        wanted = log.high_watermark if offset == -1 else offset
        if wanted < 0 or wanted > log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The offset {wanted} is not between 0 and the high watermark {log.high_watermark} of "
                f"{self.topic}-{self.partition}",
            )
        self._move_log_start(log, wanted, "client delete records request")
        return wanted, self.low_watermark()

    # --- who waits --------------------------------------------------------------------------------

    def add_fetch_waiter(self, waiter: DelayedFetch) -> None:
        if self._fetch_waiters is None:
            self._fetch_waiters = {}
        self._fetch_waiters[waiter] = None

    def remove_fetch_waiter(self, waiter: DelayedFetch) -> None:
        if self._fetch_waiters is not None:
            self._fetch_waiters.pop(waiter, None)

    def add_ack_waiter(self, required: int, waiter: DelayedAcks, index: int) -> None:
        waiters = self._ack_waiters
        if waiters is None:
            waiters = self._ack_waiters = deque()
        while waiters and waiters[0][1].is_done:  # timed out, or its client went away
            waiters.popleft()
        entry = (required, waiter, index)
        if waiters and waiters[-1][0] > required:  # a retry, answered with the offsets of its first try
            waiters.insert(bisect_right(waiters, required, key=itemgetter(0)), entry)
        else:
            waiters.append(entry)

    def add_low_watermark_waiter(self, required: int, waiter: DelayedAcks, index: int) -> None:
        if self.low_watermark_waiters is None:
            self.low_watermark_waiters = []
        self.low_watermark_waiters.append((required, waiter, index))

    def _wake_fetches(self) -> None:
        for waiter in self._fetch_waiters or ():
            waiter.wake()

    def _wake_acks(self, log: PartitionLog) -> None:
        waiters = self._ack_waiters
        high_watermark = log.high_watermark
        while waiters and waiters[0][0] <= high_watermark:
            _, waiter, index = waiters.popleft()
            waiter.acked(index, self.ack_error(log))

    def ack_error(self, log: PartitionLog) -> ErrorCode:
        """What an append that reached the high watermark is answered: the ISR may have shrunk below the
        minimum after the append."""
        if self.followers and len(self.maximal_isr()) < self.effective_min_isr(log):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def _wake_low_watermark(self) -> None:
        low = self.low_watermark()
        waiters = self.low_watermark_waiters or []
        self.low_watermark_waiters = [entry for entry in waiters if entry[0] > low]
        for required, waiter, index in waiters:
            if required <= low:
                waiter.acked(index, ErrorCode.NONE)

    def fail_waiters(self, error: ErrorCode) -> None:
        """The role or the partition is gone: acks and deletions end with `error`, fetches look again
        and find out."""
        for name in ("_ack_waiters", "low_watermark_waiters"):
            waiters: Iterable[tuple[int, DelayedAcks, int]] = getattr(self, name) or ()
            setattr(self, name, None)
            for _, waiter, index in waiters:
                waiter.acked(index, error)
        self._wake_fetches()
