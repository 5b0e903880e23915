"""Which directories are online (KIP-858)."""

from __future__ import annotations

from collections.abc import Sequence

from quorate.metadata.image.partitions import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY


def is_online(directory: bytes, online: Sequence[bytes]) -> bool:
    """Whether a replica's directory is online. `online` are the directories of the broker's
    registration. An empty list, from a registration before directories existed, means that all
    directories are online."""
    if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return True
    if directory == LOST_DIRECTORY:
        return False
    return not online or directory in online
