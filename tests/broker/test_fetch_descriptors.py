"""Responses to Fetch that wait for slow readers keep files open. They must leave descriptors to the logs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.handlers import fetch as fetch_handler
from quorate.broker.replication import log_reader
from quorate.log.partition.partition_log import PartitionLog
from quorate.net.dispatch import RequestContext
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.fetch import FetchResponse

from .fakes import registration
from .test_produce_fetch import fetch
from .world import Broker, batch_of, image_of, produce, values_in

PARTITIONS = 60
LIMIT = 20


@pytest.fixture(params=["small", "large"])
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker whose logs may keep 20 files open, with a record in each of 60 partitions."""
    if request.param == "large":
        monkeypatch.setattr(fetch_handler, "AT_ONCE", 4)
    broker = Broker(tmp_path, image_of({"t": {i: registration() for i in range(PARTITIONS)}}))
    broker.files.limit = LIMIT
    for i in range(PARTITIONS):
        broker.ask(produce("t", (i, batch_of(b"v%d" % i))))
    yield broker
    broker.close()


def cut_short(one: Broker) -> PartitionLog:
    """Leaves 10 bytes of the log of partition 0."""
    log = one.replicas.local_log("t", 0)
    assert log is not None
    os.truncate(next(log.dir.glob("*.log")), 10)
    return log


def answer_of(one: Broker, *partitions: tuple[int, int]) -> list[FetchResponse.PartitionData]:
    """What a Fetch of (partition, offset) gets."""
    context = RequestContext(int(ApiKey.FETCH), 12, 1, "me", "PLAINTEXT")
    return one.handlers[int(ApiKey.FETCH)](context, fetch("t", *partitions)).responses[0].partitions


def unsent(broker: Broker, partitions: list[int], **limits: int) -> dict[int, Any]:
    """The records of a response, by partition, as they wait for a slow reader."""
    context = RequestContext(int(ApiKey.FETCH), 12, 1, "me", "PLAINTEXT")
    answer = broker.handlers[int(ApiKey.FETCH)](context, fetch("t", *[(i, 0) for i in partitions], **limits))
    if asyncio.iscoroutine(answer):
        answer = broker.loop.run_until_complete(answer)
    parts = answer.responses[0].partitions
    assert {part.error_code for part in parts} == {ErrorCode.NONE}
    return {part.partition_index: part.records for part in parts}


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_slow_readers_leave_descriptors_to_the_logs(one: Broker) -> None:
    before = descriptors() - len(one.files)
    waiting = [unsent(one, [*range(i, PARTITIONS), *range(i)]) for i in range(PARTITIONS)]
    assert descriptors() <= before + 2 * LIMIT
    assert all(any(records.values()) for records in waiting)
    for i in range(PARTITIONS):
        one.ask(produce("t", (i, batch_of(b"more"))))
    assert descriptors() <= before + 2 * LIMIT
    waiting.clear()
    assert descriptors() <= before + LIMIT


def test_a_reader_gets_all_partitions_in_several_responses(one: Broker) -> None:
    slow = unsent(one, list(range(PARTITIONS)))
    left, found = list(range(PARTITIONS)), {}
    while left:
        answer = {i: records for i, records in unsent(one, left).items() if records}
        assert answer
        for i, parts in answer.items():
            read = b"".join(part if isinstance(part, bytes) else part.read() for part in parts)
            (found[i],) = values_in(read)
            left.remove(i)
    assert found == {i: b"v%d" % i for i in range(PARTITIONS)}
    assert any(slow.values())


@pytest.mark.parametrize("one", ["small"], indirect=True)
def test_a_response_that_is_copied_to_memory_is_bounded(one: Broker) -> None:
    batch = batch_of(b"x" * 100_000)
    for _ in range(30):
        one.ask(produce("t", (0, batch)))
    held = [unsent(one, [i]) for i in range(1, PARTITIONS)]
    assert one.files.is_exhausted
    limits = {"max_bytes": 1 << 30, "partition_bytes": 1 << 30}
    parts = unsent(one, [0], **limits)[0]
    assert all(isinstance(part, bytes) for part in parts)
    assert 1 << 19 < sum(map(len, parts)) <= 1 << 20
    one.files.limit = len(held) + 10
    assert not one.files.is_exhausted and sum(map(len, unsent(one, [0], **limits)[0])) > 3_000_000


@pytest.mark.parametrize("one", ["small"], indirect=True)
def test_a_response_that_is_copied_to_memory_has_one_batch_however_large(
    one: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "MAX_COPIED_BYTES", 10)
    one.ask(produce("t", (0, batch_of(b"more"))))
    held = [unsent(one, [i]) for i in range(1, PARTITIONS)]
    assert held and one.files.is_exhausted
    assert values_in(b"".join(unsent(one, [0])[0])) == [b"v0"]


@pytest.mark.parametrize("one", ["small"], indirect=True)
def test_a_file_that_is_too_short_to_be_copied_is_corrupt_and_its_directory_stays_online(
    one: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Apache Kafka: the other logs of the directory have lost nothing."""
    held = [unsent(one, [i]) for i in range(1, PARTITIONS)]
    assert held and one.files.is_exhausted
    log = cut_short(one)
    short, whole = answer_of(one, (0, 0), (1, 0))
    assert short.error_code == ErrorCode.CORRUPT_MESSAGE and not short.records
    assert whole.error_code == ErrorCode.NONE and values_in(b"".join(whole.records)) == [b"v1"]
    assert one.logs.is_online(log.log_dir)
    assert "Reading t-0 failed: Log t-0 in dir" in caplog.text


@pytest.mark.parametrize("one", ["small"], indirect=True)
def test_repeated_reads_of_a_damaged_log_are_logged_once(
    one: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers try again several times a second."""
    held = [unsent(one, [i]) for i in range(1, PARTITIONS)]
    assert held and one.files.is_exhausted
    cut_short(one)
    for _ in range(3):
        [short] = answer_of(one, (0, 0))
        assert short.error_code == ErrorCode.CORRUPT_MESSAGE
    assert len(caplog.records) == 1
