"""Produce requests with very many partitions are decoded in a thread; large records are not."""

from __future__ import annotations

from typing import Any

import pytest

from quorate.net.connections.produce_frames import MANY, has_many_partitions
from quorate.net.connections.response_queue import is_large
from quorate.net.dispatch import RequestContext
from quorate.protocol.api import REGISTRY, ApiKey, encode_request
from quorate.protocol.messages.produce import ProduceRequest


def frame(version: int, topics: list[int], records: bytes | None, **request: Any) -> memoryview:
    """A request of topics with so many partitions each."""
    data = [
        ProduceRequest.TopicProduceData(
            name="n" * i,
            topic_id=bytes([i % 256]) * 16,
            partition_data=[
                ProduceRequest.PartitionProduceData(index=p, records=records) for p in range(count)
            ],
        )
        for i, count in enumerate(topics)
    ]
    return memoryview(encode_request(1, "client", ProduceRequest(topic_data=data, **request), version))


@pytest.mark.parametrize("version", range(3, REGISTRY[ApiKey.PRODUCE].max_version + 1))
def test_partitions_are_counted_in_every_version(version: int) -> None:
    for records in (b"", b"x" * 300, None):
        for transactional_id in (None, "t"):
            few = frame(version, [3, 0, 200, 1], records, transactional_id=transactional_id)
            assert not has_many_partitions(few)
            for many in ([MANY], [3, 0, MANY - 6, 4], [0] * (MANY + 1)):
                assert has_many_partitions(frame(version, many, records, transactional_id=transactional_id))


def test_a_malformed_request_counts_as_one_with_many_partitions() -> None:
    whole = frame(9, [3, 4], b"x" * 300)
    assert not has_many_partitions(whole)
    for size in range(20, 60):
        assert has_many_partitions(whole[:size])


def test_only_requests_with_many_or_very_large_partitions_are_decoded_in_a_thread() -> None:
    def large(data: memoryview) -> bool:
        return is_large(RequestContext(int(ApiKey.PRODUCE), 9, 1, "c", "L", frame_size=len(data), frame=data))

    assert large(frame(9, [30_000], b""))
    assert not large(frame(9, [3], b"x" * 1_000_000))
    assert large(frame(9, [1], bytes(17 << 20)))
    assert not large(frame(9, [600], b""))  # a small request
