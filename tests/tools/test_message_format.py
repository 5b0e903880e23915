"""Records as the console consumer prints them."""

from __future__ import annotations

import io
import json
import struct

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from quorate.broker.coordinators import records
from quorate.tools.command_line import ToolError
from quorate.tools.console.message_format import LOG_APPEND_TIME, make_formatter


def shown(name: str, properties: dict[str, str], message: Message) -> bytes:
    output = io.BytesIO()
    make_formatter(name, properties).write(message, output)
    return output.getvalue()


def all_fields() -> dict[str, str]:
    names = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
    return {f"print.{name}": "true" for name in names}


def test_every_field_in_kafkas_order() -> None:
    message = Message(
        topic="t", partition=3, offset=17, key=b"k", value=b"v", headers=[("a", b"1"), ("b", None)],
        timestamp=(TIMESTAMP_CREATE_TIME, 1234), leader_epoch=5,
    )  # fmt: skip
    expected = b"CreateTime:1234|Partition:3|Offset:17|Delivery:NOT_PRESENT|Epoch:5|a:1,b:null|k|v\n"
    assert shown("DefaultMessageFormatter", all_fields() | {"key.separator": "|"}, message) == expected


def test_fields_that_are_not_there() -> None:
    message = Message(topic="t", partition=0, offset=0, timestamp=(TIMESTAMP_NOT_AVAILABLE, -1))
    expected = (
        b"NO_TIMESTAMP\tPartition:0\tOffset:0\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\tNO_HEADERS\t-\t-\n"
    )
    assert shown("DefaultMessageFormatter", all_fields() | {"null.literal": "-"}, message) == expected


def test_the_kind_of_a_timestamp() -> None:
    assert LOG_APPEND_TIME == TIMESTAMP_LOG_APPEND_TIME
    message = Message(topic="t", value=b"v", timestamp=(TIMESTAMP_LOG_APPEND_TIME, 7))
    assert shown("DefaultMessageFormatter", {"print.timestamp": "true"}, message) == b"LogAppendTime:7\tv\n"


def test_bytes_are_printed_as_they_are() -> None:
    assert shown("DefaultMessageFormatter", {}, Message(topic="t", value=b"\xff\0")) == b"\xff\0\n"
    assert shown("NoOpMessageFormatter", {}, Message(topic="t", value=b"v")) == b""


def test_transactions_as_json() -> None:
    transactional_id = b"tx"
    key = struct.pack(">hh", 0, len(transactional_id)) + transactional_id
    (key_type, value_type) = records.TRANSACTION_RECORDS[0]
    assert isinstance(records.decode_key(key, records.TRANSACTION_RECORDS), key_type)
    value = value_type(producer_id=9, producer_epoch=2, transaction_timeout_ms=60_000)  # type: ignore[call-arg]
    message = Message(topic="__transaction_state", key=key, value=struct.pack(">h", 0) + value.encode(0))
    found = json.loads(shown("org.apache.kafka.tools.consumer.TransactionLogMessageFormatter", {}, message))
    assert found["key"] == {"type": 0, "data": {"transactionalId": "tx"}}
    assert found["value"]["version"] == 0
    assert (found["value"]["data"]["producerId"], found["value"]["data"]["producerEpoch"]) == (9, 2)
    gone = shown("TransactionLogMessageFormatter", {}, Message(topic="__transaction_state", key=key))
    assert json.loads(gone)["value"] is None


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(ToolError, match=r"Formatter my\.Formatter is not available"):
        make_formatter("my.Formatter", {})
    with pytest.raises(ToolError, match=r"Deserializer my\.Own is not available"):
        make_formatter("DefaultMessageFormatter", {"key.deserializer": "my.Own"})
