"""Partition changes that exist as bytes."""

from __future__ import annotations

import pytest

from quorate.controller.replication.encoded_records import EncodedPartitionChange, partition_change
from quorate.metadata.framing import decode_record, encode_record
from quorate.metadata.records import PartitionChangeRecord

CHANGE = PartitionChangeRecord(partition_id=3, topic_id=bytes(range(16)), isr=[1], leader=1)


@pytest.mark.parametrize("version", range(PartitionChangeRecord.MAX_VERSION + 1))
def test_an_encoded_change_is_written_and_shown_as_the_change_that_it_holds(version: int) -> None:
    encoded = partition_change(encode_record(CHANGE, version))
    assert encode_record(encoded, version) == encode_record(CHANGE, version)
    assert repr(encoded).removeprefix("Encoded") == repr(CHANGE).replace("Record(", "(")


def test_an_encoded_change_leaves_the_codecs_of_other_changes_alone() -> None:
    """They are compiled at the first use of a version, which may be the use of an encoded change."""
    own = (EncodedPartitionChange._encoders, EncodedPartitionChange._decoders)
    assert own[0] is not PartitionChangeRecord._encoders
    assert own[1] is not PartitionChangeRecord._decoders
    assert type(decode_record(encode_record(CHANGE, 0))[0]) is PartitionChangeRecord
