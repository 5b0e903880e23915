"""Locks the log directories of a node and checks which are usable."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from quorate.config.kafka_config import KafkaConfig
from quorate.log.directories import meta_properties
from quorate.log.directories.lock import DirLock, LockFileError
from quorate.protocol.metadata_partition import METADATA_DIRECTORY

logger = logging.getLogger(__name__)


class LogDirectories:
    """The locked log directories of a node."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._locks: list[DirLock] = []

    def lock(self) -> list[Path]:
        """Locks the log directories and returns those that can be read.

        A directory that cannot be read is logged as offline, as are its replicas later. Raises the
        error instead if it is the metadata directory or if no other log directory is left:
        MetaPropertiesError, DirLockedError, OSError. The caller then calls `release`.
        """
        meta_properties.refuse_same_directory(self._config.all_dirs)
        usable: list[Path] = []
        failed: dict[Path, OSError | LockFileError] = {}
        for directory in self._config.all_dirs:
            try:
                if not directory.is_dir():
                    raise meta_properties.MetaPropertiesError(
                        f"the log directory {directory} does not exist or is no directory. "
                        "Run: kafka-storage format --cluster-id ID --config FILE "
                        "(with --ignore-formatted if other directories are)"
                    )
                lock = DirLock(directory)
                lock.acquire()
                self._locks.append(lock)
                meta_properties.read(directory)
                usable.append(directory)
            except (OSError, LockFileError) as e:
                failed[directory] = e
        for directory, error in failed.items():
            if directory == self._config.metadata_log_dir or not set(usable) & set(self._config.log_dirs):
                raise error
            logger.error(
                "[KafkaServer id=%d] Log directory %s is offline: %s", self._config.node_id, directory, error
            )
        self._check_metadata_logs(usable)
        return usable

    def release(self) -> None:
        """Releases the locks of the directories."""
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def _check_metadata_logs(self, directories: Iterable[Path]) -> None:
        """Raises MetaPropertiesError if a directory other than the metadata directory has a metadata log."""
        metadata = self._config.metadata_log_dir
        for directory in directories:
            if directory != metadata and (directory / METADATA_DIRECTORY).exists():
                raise meta_properties.MetaPropertiesError(
                    f"{directory} holds a metadata log (__cluster_metadata-0), but the metadata directory is "
                    f"{metadata}: correct metadata.log.dir or the order of log.dirs, or remove the stale one"
                )
