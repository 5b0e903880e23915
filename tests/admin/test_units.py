"""Pure parts of the admin client and the small clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.admin.errors import error_text, exception_name, java_text
from quorate.admin.groups import assigned, by_topic
from quorate.admin.membership import assign_by_range
from quorate.admin.producer import murmur2
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


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536),
     (b"a-little-bit-longer-string", -1486304829), (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
     (b"abc", 479470107)],
)  # fmt: skip
def test_keys_go_to_the_partition_that_javas_client_chooses(key: bytes, value: int) -> None:
    assert murmur2(key) == value & 0xFFFFFFFF


@given(
    counts=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9), max_size=4),
    members=st.dictionaries(st.text(min_size=1, max_size=3), st.lists(st.sampled_from("abcd"), max_size=4), max_size=5),
)
def test_range_gives_every_partition_to_one_reader_and_evenly(counts: dict[str, int], members: dict[str, list[str]]) -> None:
    assignment = assign_by_range(counts, members)
    given_out = sorted(tp for partitions in assignment.values() for tp in partitions)
    read = {topic for topics in members.values() for topic in topics}
    assert given_out == sorted(TopicPartition(t, p) for t, n in counts.items() if t in read for p in range(n))
    for topic, count in counts.items():
        shares = [sum(tp.topic == topic for tp in assignment[m]) for m, topics in members.items() if topic in topics]
        assert not shares or max(shares) - min(shares) <= 1
        assert all(not any(tp.topic == topic for tp in assignment[m]) for m, topics in members.items() if topic not in topics)
        assert not shares or sum(shares) == count


def test_partitions_are_grouped_in_order() -> None:
    assert by_topic([TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0)]) == {"a": [0, 2], "b": [1]}


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
