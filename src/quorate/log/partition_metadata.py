"""`partition.metadata` in a partition's directory: which topic, by id, the directory belongs to (KIP-516)."""

from __future__ import annotations

import os

from quorate.log.errors import CheckpointError
from quorate.log.files import write_atomically
from quorate.protocol.uuids import ZERO_UUID, parse_uuid, uuid_text

FILE_NAME = "partition.metadata"


def read_topic_id(path: str) -> bytes | None:
    """The topic id, None without the file. Raises CheckpointError naming the file and what is wrong,
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


def write_topic_id(path: str, topic_id: bytes, *, sync: bool = True) -> None:
    """Raises OSError."""
    write_atomically(path, f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode(), sync=sync)
