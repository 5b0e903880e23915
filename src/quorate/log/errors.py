"""What the log room raises beyond KafkaError."""

from __future__ import annotations

from quorate.protocol.errors import ErrorCode, KafkaError


class LogDirFailure(KafkaError):  # noqa: N818 - what happened to a directory, named as Kafka's log messages do
    """A log directory cannot be read or written any more: its partitions go offline (KAFKA_STORAGE_ERROR)."""

    def __init__(self, directory: str, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)
        self.directory = directory


def trace_of(error: BaseException) -> BaseException | None:
    """What a log line needs as `exc_info`: nothing for what a disk, a file or a peer did, whose message
    says it all."""
    return None if isinstance(error, OSError) or type(error).__module__.startswith("quorate.") else error


class CheckpointError(Exception):
    """A checkpoint file does not follow its format; the message names the file and the line."""


class NotALogError(Exception):
    """A directory with the name of a partition's, but without any of its files."""


class CorruptIndexError(Exception):
    """An index contradicts its segment; the log rebuilds it."""
