"""The exceptions of record batches. Each has the Kafka error code that a client receives."""

from __future__ import annotations

from quorate.protocol.errors import ErrorCode, KafkaError


class CorruptRecordError(KafkaError):
    """The framing or the checksum of a batch is invalid (CORRUPT_MESSAGE)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class InvalidRecordError(KafkaError):
    """A batch is complete, but its content violates the format or the topic's configuration
    (INVALID_RECORD).

    `record_errors` has (index in the batch, message) pairs for the produce response (KIP-467).
    """

    def __init__(
        self,
        message: str,
        record_errors: tuple[tuple[int, str], ...] = (),
        code: ErrorCode = ErrorCode.INVALID_RECORD,
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors
