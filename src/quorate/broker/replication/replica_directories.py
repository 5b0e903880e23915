"""The log directories of the replicas of this broker, on its disks and in the metadata (KIP-858)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.metadata.image import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from quorate.protocol.uuids import is_reserved, uuid_text

if TYPE_CHECKING:
    from quorate.broker.metadata.cache import MetadataCache
    from quorate.broker.replication.partition import Partition
    from quorate.log.directories.manager import LogManager
    from quorate.log.partition.partition_log import PartitionLog
    from quorate.metadata.image import PartitionImage

logger = logging.getLogger("quorate.broker.replicas")

AssignDirectory = Callable[[bytes, int, bytes], None]
"""Called with (topic id, partition, directory id)."""


class ReplicaDirectories:
    """The directories that the metadata assigns to replicas, and those that have failed."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataCache,
        logs: LogManager,
        id_of: Callable[[Path], bytes],
        assign: AssignDirectory | None,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._logs = logs
        self.id_of = id_of
        """The id of a log directory."""
        self.assign = assign
        """Reports the directory of a replica to the controller. None in tests."""
        self.offline: set[bytes] = set()
        """The ids of failed directories."""
        self.online: frozenset[bytes] | None = None
        """Set if a directory could not be read at startup. Its id is unknown, but not one of these."""
        self.has_unread = False
        """Whether there may be logs that were not found at startup, because their directory was offline."""

    def assigned_to(self, partition: Partition) -> Path:
        """The directory that the metadata assigns to a replica, else the first online one that is not
        cordoned."""
        image = self._metadata.partition(partition.topic, partition.partition)
        online = self._logs.online_dirs()
        if image is not None and self._node_id in image.replicas:
            wanted = image.directory(self._node_id)
            for directory in online:
                if self.id_of(directory) == wanted:
                    return directory
        return next((directory for directory in online if directory not in self._logs.cordoned), online[0])

    def check(self, partition: Partition, assigned: bytes | None, log: PartitionLog) -> None:
        """Reports the directory of a log if the metadata has another one, unless the log moves there.

        If a move has reported its target, the report of the old directory could replace that one in
        the queue, and the move would wait forever.
        """
        if self.assign is None or (partition.move is not None and partition.move.awaits_metadata):
            return
        actual = self.id_of(log.log_dir)
        if actual == assigned:
            return
        future = self._logs.futures.get(log.topic, log.partition)
        if future is None or self.id_of(future.log_dir) != assigned:
            self.assign(partition.topic_id, partition.partition, actual)

    def begins_again(self, partition: Partition, image: PartitionImage) -> bool:
        """Whether a leaderless partition gets a new log, because its log was in a directory that this broker
        no longer has.

        The controller elects this replica as soon as it is assigned to another directory (KIP-858). That
        is right if no other replica exists. Otherwise the other replicas would truncate their logs to
        the empty one of this broker. Therefore the partition stays offline until the operator decides.
        """
        if self.assign is None:
            return False
        me = self._node_id
        directory = image.directory(me)
        own = {self.id_of(path) for path in self._logs.online_dirs()}
        if (
            directory in own
            or directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)
            or self.is_offline(directory)
        ):
            return False
        if len(image.replicas) == 1:
            logger.warning(
                "[ReplicaManager broker=%d] The log of %s-%d was in log directory %s, which this broker no "
                "longer has, and no other replica exists. The partition starts again without records.",
                me,
                partition.topic,
                partition.partition,
                uuid_text(directory),
            )
            return True
        if image.isr == (me,) or (not (image.isr or image.elr) and image.last_known_elr == (me,)):
            logger.warning(
                "[ReplicaManager broker=%d] The log of %s-%d was in log directory %s, which this broker no "
                "longer has, and no other replica is in sync. The partition stays offline: elect "
                "another replica by an unclean leader election, or delete the topic.",
                me,
                partition.topic,
                partition.partition,
                uuid_text(directory),
            )
        return False

    def is_offline(self, directory_id: bytes) -> bool:
        """Whether the directory failed. A replica assigned to it must not be created in another one. A
        metadata.version without directories does not say where a replica is: it may be in one that was not
        read."""
        if directory_id in self.offline:
            return True
        if directory_id == MIGRATING_DIRECTORY:
            return self.has_unread
        online = self.online
        return online is not None and directory_id not in online and not is_reserved(directory_id)
