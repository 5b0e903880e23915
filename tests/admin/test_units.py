"""Pure parts of the admin client."""

from __future__ import annotations

import pytest

from quorate.admin.errors import error_text, exception_name, java_text
from quorate.admin.operations.groups import assigned, by_topic
from quorate.admin.transport import parse_servers
from quorate.admin.types import TopicPartition
from quorate.protocol.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        (" a:1 , b:2 ,", [("a", 1), ("b", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("PLAINTEXT://host:9092", [("host", 9092)]),
        (["x:1", "y:2"], [("x", 1), ("y", 2)]),
    ],
)
def test_bootstrap_servers(text: str | list[str], servers: list[tuple[str, int]]) -> None:
    assert parse_servers(text) == servers


@pytest.mark.parametrize("text", ["", "host", "host:", "host:0", "host:70000", "::1:9092", "host:x", ":9092"])
def test_addresses_that_are_none_are_named(text: str) -> None:
    with pytest.raises(ValueError, match="bootstrap"):
        parse_servers(text)


def test_partitions_are_grouped_in_order() -> None:
    assert by_topic([TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0)]) == {
        "a": [0, 2],
        "b": [1],
    }


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\xff\xff\xff\xff\0", b"anything at all"])
def test_assignments_of_other_protocols_are_empty(data: bytes) -> None:
    assert assigned(data) == ()


def test_assignments_of_consumers_are_read() -> None:
    data = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0\0\0\0\3" + b"\xff\xff\xff\xff"
    assert assigned(data) == (TopicPartition("t", 0), TopicPartition("t", 3))


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, "TopicExistsException"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "UnknownTopicOrPartitionException"),
        (ErrorCode.NON_EMPTY_GROUP, "GroupNotEmptyException"),
        (ErrorCode.INVALID_CONFIG, "InvalidConfigurationException"),
        (ErrorCode.BROKER_ID_NOT_REGISTERED, "BrokerIdNotRegisteredException"),
    ],
)
def test_errors_have_javas_names(code: ErrorCode, name: str) -> None:
    assert exception_name(code) == name
    assert java_text(KafkaError(code, "why")) == f"org.apache.kafka.common.errors.{name}: why"


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_error_has_words(code: ErrorCode) -> None:
    assert error_text(KafkaError(code)).strip()
