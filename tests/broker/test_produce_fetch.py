"""Produce and Fetch on real logs: responses, errors, and waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from quorate.log.partition.producer_state import AppendOrigin
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.uuids import ZERO_UUID
from quorate.records.batch import build_control_batch, set_placement
from quorate.records.compression import Compression

from .fakes import broker, registration
from .world import Broker, batch_of, image_of, produce, topic_id_of, values_in

ONE = image_of({"t": {0: registration(), 1: registration(), 2: registration(replicas=(2,), leader=2)}})


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path, ONE)
    yield made
    made.close()


def fetch(
    topic: str,
    *wanted: tuple[int, int],
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_bytes: int = 1 << 20,
    isolation: int = 0,
    epoch: int = -1,
    **request: object,
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                topic_id=topic_id_of(topic),
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_bytes,
                        current_leader_epoch=epoch,
                    )
                    for partition, offset in wanted
                ],
            )
        ],
        **request,
    )


def outcome(answer, index: int = 0):
    return answer.responses[0].partition_responses[index]


def part(answer, index: int = 0):
    return answer.responses[0].partitions[index]


# -- Produce


@pytest.mark.parametrize("acks", [1, -1])
def test_a_leader_that_stops_without_a_controller_accepts_no_records(one, acks):
    one.replicas.accepts_appends = False
    refused = outcome(one.ask(produce("t", (0, batch_of(b"a")), acks=acks)))
    assert (refused.error_code, refused.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert one.replicas.partitions["t", 0].log.log_end_offset == 0
    one.replicas.accepts_appends = True
    assert outcome(one.ask(produce("t", (0, batch_of(b"a")), acks=acks))).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(3, 14))
def test_a_batch_is_appended_in_every_version(one, version):
    answer = one.ask(produce("t", (0, batch_of(b"a", b"b"))), version)
    result = outcome(answer)
    assert (result.error_code, result.base_offset) == (ErrorCode.NONE, 0)
    assert outcome(one.ask(produce("t", (0, batch_of(b"c"))), version)).base_offset == 2


def test_acks_zero_has_no_response_and_is_written(one):
    assert one.ask(produce("t", (0, batch_of(b"a")), acks=0)) is None
    assert one.replicas.partition("t", 0).log.log_end_offset == 1


def test_an_error_with_acks_zero_closes_the_connection(one):
    closed: list[bool] = []
    connection = SimpleNamespace(close=lambda: closed.append(True))
    assert one.ask(produce("t", (9, batch_of(b"a")), acks=0), connection=connection) is None
    assert closed == [True]


@pytest.mark.parametrize(
    ("partition", "records", "acks", "version", "error"),
    [
        (0, batch_of(b"a"), 2, 12, ErrorCode.INVALID_REQUIRED_ACKS),
        (9, batch_of(b"a"), -1, 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, batch_of(b"a"), -1, 12, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (0, b"", -1, 12, ErrorCode.INVALID_RECORD),
        (0, None, -1, 12, ErrorCode.INVALID_RECORD),
        (0, batch_of(b"a") + batch_of(b"b"), -1, 12, ErrorCode.INVALID_RECORD),
        (0, batch_of(b"a" * 2_000_000), -1, 12, ErrorCode.MESSAGE_TOO_LARGE),
        (0, batch_of(b"a", compression=Compression.ZSTD), -1, 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (
            0,
            batch_of(b"a", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True),
            -1,
            12,
            53,
        ),
        (0, batch_of(b"a", producer_id=5, producer_epoch=0, base_sequence=7), -1, 12, ErrorCode.NONE),
        (0, batch_of(b"a")[:-1] + b"!", -1, 12, ErrorCode.CORRUPT_MESSAGE),
        (0, b"\0" * 20, -1, 12, ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=[
        "acks",
        "no such partition",
        "not the leader",
        "no bytes",
        "null",
        "two batches",
        "too large",
        "zstd too early",
        "transactional",
        "new producer at any sequence",
        "crc",
        "garbage",
    ],
)
def test_responses_to_produce(one, partition, records, acks, version, error):
    assert outcome(one.ask(produce("t", (partition, records), acks=acks), version)).error_code == error


def test_an_unknown_topic_id_is_answered_with_an_error(one):
    request = produce("t", (0, batch_of(b"a")))
    request.topic_data[0].topic_id = bytes(range(16))
    assert outcome(one.ask(request, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_one_bad_partition_leaves_the_other_alone(one):
    answer = one.ask(produce("t", (0, batch_of(b"a")), (2, batch_of(b"b"))))
    assert [outcome(answer, i).error_code for i in (0, 1)] == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]


def test_a_broker_that_is_not_the_leader_names_the_leader(one):
    answer = one.ask(produce("t", (2, batch_of(b"a"))), 12)
    assert (outcome(answer).current_leader.leader_id, outcome(answer).current_leader.leader_epoch) == (2, 0)
    assert [(node.node_id, node.host, node.port) for node in answer.node_endpoints] == [(2, "host2", 9092)]


@pytest.mark.parametrize(
    ("client_id", "error"), [("me", ErrorCode.INVALID_TOPIC_EXCEPTION), ("__admin_client", ErrorCode.NONE)]
)
def test_internal_topics_are_closed_to_clients(tmp_path, client_id, error):
    world = Broker(tmp_path, image_of({"__consumer_offsets": {0: registration()}}))
    request = produce("__consumer_offsets", (0, batch_of(b"a")))
    assert outcome(world.ask(request, 12, client_id=client_id)).error_code == error
    world.close()


def test_a_retry_of_an_idempotent_producer_gets_the_first_answer(one):
    batch = batch_of(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    first = outcome(one.ask(produce("t", (0, batch))))
    again = outcome(one.ask(produce("t", (0, batch))))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, first.base_offset)
    assert one.replicas.partition("t", 0).log.log_end_offset == 2


def test_a_gap_in_the_sequence_is_refused(one):
    one.ask(produce("t", (0, batch_of(b"a", producer_id=5, producer_epoch=0, base_sequence=0))))
    gap = batch_of(b"c", producer_id=5, producer_epoch=0, base_sequence=2)
    assert outcome(one.ask(produce("t", (0, gap)))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_acks_all_waits_for_the_followers_of_the_isr(tmp_path):
    world = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2))}}))
    future = world.ask(produce("t", (0, batch_of(b"a"))))
    assert not future.done()
    assert part(world.ask(fetch("t", (0, 0)))).high_watermark == 0
    follower = fetch("t", (0, 1), replica_state=FetchRequest.ReplicaState(replica_id=2, replica_epoch=200))
    assert part(world.ask(follower)).high_watermark == 1
    assert outcome(world.wait(future, ApiKey.PRODUCE)).error_code == ErrorCode.NONE
    world.close()


def test_acks_all_times_out_when_a_follower_is_silent(tmp_path):
    world = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2))}}))
    future = world.ask(produce("t", (0, batch_of(b"a")), timeout_ms=10))
    assert outcome(world.wait(future, ApiKey.PRODUCE)).error_code == ErrorCode.REQUEST_TIMED_OUT
    world.close()


# -- Fetch


@pytest.mark.parametrize("version", range(4, 19))
def test_records_are_read_in_every_version(one, version):
    one.ask(produce("t", (0, batch_of(b"a", b"b"))))
    answer = part(one.ask(fetch("t", (0, 0)), version))
    assert (answer.error_code, answer.high_watermark, values_in(answer.records)) == (
        ErrorCode.NONE,
        2,
        [b"a", b"b"],
    )


@pytest.mark.parametrize(
    ("partition", "offset", "epoch", "error"),
    [
        (9, 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, 0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (0, 4, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, -1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 3, -1, ErrorCode.NONE),
        (0, 0, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_responses_to_fetch(one, partition, offset, epoch, error):
    one.ask(produce("t", (0, batch_of(b"a", b"b", b"c"))))
    assert part(one.ask(fetch("t", (partition, offset), epoch=epoch))).error_code == error


def test_an_old_epoch_is_fenced_with_a_leader_hint(one):
    one.publish(image_of({"t": {0: registration(leader_epoch=3, partition_epoch=3)}}))
    answer = one.ask(fetch("t", (0, 0), epoch=2))
    assert part(answer).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (part(answer).current_leader.leader_id, part(answer).current_leader.leader_epoch) == (1, 3)
    assert [node.node_id for node in answer.node_endpoints] == [1]


def test_an_unknown_topic_id_is_an_error(one):
    request = fetch("t", (0, 0))
    request.topics[0].topic_id = bytes(range(16))
    assert part(one.ask(request)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_limit_of_the_request_still_gives_one_batch(one):
    for value in (b"a" * 500, b"b" * 500):
        one.ask(produce("t", (0, batch_of(value))))
        one.ask(produce("t", (1, batch_of(value))))
    answer = one.ask(fetch("t", (0, 0), (1, 0), max_bytes=10))
    sizes = [len(part(answer, i).records or b"") for i in (0, 1)]
    assert values_in(part(answer, 0).records) == [b"a" * 500]
    assert sizes[1] == 0


def test_the_limit_of_a_partition_is_kept_after_the_first(one):
    for _ in range(3):
        one.ask(produce("t", (0, batch_of(b"a" * 300)), (1, batch_of(b"b" * 300))))
    answer = one.ask(fetch("t", (0, 0), (1, 0), partition_bytes=400))
    assert values_in(part(answer, 0).records) == [b"a" * 300]
    assert len(part(answer, 1).records or b"") <= 400


def test_a_fetch_waits_for_its_bytes(one):
    future = one.ask(fetch("t", (0, 0), max_wait_ms=10_000, min_bytes=200))
    one.ask(produce("t", (0, batch_of(b"a"))))
    one.turn()
    assert not future.done()
    one.ask(produce("t", (0, batch_of(b"b" * 300))))
    one.turn()
    assert values_in(part(one.wait(future, ApiKey.FETCH)).records) == [b"a", b"b" * 300]


def test_a_fetch_that_times_out_without_records_gets_an_empty_response(one):
    future = one.ask(fetch("t", (0, 0), max_wait_ms=10))
    assert values_in(part(one.wait(future, ApiKey.FETCH)).records) == []


def test_a_waiting_fetch_learns_that_its_topic_was_deleted(one):
    future = one.ask(fetch("t", (0, 0), max_wait_ms=10_000))
    one.publish(image_of({}))
    one.turn()
    assert part(one.wait(future, ApiKey.FETCH)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_waiting_fetch_learns_of_a_new_leader(tmp_path):
    world = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2))}}))
    future = world.ask(fetch("t", (0, 0), max_wait_ms=10_000, epoch=0))
    world.publish(
        image_of({"t": {0: registration(replicas=(1, 2), leader=2, leader_epoch=1, partition_epoch=1)}})
    )
    world.turn()
    assert part(world.wait(future, ApiKey.FETCH)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    world.close()


def test_consumers_do_not_see_records_that_are_not_replicated(tmp_path):
    world = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2))}}))
    world.ask(produce("t", (0, batch_of(b"a")), acks=1))
    assert values_in(part(world.ask(fetch("t", (0, 0)))).records) == []
    follower = fetch("t", (0, 0), replica_state=FetchRequest.ReplicaState(replica_id=2, replica_epoch=200))
    assert values_in(part(world.ask(follower)).records) == [b"a"]
    world.close()


def test_a_follower_that_is_no_replica_is_refused(tmp_path):
    world = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2))}}))
    stranger = FetchRequest.ReplicaState(replica_id=3, replica_epoch=300)
    assert (
        part(world.ask(fetch("t", (0, 0), epoch=0, replica_state=stranger))).error_code
        == ErrorCode.UNKNOWN_LEADER_EPOCH
    )
    world.close()


def test_a_consumer_may_read_from_a_follower(tmp_path):
    leader, follower = 2, 1
    world = Broker(tmp_path, image_of({"t": {0: registration(replicas=(leader, follower), leader=leader)}}))
    assert part(world.ask(fetch("t", (0, 0)), 11)).error_code == ErrorCode.NONE
    assert part(world.ask(fetch("t", (0, 0)), 10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.close()


def test_a_consumer_that_waits_at_a_follower_is_woken_by_replicated_records(tmp_path):
    world = Broker(tmp_path, image_of({"t": {0: registration(replicas=(2, 1), leader=2)}}))
    partition = world.replicas.partition("t", 0)
    placed = bytearray(batch_of(b"a", b"b"))
    set_placement(placed, 0, 0)
    partition.log.append_as_follower(bytes(placed))
    waiting = world.ask(fetch("t", (0, 0), max_wait_ms=60_000))
    world.turn()
    assert not waiting.done()
    partition.follow_offsets(5, 0)
    answer = part(world.wait(waiting, ApiKey.FETCH))
    assert (values_in(answer.records), answer.high_watermark) == ([b"a", b"b"], 2)
    waiting = world.ask(fetch("t", (0, 2), max_wait_ms=60_000))
    partition.truncate_fully_and_start_at(9)
    assert part(world.wait(waiting, ApiKey.FETCH)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    world.close()


def test_a_diverging_reader_gets_the_offset_of_the_divergence(tmp_path):
    world = Broker(tmp_path, image_of({"t": {0: registration(replicas=(1, 2), leader_epoch=2)}}))
    world.ask(produce("t", (0, batch_of(b"a", b"b")), acks=1))
    request = fetch("t", (0, 5), replica_state=FetchRequest.ReplicaState(replica_id=2, replica_epoch=200))
    request.topics[0].partitions[0].last_fetched_epoch = 2
    answer = part(world.ask(request))
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (2, 2)
    world.close()


def test_responses_of_a_session_have_only_changed_partitions(one):
    opened = one.ask(fetch("t", (0, 0), (1, 0), session_epoch=0))
    assert (opened.session_id, len(opened.responses[0].partitions)) == (1, 2)
    one.ask(produce("t", (1, batch_of(b"x"))))
    news = one.ask(FetchRequest(max_wait_ms=0, min_bytes=1, session_id=1, session_epoch=1))
    assert [p.partition_index for p in news.responses[0].partitions] == [1]


def test_a_waiting_fetch_of_an_advanced_session_fails(one):
    one.ask(fetch("t", (0, 0), (1, 0), epoch=0, session_epoch=0))
    waiting = one.ask(FetchRequest(max_wait_ms=60_000, min_bytes=1, session_id=1, session_epoch=1))
    assert isinstance(waiting, asyncio.Future)
    forgotten = FetchRequest.ForgottenTopic(topic="t", topic_id=topic_id_of("t"), partitions=[0])
    one.ask(FetchRequest(max_wait_ms=0, session_id=1, session_epoch=2, forgotten_topics_data=[forgotten]))
    moved = registration(replicas=(1, 2), leader=2, leader_epoch=9, partition_epoch=9)
    one.publish(image_of({"t": {0: moved, 1: registration()}}, brokers=(broker(1), broker(2))))
    answer = one.wait(waiting, ApiKey.FETCH)
    assert (answer.error_code, answer.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])


def test_an_unknown_session_is_an_error(one):
    answer = one.ask(FetchRequest(session_id=7, session_epoch=3))
    assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


# -- transactions found on disk


def test_read_committed_stops_at_an_open_transaction_and_names_aborted_ones(one):
    partition = one.replicas.partition("t", 0)

    def append(batch: bytes) -> None:
        partition.append(batch, 1, one.clock.now_ms(), AppendOrigin.COORDINATOR)

    append(batch_of(b"plain"))
    append(batch_of(b"aborted", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    marker = b"\0\0" + bytes(4)
    append(
        build_control_batch(
            [(0, marker)], producer_id=7, producer_epoch=0, is_transactional=True, timestamp=1_000_000
        )
    )
    append(batch_of(b"open", producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True))
    committed = part(one.ask(fetch("t", (0, 0), isolation=1)))
    assert (committed.last_stable_offset, committed.high_watermark) == (3, 4)
    assert [(a.producer_id, a.first_offset) for a in committed.aborted_transactions] == [(7, 1)]
    assert values_in(committed.records)[:2] == [b"plain", b"aborted"]
    uncommitted = part(one.ask(fetch("t", (0, 0), isolation=0)))
    assert uncommitted.aborted_transactions is None
    assert values_in(uncommitted.records)[-1] == b"open"


def test_a_topic_created_again_under_its_name_starts_empty(one):
    one.ask(produce("t", (0, batch_of(b"old"))))
    again = image_of({"t": {0: registration()}})
    other = again.topics.by_name["t"]._replace(id=bytes(range(16)))
    from dataclasses import replace

    from immutables import Map

    topics = replace(again.topics, by_id=Map({other.id: other}), by_name=Map({"t": other}))
    one.publish(replace(again, topics=topics))
    assert one.replicas.partition("t", 0).topic_id == other.id
    assert one.replicas.partition("t", 0).log.log_end_offset == 0


def test_an_old_topic_id_in_a_session_is_inconsistent(one):
    assert topic_id_of("t") != ZERO_UUID
    one.replicas.partitions["t", 0].topic_id = bytes(range(16))
    assert part(one.ask(fetch("t", (0, 0)))).error_code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_fenced_follower_does_not_join_the_isr(tmp_path):
    world = Broker(
        tmp_path,
        image_of(
            {"t": {0: registration(replicas=(1, 2), isr=(1,))}}, brokers=(broker(1), broker(2, fenced=True))
        ),
    )
    world.ask(fetch("t", (0, 0), replica_state=FetchRequest.ReplicaState(replica_id=2, replica_epoch=200)))
    assert world.replicas.isr_sender.changes == []
    world.close()
