"""The errors of the admin client, and their texts."""

from __future__ import annotations

from quorate.admin.explanations import EXPLANATIONS
from quorate.net.errors import KafkaConnectionError, NetError, RequestTimedOut, UnsupportedVersion
from quorate.protocol.errors import ErrorCode, KafkaError


class NotKafkaError(NetError):
    """The server at an address is not Kafka. The request is not retried."""


_IRREGULAR = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecordException",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.NETWORK_EXCEPTION: "NetworkException",
    ErrorCode.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "GroupSubscribedToTopicException",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorageException",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "OutOfOrderSequenceException",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "DuplicateSequenceException",
    ErrorCode.FEATURE_UPDATE_FAILED: "FeatureUpdateFailedException",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "CoordinatorLoadInProgressException",
}


def exception_name(code: ErrorCode) -> str:
    """Returns the name of the Java exception for a code."""
    known = _IRREGULAR.get(code)
    if known is not None:
        return known
    return "".join(part.capitalize() for part in code.name.split("_")) + "Exception"


def error_text(error: BaseException) -> str:
    """Returns the text of an error: the message of the server, or else cause and remedy of the code."""
    if isinstance(error, KafkaError):
        if error.message:
            return error.message
        explanation = EXPLANATIONS.get(error.code)
        return str(explanation or error.code.name.lower().replace("_", " ").capitalize() + ".")
    return str(error) or type(error).__name__


def java_text(error: BaseException) -> str:
    """Returns an error as Kafka's tools print exceptions."""
    if isinstance(error, KafkaError):
        return f"org.apache.kafka.common.errors.{exception_name(error.code)}: {error_text(error)}"
    if isinstance(error, RequestTimedOut):
        return f"org.apache.kafka.common.errors.TimeoutException: {error}"
    if isinstance(error, UnsupportedVersion):
        return f"org.apache.kafka.common.errors.UnsupportedVersionException: {error}"
    return str(error)


def check(code: int, message: str | None = None) -> None:
    """Raises KafkaError unless the code of a response is NONE."""
    error = error_of(code, message)
    if error is not None:
        raise error


def error_of(code: int, message: str | None = None) -> KafkaError | None:
    """The error of a response, or of a part of it, or None if its code is NONE."""
    return KafkaError(ErrorCode.of(code), message) if code else None


__all__ = [
    "ErrorCode",
    "KafkaConnectionError",
    "KafkaError",
    "NetError",
    "NotKafkaError",
    "RequestTimedOut",
    "UnsupportedVersion",
    "check",
    "error_of",
    "error_text",
    "exception_name",
    "java_text",
]
