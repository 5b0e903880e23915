"""Locks the log directories of a node and checks which are usable."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.config.kafka_config import KafkaConfig
from quorate.lazy import lazy_module
from quorate.log.directories import meta_properties
from quorate.log.directories.lock import DirLock, LockFileError
from quorate.protocol.metadata_partition import METADATA_DIRECTORY

if TYPE_CHECKING:
    from quorate.node import format_remedy
else:
    format_remedy = lazy_module("quorate.node.format_remedy")

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
                if not directory.exists():
                    raise self._not_formatted(directory)
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

    def identity(self, usable: Sequence[Path]) -> meta_properties.Ensemble:
        """Reads and checks the identity of the usable directories. Raises MetaPropertiesError, OSError."""
        config = self._config
        try:
            return meta_properties.load(
                usable, node_id=config.node_id, metadata_directory=config.metadata_log_dir
            )
        except meta_properties.NotFormattedError as error:
            raise self._not_formatted(error.directory) from None

    def _not_formatted(self, directory: Path) -> meta_properties.NotFormattedError:
        return meta_properties.not_formatted(directory, format_remedy.format_remedy(self._config, directory))

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
