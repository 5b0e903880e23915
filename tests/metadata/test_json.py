from __future__ import annotations

import pytest

from quorate.metadata import records as r
from quorate.metadata.errors import MetadataError
from quorate.metadata.json import dump_json, java_double, record_from_json, record_json


def test_a_record_is_shown_as_kafka_shows_it() -> None:
    record = r.PartitionRecord(
        partition_id=0,
        topic_id=bytes(15) + b"\x01",
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )
    assert dump_json(record_json(record, 2)) == (
        '{"type":"PARTITION_RECORD","version":2,"data":{"partitionId":0,"topicId":"AAAAAAAAAAAAAAAAAAAAAQ","replicas":[1],"isr":[1],'
        '"removingReplicas":[],"addingReplicas":[],"leader":1,"leaderEpoch":0,"partitionEpoch":0,"directories":[]}}'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"), (0.0, "0.0"), (-0.0, "-0.0"), (1048576.0, "1048576.0"), (1e7, "1.0E7"), (12345678.9, "1.23456789E7"),
        (0.001, "0.001"),
        (0.00015, "1.5E-4"), (-2.5, "-2.5"), (1e300, "1.0E300"), (float("inf"), '"Infinity"'), (float("nan"), '"NaN"'),
    ],
)  # fmt: skip
def test_doubles_are_those_of_java(value: float, text: str) -> None:
    assert java_double(value) == text


def test_text_is_escaped_as_jackson_does() -> None:
    assert (
        dump_json({'a"\\': "\x1f\n/é中", "b": [True, None, 3]})
        == '{"a\\"\\\\":"\\u001F\\n/é中","b":[true,null,3]}'
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"type": "NOTHING", "version": 0, "data": {}}, "record type 'NOTHING' is unknown"),
        ({"type": "TOPIC_RECORD", "version": 9, "data": {}}, "version 9 of TOPIC_RECORD"),
        ({"type": "TOPIC_RECORD", "version": 0, "data": {}}, "name is missing"),
        ({"type": "TOPIC_RECORD", "version": 0, "data": {"name": 5, "topicId": "x"}}, "name"),
    ],
)
def test_json_that_is_no_record_is_refused(value: dict[str, object], reason: str) -> None:
    with pytest.raises(MetadataError, match=reason):
        record_from_json(value)
