"""The replicas of this broker: which there are, who leads them, appends, and the upkeep that runs on timers.

Metadata changes arrive as deltas and cost in proportion to what they change for this broker: making a
partition object touches no disk. Handlers call straight into the partitions; there is one event loop
and no lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from quorate.broker.replication.partition import Partition
from quorate.broker.replication.purgatory import DelayedAcks
from quorate.log.directories.manager import RESERVED_DIRECTORY_IDS
from quorate.log.errors import LogDirFailure
from quorate.metadata.image import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.uuids import uuid_text

if TYPE_CHECKING:
    from pathlib import Path

    from quorate.broker.clock import Clock
    from quorate.broker.metadata.cache import MetadataCache
    from quorate.broker.replication.replica_state import PendingIsr
    from quorate.log.directories.manager import LogManager
    from quorate.log.partition.partition_log import PartitionLog
    from quorate.log.partition.producer_state import AppendOrigin
    from quorate.metadata.image import MetadataDelta, MetadataImage, PartitionImage, TopicImage

log_ = logging.getLogger("quorate.broker.replicas")

LeadershipListener = Callable[[str, int, "int | None"], None]
"""(topic, partition, leader epoch; None when this broker does not lead it any more)."""


class IsrSender(Protocol):
    """Carries ISR changes to the controller."""

    def submit(self, partition: Partition, pending: PendingIsr) -> None: ...


class FollowerFetching(Protocol):
    """Copies partitions from their leaders."""

    def start_following(self, partition: Partition) -> None: ...

    def stop_following(self, partition: Partition) -> None: ...

    async def close(self) -> None: ...


class ReplicaManager:
    """Hosted partitions by (topic, partition)."""

    def __init__(
        self,
        *,
        node_id: int,
        metadata: MetadataCache,
        logs: LogManager,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        replica_lag_max_s: float,
    ) -> None:
        self.node_id = node_id
        self.metadata = metadata
        self.logs = logs
        self.clock = clock
        self.loop = loop
        self.replica_lag_max_s = replica_lag_max_s
        self.partitions: dict[tuple[str | None, int], Partition] = {}
        self.isr_sender: IsrSender | None = None
        self.fetchers: FollowerFetching | None = None
        self.make_fetchers: Callable[[], FollowerFetching] | None = None
        """Makes `fetchers` when the first partition is followed: a broker of a cluster of one never
        needs them."""
        self.storage_failed: Callable[[LogDirFailure], None] | None = None
        """Told when reading or writing a log found its directory broken."""
        self.assign_directory: Callable[[bytes, int, bytes], None] | None = None
        """(topic id, partition, directory id): told where a replica is when the metadata says otherwise."""
        self.directory_id_of: Callable[[Path], bytes] = lambda _directory: bytes(16)
        self.is_shutting_down = False
        self.accepts_appends = True
        """False on a broker that leaves and hears no controller which could move its leaderships, and
        on one whose controlled shutdown is over. What it took then would be on no other replica."""
        self.create_topic: Callable[[str], asyncio.Future[None]] | None = None
        self._leadership: list[tuple[str | None, LeadershipListener]] = []
        self._offline: dict[tuple[str, int], bytes] = {}
        """Partitions whose directory failed, with their topic ids."""
        self._offline_directories: set[bytes] = set()
        self.online_directories: frozenset[bytes] | None = None
        """Set when a directory could not be read at the start: what its id is, nobody knows; it is none
        of these."""

    # --- looking up -------------------------------------------------------------------------------

    def partition(self, topic: str, partition: int) -> Partition:
        """The hosted partition. Raises NOT_LEADER_OR_FOLLOWER when another broker has it,
        UNKNOWN_TOPIC_OR_PARTITION when nobody does, KAFKA_STORAGE_ERROR when its directory failed."""
        found = self.partitions.get((topic, partition))
        if found is not None:
            return found
        raise self.missing(topic, partition)

    def missing(self, topic: str, partition: int) -> KafkaError:
        """Why a partition is not hosted."""
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
        """The log of a hosted partition, None when it is not hosted."""
        found = self.partitions.get((topic, partition))
        return None if found is None else found.log

    def open_log(self, partition: Partition) -> PartitionLog:
        """The log as found on disk, or a new one (which makes no file yet) in the directory that the
        metadata names."""
        log = self.logs.get(partition.topic, partition.partition)
        if log is None:
            image = self.metadata.partition(partition.topic, partition.partition)
            directory = None
            if image is not None:
                for replica, directory_id in zip(image.replicas, image.directories, strict=False):
                    if replica == self.node_id:
                        directory = directory_id
            if directory is not None and self._is_offline(directory):
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"The directory that {partition.topic}-{partition.partition} is assigned to is offline.",
                )
            log = self.logs.create(
                partition.topic,
                partition.partition,
                partition.topic_id,
                overrides=self.metadata.image.configs.topic(partition.topic),
                directory_id=directory,
                now_ms=self.clock.now_ms(),
            )
            self._check_directory(partition.topic_id, partition.partition, directory, log)
        elif log.topic_id is None:  # its partition.metadata was lost, or comes from before topics had ids
            log.adopt_topic_id(partition.topic_id)
        return log

    def assigned_directory(self, partition: Partition) -> Path:
        """Where the metadata puts a replica; the first online directory where it does not say."""
        image = self.metadata.partition(partition.topic, partition.partition)
        online = self.logs.online_dirs()
        if image is not None and self.node_id in image.replicas:
            wanted = image.directory(self.node_id)
            for directory in online:
                if self.directory_id_of(directory) == wanted:
                    return directory
        return online[0]

    def _check_directory(
        self, topic_id: bytes, partition: int, assigned: bytes | None, log: PartitionLog
    ) -> None:
        if self.assign_directory is not None:
            actual = self.directory_id_of(log.dir.parent)
            if actual != assigned:
                self.assign_directory(topic_id, partition, actual)

    def _check_leaderless(self, partition: Partition, image: PartitionImage) -> None:
        """Handles a leaderless partition whose log was here, in a directory that this broker does not
        have any more.

        The controller elects this replica once it is assigned to another directory (KIP-858). That is
        right if there is no other replica. If there is one, it would truncate its log to the empty one
        of this broker, so that the partition stays offline until the operator chooses.
        """
        me = self.node_id
        directory = image.directory(me)
        own = {self.directory_id_of(path) for path in self.logs.online_dirs()}
        if (
            directory in own
            or directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)
            or self._is_offline(directory)
        ):
            return
        if len(image.replicas) == 1:
            log_.warning(
                "[ReplicaManager broker=%d] The log of %s-%d was in log directory %s, which this broker does "
                "not have any "
                "more, and there is no other replica. The partition begins anew without records.",
                me,
                partition.topic,
                partition.partition,
                uuid_text(directory),
            )
            self.open_log(partition)
        elif image.isr == (me,) or (not (image.isr or image.elr) and image.last_known_elr == (me,)):
            log_.warning(
                "[ReplicaManager broker=%d] The log of %s-%d was in log directory %s, which this broker does "
                "not have any "
                "more, and no other replica is in sync. The partition stays offline: elect another replica "
                "by an unclean "
                "leader election, or delete the topic.",
                me,
                partition.topic,
                partition.partition,
                uuid_text(directory),
            )

    def go_offline(self, keys: Iterable[tuple[str, int]], directory_id: bytes | None = None) -> None:
        """The logs of these partitions are lost with their directory: they are served no more.
        `directory_id` adds those that the metadata puts there and that have no log yet: one made
        elsewhere would forget what the directory may hold."""
        lost = list(keys)
        if directory_id is not None or self.online_directories is not None:
            if directory_id is not None:
                self._offline_directories.add(directory_id)
            for (topic, index), partition in self.partitions.items():
                assert topic is not None
                image = self.metadata.partition(topic, index)
                if (
                    not partition.has_log
                    and image is not None
                    and self.node_id in image.replicas
                    and self._is_offline(image.directory(self.node_id))
                ):
                    lost.append((topic, index))
        for key in lost:
            gone = self.partitions.pop(key, None)
            if gone is None:
                continue
            self._offline[key] = gone.topic_id
            if self.fetchers is not None:
                self.fetchers.stop_following(gone)
            was_leader = gone.is_leader
            gone.is_leader = False
            gone.forget_log()
            gone.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)
            if was_leader and self._leadership:
                self._tell_leadership(gone, None)

    def _is_offline(self, directory_id: bytes) -> bool:
        """Whether a replica that the metadata puts there must not be looked for, or made, elsewhere."""
        if directory_id in self._offline_directories:
            return True
        online = self.online_directories
        return (
            online is not None and directory_id not in online and directory_id not in RESERVED_DIRECTORY_IDS
        )

    def note_storage_failure(self, error: BaseException) -> None:
        """Passes a broken directory on; any other error is none of this broker's disks."""
        if isinstance(error, LogDirFailure) and self.storage_failed is not None:
            self.storage_failed(error)

    def leaders(self) -> Iterator[Partition]:
        return (partition for partition in self.partitions.values() if partition.is_leader)

    # --- leadership -------------------------------------------------------------------------------

    def subscribe_leadership(self, listener: LeadershipListener, topic: str | None = None) -> None:
        """Calls `listener` whenever this broker starts or stops leading a partition (of `topic`), and
        at once for those that it leads already."""
        self._leadership.append((topic, listener))
        for partition in self.partitions.values():
            if partition.is_leader and topic in (None, partition.topic):
                listener(partition.topic, partition.partition, partition.leader_epoch)

    def _tell_leadership(self, partition: Partition, epoch: int | None) -> None:
        for topic, listener in self._leadership:
            if topic is None or topic == partition.topic:
                listener(partition.topic, partition.partition, epoch)

    # --- metadata ---------------------------------------------------------------------------------

    def apply_image(self, image: MetadataImage) -> None:
        """Takes over every replica that an image gives this broker (start-up)."""
        by_id = image.topics.by_id
        for topic_id, partition_id in image.topics.partitions_of(self.node_id):
            topic = by_id[topic_id]
            self._apply_partition(topic, partition_id, topic.partitions[partition_id])

    def apply_delta(self, delta: MetadataDelta) -> None:
        """Follows a step of the metadata: deleted partitions first, since a topic may have come back
        under its name."""
        if not delta.topics_touched:
            return
        me = self.node_id
        for topic, partition_id, _, new in delta.partition_changes():
            if new is None or me not in new.replicas:
                self._remove(topic.name, partition_id, topic.id)
            else:
                self._apply_partition(topic, partition_id, new)

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
            if self._is_offline(image.directory(self.node_id)) and self.logs.get(*key) is None:
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
            if self.assign_directory is not None:
                log = self.logs.get(topic.name, partition_id)
                if log is not None:
                    self._check_directory(topic.id, partition_id, image.directory(self.node_id), log)
                elif image.leader < 0:
                    self._check_leaderless(partition, image)
        except (KafkaError, OSError) as error:
            log_.exception("[ReplicaManager broker=%d] Could not take over %s-%d", self.node_id, *key)
            self.note_storage_failure(error)

    def _become_leader(self, partition: Partition, image: PartitionImage) -> None:
        epoch = partition.leader_epoch
        if self.fetchers is not None and not partition.is_leader and partition.leader_epoch >= 0:
            self.fetchers.stop_following(partition)
        new_leader = partition.make_leader(image, self.clock.now())
        if self._leadership and (new_leader or partition.leader_epoch != epoch):
            self._tell_leadership(partition, partition.leader_epoch)

    def _become_follower(self, partition: Partition, image: PartitionImage) -> None:
        was_leader = partition.is_leader
        new_epoch = partition.make_follower(image)
        if self._leadership and was_leader and not partition.is_leader:
            self._tell_leadership(partition, None)
        if self.is_shutting_down and (image.leader < 0 or self.node_id not in image.isr):
            if self.fetchers is not None:
                self.fetchers.stop_following(partition)
        elif new_epoch or was_leader:
            if self.fetchers is not None:
                self.fetchers.stop_following(partition)
            if image.leader >= 0:
                if self.fetchers is None and self.make_fetchers is not None:
                    self.fetchers = self.make_fetchers()
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
        was_leader = partition.is_leader
        partition.is_leader = False
        partition.fail_waiters(self.missing(topic, partition_id).code)
        if was_leader and self._leadership:
            self._tell_leadership(partition, None)
        partition.forget_log()
        log = self.logs.get(topic, partition_id)
        if log is not None and log.topic_id in (None, topic_id):
            try:
                self.logs.delete(topic, partition_id)
            except LogDirFailure as error:
                self.note_storage_failure(error)

    # --- appends of the broker's own coordinators -------------------------------------------------

    def append_internal(
        self,
        topic: str,
        partition_id: int,
        batch: bytes,
        *,
        origin: AppendOrigin | None = None,
        timeout_s: float = 5.0,
    ) -> asyncio.Future[int]:
        """Appends as a coordinator; the future gives the offset of the batch once its high watermark
        passed it.

        The append itself happens before this returns, so calls are ordered. Raises, or the future fails
        with, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, NOT_ENOUGH_REPLICAS, REQUEST_TIMED_OUT
        or what the log raises.
        """
        if origin is None:
            from quorate.log.partition.producer_state import AppendOrigin as Origin

            origin = Origin.COORDINATOR
        partition = self.partition(topic, partition_id)
        info = partition.append(batch, -1, self.clock.now_ms(), origin)
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

    def ensure_topic(self, name: str) -> asyncio.Future[None]:
        """Has the controller create one of the internal topics; done when this broker's metadata has it."""
        assert self.create_topic is not None, "the broker is not started"
        return self.create_topic(name)

    # --- ISR --------------------------------------------------------------------------------------

    def alter_isr(self, partition: Partition, pending: PendingIsr) -> None:
        if self.isr_sender is not None:
            self.isr_sender.submit(partition, pending)

    def shrink_isrs(self) -> None:
        """Drops followers that lag from the ISRs (run every half lag time; costs nothing for
        unreplicated partitions).

        Looks at the high watermarks again, too: one that waits for a follower that is about to join may
        go on when that one is fenced or has not caught up for too long, and one that waits for
        min.insync.replicas when the topic asks for less. Neither is a change of the partition.
        """
        now = self.clock.now()
        for partition in self.partitions.values():
            if partition.is_leader and partition.followers:
                partition.maybe_shrink_isr(now, self.replica_lag_max_s)
                if partition.has_log:
                    partition.maybe_advance()
