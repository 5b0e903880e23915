"""Exceptions of logs and log directories."""

from __future__ import annotations

from types import TracebackType

from quorate.protocol.errors import ErrorCode, KafkaError


class LogDirFailure(KafkaError):  # noqa: N818 - named as in Kafka's log messages
    """A log directory can no longer be read or written. Its partitions go offline (KAFKA_STORAGE_ERROR)."""

    def __init__(self, directory: str, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)
        self.directory = directory


class DiskAccess:
    """Raises an OSError of its `with` block as the LogDirFailure of a log's directory.

    Kafka's LocalLog.maybeHandleIOException. Every append and read enters one: a class takes a third of
    the time of a generator under `contextlib.contextmanager`.
    """

    __slots__ = ("_action", "_directory", "_log_name")

    def __init__(self, directory: str, log_name: str, action: str) -> None:
        self._directory = directory
        self._log_name = log_name
        self._action = action

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise self.failure(error) from error

    def failure(self, error: BaseException) -> LogDirFailure:
        """The LogDirFailure for an error of this access."""
        directory = self._directory
        return LogDirFailure(
            directory, f"Error while {self._action} log {self._log_name} in dir {directory}: {error}"
        )


def trace_of(error: BaseException) -> BaseException | None:
    """The `exc_info` of a log line about `error`. None for errors of disks, files and peers, whose
    message is sufficient."""
    return None if isinstance(error, OSError) or type(error).__module__.startswith("quorate.") else error


class CheckpointError(Exception):
    """A checkpoint file is malformed. The message names the file and the line."""


class NotALogError(Exception):
    """A directory has the name of a partition's directory but contains none of its files."""


class CorruptIndexError(Exception):
    """An index contradicts its segment. The log rebuilds it."""
