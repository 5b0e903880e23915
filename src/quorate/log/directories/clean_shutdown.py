"""`.kafka_cleanshutdown`: the marker of a log directory whose last node has stopped cleanly.

It holds the broker epoch, which the broker sends in its next registration. If it is the last one that
the controller knows, the broker has lost no records (KIP-966). Older releases write an empty file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from quorate.log.files import fsync_directory, write_atomically

FILE_NAME = ".kafka_cleanshutdown"


def read(directory: str) -> int | None:
    """The broker epoch in the marker, -1 if it has none; None if there is no marker. Raises OSError."""
    try:
        with open(os.path.join(directory, FILE_NAME), encoding="utf-8") as file:
            text = file.read(4096)
    except FileNotFoundError:
        return None
    try:
        return int(json.loads(text)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1


def common_epoch(directories: Iterable[Path]) -> int:
    """The broker epoch in the markers of all directories, -1 unless all have the same one."""
    try:
        epochs = {read(str(directory)) for directory in directories}
    except OSError:
        return -1
    epoch = epochs.pop() if len(epochs) == 1 else None
    return -1 if epoch is None else epoch


def write(directory: str, broker_epoch: int) -> None:
    """Writes the marker durably. Raises OSError."""
    write_atomically(os.path.join(directory, FILE_NAME), b'{"version":0,"brokerEpoch":%d}' % broker_epoch)


def remove(directory: str) -> None:
    """Removes the marker durably. Raises OSError."""
    try:
        os.unlink(os.path.join(directory, FILE_NAME))
    except FileNotFoundError:
        return
    fsync_directory(directory)
