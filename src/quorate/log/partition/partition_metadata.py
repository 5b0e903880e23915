"""`partition.metadata` in a partition's directory: the id of the topic that the directory belongs to
(KIP-516)."""

from __future__ import annotations

import os

from quorate.log.errors import CheckpointError
from quorate.log.files import OpenFile, fsync_path, write_atomically
from quorate.protocol.uuids import ZERO_UUID, parse_uuid, uuid_text

FILE_NAME = "partition.metadata"
_PREFIX = b"version: 0\ntopic_id: "
_UUID_LENGTH = 22


class PartitionMetadataFile:
    """The topic id of one log and whether its file is durable."""

    __slots__ = ("_unsynced", "topic_id")

    def __init__(self, topic_id: bytes | None) -> None:
        self.topic_id = topic_id
        self._unsynced = False

    @property
    def is_unsynced(self) -> bool:
        """Whether the file may not be durable."""
        return self._unsynced and self.topic_id is not None

    def write(self, directory: str) -> None:
        """Writes the file durably. Raises OSError."""
        assert self.topic_id is not None
        write_topic_id(os.path.join(directory, FILE_NAME), self.topic_id)

    def write_unsynced(self, directory: str) -> None:
        """Writes the file without fsync; the first flush of the log makes it durable. Until then a crash
        may lose or tear the file, and the next start writes it again with the topic id from the
        metadata. Raises OSError."""
        if self.topic_id is not None:
            write_topic_id(os.path.join(directory, FILE_NAME), self.topic_id, sync=False)
        self._unsynced = True

    def unsynced_by_predecessor(self) -> None:
        """Notes that a process that was killed may have written the file without fsync."""
        self._unsynced = True

    def sync(self, directory: str) -> None:
        """Makes the file durable. Raises OSError."""
        if self._unsynced:
            self._unsynced = False
            if self.topic_id is not None:
                fsync_path(os.path.join(directory, FILE_NAME))

    def open_to_sync(self, directory: str) -> list[OpenFile]:
        """The file, opened, if the caller has to make it durable. Raises OSError."""
        opened = []
        if self._unsynced and self.topic_id is not None:
            path = os.path.join(directory, FILE_NAME)
            opened.append(OpenFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path))
        self._unsynced = False
        return opened


def read_topic_id(path: str) -> bytes | None:
    """The topic id; None if there is no file. Raises CheckpointError naming the file and the error,
    OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        data = os.read(fd, 4096)
    finally:
        os.close(fd)
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise CheckpointError(f"Partition metadata file {path} is not text") from None
    if len(lines) < 2 or lines[0].strip() != "version: 0" or not lines[1].startswith("topic_id:"):
        raise CheckpointError(
            f"Malformed partition metadata file {path}: {lines[:2]!r}; expected 'version: 0' and 'topic_id: "
            "<uuid>'"
        )
    try:
        topic_id = parse_uuid(lines[1].split(":", 1)[1].strip())
    except ValueError as e:
        raise CheckpointError(f"Malformed topic id in partition metadata file {path}: {e}") from None
    if topic_id == ZERO_UUID:
        raise CheckpointError(f"Invalid topic ID in partition metadata file {path}: the zero uuid")
    return topic_id


def is_torn(path: str) -> bool:
    """Whether the file is only the beginning of what `write_topic_id` writes, with or without zeros after
    it. An unsynced file can be so after a power failure. Raises OSError."""
    with open(path, "rb") as file:
        found = file.read(4096).rstrip(b"\0")
    return len(found) < len(_PREFIX) + _UUID_LENGTH and (
        found.startswith(_PREFIX) or _PREFIX.startswith(found)
    )


def write_topic_id(path: str, topic_id: bytes, *, sync: bool = True) -> None:
    """Replaces the file atomically. Raises OSError."""
    write_atomically(path, _PREFIX + uuid_text(topic_id).encode(), sync=sync)
