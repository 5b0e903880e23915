"""Whether a directory id is reserved, and whether a replica's directory is online (KIP-858)."""

from __future__ import annotations

from collections.abc import Sequence

from quorate.metadata.image.partitions import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY


def is_reserved(directory: bytes) -> bool:
    """The first hundred ids never name a real directory."""
    return directory[:8] == bytes(8) and int.from_bytes(directory[8:], "big", signed=True) < 100


def is_online(directory: bytes, online: Sequence[bytes]) -> bool:
    """online: what the broker registered; empty (registered before directories were known) counts as
    all online."""
    if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return True
    if directory == LOST_DIRECTORY:
        return False
    return not online or directory in online
