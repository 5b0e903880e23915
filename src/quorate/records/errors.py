"""What reading record batches may raise; each carries the Kafka error code that a client sees."""

from __future__ import annotations

from quorate.protocol.errors import ErrorCode, KafkaError


class CorruptRecordError(KafkaError):
    """The framing or the checksum of a batch is wrong (CORRUPT_MESSAGE)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class InvalidRecordError(KafkaError):
    """A batch is whole but its content breaks the format or the topic's rules (INVALID_RECORD).

    record_errors holds (index in the batch, message) pairs for the produce response, KIP-467.
    """

    def __init__(
        self,
        message: str,
        record_errors: tuple[tuple[int, str], ...] = (),
        code: ErrorCode = ErrorCode.INVALID_RECORD,
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors
