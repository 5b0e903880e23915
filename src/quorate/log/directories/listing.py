"""Lists a log directory: the names in it tell which logs it has, and which of them were deleted."""

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


class Listing(NamedTuple):
    """The logs in a log directory."""

    logs: list[tuple[str, TopicPartition]]
    """The name of the directory of each log or future log, and its partition."""
    deleted: list[str]
    """The paths of the directories of deleted logs."""


def list_logs(directory: str) -> Listing:
    """Lists a log directory, without the metadata log and stray logs. Raises OSError."""
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.is_dir()]
    found = Listing([], [])
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
