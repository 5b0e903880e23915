"""Checkpoint files: version 0 in the first line, the number of entries in the second, then one entry a
line. They are replaced atomically (Kafka's CheckpointFile).

The entries of offset checkpoints (`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
`replication-offset-checkpoint`) are `topic partition offset`, those of `leader-epoch-checkpoint` are
`epoch start-offset`. An empty file is read as one without entries.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from quorate.log.errors import CheckpointError
from quorate.log.files import write_atomically

TopicPartition = tuple[str, int]

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"


def _read(path: str, fields: int) -> list[list[str]]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    try:
        data = os.read(fd, 1 << 16)
        if len(data) == 1 << 16:
            parts = [data]
            while more := os.read(fd, 1 << 20):
                parts.append(more)
            data = b"".join(parts)
    finally:
        os.close(fd)
    if not data:
        return []
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise CheckpointError(f"Checkpoint file {path} is not text") from None
    try:
        version = int(lines[0])
    except ValueError:
        raise CheckpointError(f"Malformed line 1 in checkpoint file {path}: {lines[0]!r}") from None
    if version != 0:
        raise CheckpointError(f"Unrecognized version of the checkpoint file {path}: {version}; expected 0")
    if len(lines) < 2:
        raise CheckpointError(f"Checkpoint file {path} ends before its number of entries")
    try:
        expected = int(lines[1])
    except ValueError:
        raise CheckpointError(f"Malformed line 2 in checkpoint file {path}: {lines[1]!r}") from None
    rows = []
    for number, line in enumerate(lines[2:], 3):
        row = line.split()
        if len(row) != fields:
            raise CheckpointError(f"Malformed line {number} in checkpoint file {path}: {line!r}")
        rows.append(row)
    if len(rows) != expected:
        raise CheckpointError(
            f"Expected {expected} entries in checkpoint file {path}, but found only {len(rows)}"
        )
    return rows


def _write(path: str, rows: Iterable[str], *, sync: bool) -> None:
    lines = list(rows)
    write_atomically(path, "\n".join(["0", str(len(lines)), *lines, ""]).encode(), sync=sync)


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Reads an offset checkpoint, {} if there is no file. Raises CheckpointError, OSError."""
    result: dict[TopicPartition, int] = {}
    for row in _read(path, 3):
        try:
            result[row[0], int(row[1])] = int(row[2])
        except ValueError:
            raise CheckpointError(f"Malformed entry in checkpoint file {path}: {' '.join(row)!r}") from None
    return result


def write_offsets(path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Writes an offset checkpoint. Raises OSError."""
    _write(
        path, (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()), sync=True
    )


def read_epochs(path: str) -> list[tuple[int, int]]:
    """Reads the (epoch, start offset) pairs of a leader epoch checkpoint. Raises CheckpointError, OSError."""
    try:
        return [(int(epoch), int(start)) for epoch, start in _read(path, 2)]
    except ValueError:
        raise CheckpointError(f"Malformed entry in checkpoint file {path}") from None


def write_epochs(path: str, epochs: Iterable[tuple[int, int]], *, sync: bool = True) -> None:
    """Writes a leader epoch checkpoint. Raises OSError."""
    _write(path, (f"{epoch} {start}" for epoch, start in epochs), sync=sync)
