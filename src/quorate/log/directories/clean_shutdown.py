"""`.kafka_cleanshutdown`: in a log directory while no node runs on it, when the last one stopped in order.

Its broker epoch lets the controller tell, at the next registration, that this broker lost nothing.
Older releases leave it empty.
"""

from __future__ import annotations

import json
import os

from quorate.log.files import fsync_directory, write_atomically

FILE_NAME = ".kafka_cleanshutdown"


def read(directory: str) -> int | None:
    """The broker epoch in the marker, -1 if the marker does not tell; None without a marker. Raises
    OSError."""
    try:
        with open(os.path.join(directory, FILE_NAME), encoding="utf-8") as file:
            text = file.read(4096)
    except FileNotFoundError:
        return None
    try:
        return int(json.loads(text)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1


def write(directory: str, broker_epoch: int) -> None:
    """Raises OSError."""
    write_atomically(os.path.join(directory, FILE_NAME), b'{"version":0,"brokerEpoch":%d}' % broker_epoch)


def remove(directory: str) -> None:
    """From here on the directory counts as not stopped in order. Raises OSError."""
    try:
        os.unlink(os.path.join(directory, FILE_NAME))
    except FileNotFoundError:
        return
    fsync_directory(directory)
