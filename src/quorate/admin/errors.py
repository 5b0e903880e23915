"""The errors of the admin client, and their texts."""

from __future__ import annotations

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


_TEXTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such topic or partition.",
    ErrorCode.UNKNOWN_TOPIC_ID: "There is no topic with this id.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group does not exist.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "A member of the group reads this topic.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is outside of what the partition holds.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The partition has no leader now.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "A topic with this name exists already.",
    ErrorCode.UNSUPPORTED_VERSION: "The cluster does not serve this version of the API.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Not allowed for the cluster.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Not allowed for the topic.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Not allowed for the group.",
    ErrorCode.SECURITY_DISABLED: "The cluster has no authorizer (authorizer.class.name).",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation tokens are disabled on the cluster "
    "(delegation.token.secret.key).",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "There is no delegation token with this HMAC.",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "The principal is neither owner nor renewer of the delegation "
    "token.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Delegation tokens are served only over SASL or mutual "
    "TLS, and not to who is authenticated by a token.",
}
"""The texts of codes, for responses without a message."""


def exception_name(code: ErrorCode) -> str:
    """Returns the name of the Java exception for a code."""
    known = _IRREGULAR.get(code)
    if known is not None:
        return known
    return "".join(part.capitalize() for part in code.name.split("_")) + "Exception"


def error_text(error: BaseException) -> str:
    """Returns the text of an error: the message of the server, or else the meaning of the code."""
    if isinstance(error, KafkaError):
        return (
            error.message
            or _TEXTS.get(error.code)
            or error.code.name.lower().replace("_", " ").capitalize() + "."
        )
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
