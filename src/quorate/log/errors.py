"""What the log room raises beyond KafkaError."""

from __future__ import annotations

from quorate.protocol.errors import ErrorCode, KafkaError


class LogDirFailure(KafkaError):  # noqa: N818 - what happened to a directory, named as Kafka's log messages do
    """A log directory cannot be read or written any more: its partitions go offline (KAFKA_STORAGE_ERROR)."""

    def __init__(self, directory: str, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)
        self.directory = directory


class CheckpointError(Exception):
    """A checkpoint file does not follow its format; the message names the file and the line."""


class CorruptIndexError(Exception):
    """An index contradicts its segment; the log rebuilds it."""
