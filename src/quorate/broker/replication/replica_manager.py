"""The replicas of this broker: follows the metadata, opens logs, appends for coordinators, and shrinks ISRs.

Metadata changes arrive as deltas. The cost of a delta is proportional to its changes for this broker, and
a new partition does not touch the disk. Handlers call the partitions directly; everything runs on one
event loop without locks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from quorate.broker.metrics.topic_stats import BrokerTopicStats
from quorate.broker.replication.partition import Partition
from quorate.broker.replication.purgatory import DelayedAcks
from quorate.broker.replication.replica_directories import AssignDirectory, ReplicaDirectories
from quorate.broker.replication.replication_quota import ReplicationQuotas
from quorate.log.errors import LogDirFailure
from quorate.log.partition.producer_state import AppendOrigin
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from quorate.broker.metadata.cache import MetadataCache
    from quorate.broker.replication.fetcher.replica_fetcher_manager import Fetchers
    from quorate.broker.replication.replica_state import PendingIsr
    from quorate.clock import Clock
    from quorate.log.directories.manager import LogManager
    from quorate.log.partition.partition_log import PartitionLog
    from quorate.metadata.image import MetadataDelta, MetadataImage, PartitionImage, TopicImage

logger = logging.getLogger("quorate.broker.replicas")

LeadershipListener = Callable[[str, int, "int | None"], None]
"""Called with (topic, partition, leader epoch), or None as the epoch when this broker stops leading it."""


class IsrSender(Protocol):
    """Sends ISR changes to the controller."""

    def submit(self, partition: Partition, pending: PendingIsr) -> None:
        """Sends a change. The controller's answer reaches the partition later."""
        ...


class ReplicaManager:
    """Hosts partitions, by (topic, partition)."""

    def __init__(
        self,
        *,
        node_id: int,
        metadata: MetadataCache,
        logs: LogManager,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        replica_lag_max_s: float,
        isr_sender: IsrSender | None = None,
        make_fetchers: Callable[[ReplicaManager], Fetchers] | None = None,
        storage_failed: Callable[[LogDirFailure], None] | None = None,
        assign_directory: AssignDirectory | None = None,
        directory_id_of: Callable[[Path], bytes] = lambda _directory: bytes(16),
        quotas: ReplicationQuotas | None = None,
    ) -> None:
        """`make_fetchers` is called when the first partition is followed: a broker of a cluster of one
        needs no fetchers. `storage_failed` is called when reading or writing a log shows that its
        directory is broken. `assign_directory` is called when a replica is in another directory than the
        metadata says.
        """
        self.node_id = node_id
        self.metadata = metadata
        self.logs = logs
        self.clock = clock
        self.loop = loop
        self.replica_lag_max_s = replica_lag_max_s
        self.partitions: dict[tuple[str | None, int], Partition] = {}
        self.stats = BrokerTopicStats()
        self.damage_log = RateLimitedLog()
        self.isr_sender = isr_sender
        self.fetchers: Fetchers | None = None
        self._make_fetchers = make_fetchers
        self.storage_failed = storage_failed
        self.directories = ReplicaDirectories(node_id, metadata, logs, directory_id_of, assign_directory)
        self.quotas = quotas or ReplicationQuotas(node_id)
        self.is_shutting_down = False
        self.accepts_appends = True
        """False during a controlled shutdown without a reachable controller, which could move the
        leaderships, and after a controlled shutdown. Records appended then would be on no other replica."""
        self._leadership: list[tuple[str | None, LeadershipListener]] = []
        self._offline: dict[tuple[str, int], bytes] = {}
        """Partitions in a failed directory, with their topic ids."""

    # --- looking up -------------------------------------------------------------------------------

    def partition(self, topic: str, partition: int) -> Partition:
        """The hosted partition. Raises NOT_LEADER_OR_FOLLOWER if only other brokers host it,
        UNKNOWN_TOPIC_OR_PARTITION if it does not exist, KAFKA_STORAGE_ERROR if its directory failed."""
        if (found := self.partitions.get((topic, partition))) is not None:
            return found
        raise self.missing(topic, partition)

    def missing(self, topic: str, partition: int) -> KafkaError:
        """The error that says why a partition is not hosted."""
        if (topic, partition) in self._offline:
            return KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Partition {topic}-{partition} is in an offline log directory.",
            )
        if self.metadata.contains(topic, partition):
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Broker {self.node_id} has no replica of {topic}-{partition}.",
            )
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{partition}.")

    def local_log(self, topic: str, partition: int) -> PartitionLog | None:
        """The log of a partition, or None if it is not hosted."""
        found = self.partitions.get((topic, partition))
        return None if found is None else found.log

    def open_log(self, partition: Partition) -> PartitionLog:
        """Opens the log on disk, or creates one in the directory that the metadata assigns. A new log has
        no files before its first append."""
        log = self.logs.get(partition.topic, partition.partition)
        if log is None:
            image = self.metadata.partition(partition.topic, partition.partition)
            directory = None
            if image is not None:
                for replica, directory_id in zip(image.replicas, image.directories, strict=False):
                    if replica == self.node_id:
                        directory = directory_id
            log = self._create_log(partition, directory)
            self.directories.check(partition, directory, log)
        elif log.topic_id is None:
            self._adopt_log(partition, log)
        return log

    def _create_log(self, partition: Partition, directory: bytes | None) -> PartitionLog:
        """Creates a log. If a directory fails meanwhile, the log is placed in another one, as in Kafka. A
        follower would otherwise not be copied until its next leader epoch."""
        while True:
            if directory is not None and self.directories.is_offline(directory):
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"The directory that {partition.topic}-{partition.partition} is assigned to is offline.",
                    remedy=f"kafka-log-dirs --describe --broker-list {self.node_id} shows the directories.",
                )
            try:
                return self.logs.get_or_create(
                    partition.topic,
                    partition.partition,
                    partition.topic_id,
                    overrides=self.metadata.image.configs.topic(partition.topic),
                    directory_id=directory,
                    now_ms=self.clock.now_ms(),
                )
            except LogDirFailure as failure:
                self.handle_storage_failure(failure)
                if not self.logs.online_dirs() or self.logs.is_online(Path(failure.directory)):
                    raise

    def _adopt_log(self, partition: Partition, log: PartitionLog) -> None:
        """Gives a log its topic id, which a crash has lost: `partition.metadata` is durable only after the
        first flush of the log.

        The log may belong to a deleted topic of the same name, whose records may have the same epochs as
        those of the current topic. A follower therefore copies all records from its leader again. A
        leader keeps them, because there may be no other copy, unless their epoch is later than its own.
        """
        latest = -1 if log.latest_epoch is None else log.latest_epoch
        follows = not partition.is_leader and partition.leader_id >= 0
        if log.log_end_offset > 0 and (follows or latest > partition.leader_epoch):
            log.truncate_fully_and_start_at(0)
            self.logs.lower_checkpoints([log])
        log.adopt_topic_id(partition.topic_id)

    def go_offline(self, keys: Iterable[tuple[str, int]], directory_id: bytes | None = None) -> None:
        """Stops serving partitions whose directory failed. `directory_id` also includes those that the
        metadata assigns to it and whose log was not opened yet: a new log in another directory would
        lack the records that the failed one may hold."""
        lost = list(keys)
        if directory_id is not None or self.directories.online is not None:
            if directory_id is not None:
                self.directories.offline.add(directory_id)
            for (topic, index), partition in self.partitions.items():
                assert topic is not None
                image = self.metadata.partition(topic, index)
                if (
                    not partition.has_log
                    and self.logs.get(topic, index) is None  # else the log is in another directory
                    and image is not None
                    and self.node_id in image.replicas
                    and self.directories.is_offline(image.directory(self.node_id))
                ):
                    lost.append((topic, index))
        for key in lost:
            if (gone := self.partitions.pop(key, None)) is None:
                continue
            self._offline[key] = gone.topic_id
            if self.fetchers is not None:
                self.fetchers.stop_following(gone)
            if gone.move is not None:
                gone.move.cancel(delete=False)
            was_leader = gone.is_leader
            gone.is_leader = False
            gone.forget_log()
            gone.fail_delayed_operations(ErrorCode.KAFKA_STORAGE_ERROR)
            if was_leader and self._leadership:
                self._notify_leadership(gone, None)

    def handle_storage_failure(self, error: BaseException) -> None:
        """Reports a LogDirFailure to the broker. Other errors do not concern a directory."""
        if isinstance(error, LogDirFailure) and self.storage_failed is not None:
            self.storage_failed(error)

    def leaders(self) -> Iterator[Partition]:
        """The partitions that this broker leads."""
        return (partition for partition in self.partitions.values() if partition.is_leader)

    @property
    def offline_count(self) -> int:
        """The number of replicas in failed directories."""
        return len(self._offline)

    # --- leadership -------------------------------------------------------------------------------

    def subscribe_leadership(self, listener: LeadershipListener, topic: str | None = None) -> None:
        """Calls `listener` whenever this broker starts or stops leading a partition (of `topic`). Calls it
        at once for the partitions that it already leads."""
        self._leadership.append((topic, listener))
        for partition in self.partitions.values():
            if partition.is_leader and topic in (None, partition.topic):
                listener(partition.topic, partition.partition, partition.leader_epoch)

    def _notify_leadership(self, partition: Partition, epoch: int | None) -> None:
        for topic, listener in self._leadership:
            if topic is None or topic == partition.topic:
                listener(partition.topic, partition.partition, epoch)

    # --- metadata ---------------------------------------------------------------------------------

    def apply_image(self, image: MetadataImage) -> None:
        """Starts every replica that the first image assigns to this broker."""
        by_id = image.topics.by_id
        for topic_id, partition_id in image.topics.partitions_of(self.node_id):
            topic = by_id[topic_id]
            self._apply_partition(topic, partition_id, topic.partitions[partition_id])

    def apply_delta(self, delta: MetadataDelta) -> None:
        """Applies a metadata delta. Deleted partitions come first in it, because a deleted topic may have
        been created again under its name. Unexpected errors of single partitions are raised when all others
        have been changed: they do not get this delta again. (Kafka skips those after the first error.)"""
        me, failed = self.node_id, list[Exception]()
        for topic, partition_id, _, new in delta.partition_changes_of(me) if delta.topics_touched else ():
            try:
                if new is None or me not in new.replicas:
                    self._remove(topic.name, partition_id, topic.id)
                else:
                    self._apply_partition(topic, partition_id, new)
            except Exception as error:
                failed.append(error)
        if failed:
            raise ExceptionGroup("some partitions could not be changed", failed)

    def _apply_partition(self, topic: TopicImage, partition_id: int, image: PartitionImage) -> None:
        key = (topic.name, partition_id)
        if self._offline:
            lost = self._offline.get(key)
            if lost == topic.id:
                return
            if lost is not None:
                del self._offline[key]
        partition = self.partitions.get(key)
        if partition is None:
            if self.directories.is_offline(image.directory(self.node_id)) and self.logs.get(*key) is None:
                self._offline[key] = topic.id
                return
            partition = self.partitions[key] = Partition(self, topic.name, partition_id, topic.id)
        elif partition.topic_id != topic.id:
            self._remove(topic.name, partition_id, partition.topic_id)
            partition = self.partitions[key] = Partition(self, topic.name, partition_id, topic.id)
        try:
            if image.leader == self.node_id:
                self._become_leader(partition, image)
            else:
                self._become_follower(partition, image)
            if partition.move is not None:
                partition.move.assigned(image.directory(self.node_id))
            log = self.logs.get(topic.name, partition_id)
            if log is not None:
                self.directories.check(partition, image.directory(self.node_id), log)
            elif image.leader < 0 and self.directories.begins_again(partition, image):
                self.open_log(partition)
        except (KafkaError, OSError) as error:
            logger.exception("[ReplicaManager broker=%d] Could not take over %s-%d", self.node_id, *key)
            self.handle_storage_failure(error)

    def _become_leader(self, partition: Partition, image: PartitionImage) -> None:
        epoch = partition.leader_epoch
        if self.fetchers is not None and not partition.is_leader and partition.leader_epoch >= 0:
            self.fetchers.stop_following(partition)
        new_leader = partition.make_leader(image, self.clock.now())
        if self._leadership and (new_leader or partition.leader_epoch != epoch):
            self._notify_leadership(partition, partition.leader_epoch)

    def _become_follower(self, partition: Partition, image: PartitionImage) -> None:
        was_leader = partition.is_leader
        new_epoch = partition.make_follower(image)
        if self._leadership and was_leader and not partition.is_leader:
            self._notify_leadership(partition, None)
        if self.is_shutting_down and (image.leader < 0 or self.node_id not in image.isr):
            if self.fetchers is not None:
                self.fetchers.stop_following(partition)
        elif new_epoch or was_leader:
            if self.fetchers is not None:
                self.fetchers.stop_following(partition)
            if image.leader >= 0:
                if self.fetchers is None and self._make_fetchers is not None:
                    self.fetchers = self._make_fetchers(self)
                if self.fetchers is not None:
                    self.fetchers.start_following(partition)

    def _remove(self, topic: str, partition_id: int, topic_id: bytes) -> None:
        if self._offline.get((topic, partition_id)) == topic_id:
            del self._offline[(topic, partition_id)]
        partition = self.partitions.get((topic, partition_id))
        if partition is None or partition.topic_id != topic_id:
            return
        del self.partitions[(topic, partition_id)]
        if self.fetchers is not None:
            self.fetchers.stop_following(partition)
        if partition.move is not None:
            partition.move.cancel(delete=True)
        was_leader = partition.is_leader
        partition.is_leader = False
        partition.fail_delayed_operations(self.missing(topic, partition_id).code)
        if was_leader and self._leadership:
            self._notify_leadership(partition, None)
        partition.forget_log()
        if (log := self.logs.get(topic, partition_id)) is not None and log.topic_id in (None, topic_id):
            try:
                self.logs.delete(topic, partition_id)
            except LogDirFailure as error:
                self.handle_storage_failure(error)

    # --- coordinators -----------------------------------------------------------------------------

    def append_internal(
        self,
        topic: str,
        partition_id: int,
        batch: bytes,
        *,
        origin: AppendOrigin = AppendOrigin.COORDINATOR,
        timeout_s: float = 5.0,
    ) -> asyncio.Future[int]:
        """Appends a batch for a coordinator. The future returns the offset of the batch when the high
        watermark has passed it.

        The batch is in the log when this returns, so batches have the order of the calls. Raises, or
        fails the future with, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, NOT_ENOUGH_REPLICAS,
        REQUEST_TIMED_OUT, or an error of the log.
        """
        partition = self.partition(topic, partition_id)
        info = partition.append(batch, -1, self.clock.now_ms(), origin)
        stats = self.stats.topic(topic)
        stats.messages_in += info.last_offset - info.first_offset + 1
        stats.bytes_in += len(batch)
        log = partition.log
        required = info.last_offset + 1
        if log.high_watermark >= required:
            done: asyncio.Future[int] = self.loop.create_future()
            error = partition.ack_error(log)
            if error == ErrorCode.NONE:
                done.set_result(info.first_offset)
            else:
                done.set_exception(KafkaError(error))
            return done
        errors: list[ErrorCode] = []

        def finish() -> int:
            if errors[0] != ErrorCode.NONE:
                raise KafkaError(errors[0])
            return info.first_offset

        waiter = DelayedAcks(
            self.loop, [(partition, required)], timeout_s, lambda _index, error: errors.append(error), finish
        )
        return waiter.future

    # --- ISR --------------------------------------------------------------------------------------

    def alter_isr(self, partition: Partition, pending: PendingIsr) -> None:
        """Sends an ISR change to the controller."""
        if self.isr_sender is not None:
            self.isr_sender.submit(partition, pending)

    def shrink_isrs(self) -> None:
        """Requests ISRs without the followers that lag. Called twice in `replica.lag.time.max.ms`.

        Also advances the high watermarks: one may have waited for a follower outside the ISR that was
        caught up and is now fenced or late, or for a min.insync.replicas that was lowered. Neither
        changes the partition's metadata.
        """
        now = self.clock.now()
        for partition in self.partitions.values():
            if partition.is_leader and partition.followers:
                partition.maybe_shrink_isr(now, self.replica_lag_max_s)
                if partition.has_log:
                    partition.maybe_increment_high_watermark()
                    start = partition.log.log_start_offset
                    if any(state.log_start_offset < start for state in partition.followers.values()):
                        partition.end_quiet()  # retention may have raised the log start offset
