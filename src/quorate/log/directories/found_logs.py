"""Finds the logs in a log directory by the names of their directories."""

from __future__ import annotations

import logging
import os
import re
from typing import NamedTuple

from quorate.log.checkpoints import TopicPartition
from quorate.log.partition.local_log import parse_directory_name
from quorate.protocol.metadata_partition import METADATA_DIRECTORY

logger = logging.getLogger(__name__)

_DELETED = re.compile(r"-\d+\.[0-9a-f]{32}-delete$")


class FoundLogs(NamedTuple):
    """The names of the directories of logs and future logs, and the paths of those of deleted logs."""

    logs: list[tuple[str, TopicPartition]]
    deleted: list[str]


def find_logs(directory: str) -> FoundLogs:
    """Lists a log directory. The metadata log and stray logs are left out. Raises OSError."""
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.is_dir()]
    found = FoundLogs([], [])
    for name in names:
        if name == METADATA_DIRECTORY or name.endswith("-stray"):
            continue
        if _DELETED.search(name):
            found.deleted.append(os.path.join(directory, name))
            continue
        try:
            found.logs.append((name, parse_directory_name(name)))
        except ValueError as e:
            logger.warning("[LogManager] Leaving %s alone: %s", os.path.join(directory, name), e)
    return found
