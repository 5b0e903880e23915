"""Pipelined batches of an idempotent producer of which the first one was refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.handlers import refused_sequences
from quorate.protocol.errors import ErrorCode

from .fakes import registration
from .world import Broker, batch_of, image_of, produce

NOTHING = image_of({})
LED = image_of({"t": {0: registration()}})
NOT_LED = image_of({"t": {0: registration(replicas=(1, 2), leader=2, leader_epoch=1, partition_epoch=1)}})
LED_AGAIN = image_of({"t": {0: registration(replicas=(1, 2), leader_epoch=2, partition_epoch=2)}})
MIN_ISR = {(2, "t"): {"min.insync.replicas": "2"}}
SMALL_ISR = image_of({"t": {0: registration(replicas=(1, 2), isr=(1,))}}, configs=MIN_ISR)
GROWN_ISR = image_of({"t": {0: registration(replicas=(1, 2), partition_epoch=1)}}, configs=MIN_ISR)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path, NOTHING)
    yield made
    made.close()


def batch(sequence: int, *, producer_id: int = 5, epoch: int = 0) -> bytes:
    return batch_of(b"%d" % sequence, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


class Connection:
    def __init__(self) -> None:
        self.requests = 0


def error_of(
    broker: Broker,
    records: bytes,
    *,
    version: int | None = None,
    acks: int = 1,
    connection: Connection | None = None,
) -> int:
    if connection is not None:
        connection.requests += 1
    answer: Any = broker.ask(produce("t", (0, records), acks=acks), version, connection=connection)
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("version", [12, 13])
def test_a_batch_is_not_the_first_of_a_log_after_an_earlier_one_came_too_soon(
    broker: Broker, version: int
) -> None:
    refused = error_of(broker, batch(0), version=version)
    assert refused in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    broker.publish(LED)
    assert error_of(broker, batch(1), version=version) == refused
    assert error_of(broker, batch(0), version=version) == ErrorCode.NONE
    assert error_of(broker, batch(1), version=version) == ErrorCode.NONE


def test_a_batch_is_not_the_first_of_a_log_after_an_earlier_one_came_before_the_leadership(
    broker: Broker,
) -> None:
    broker.publish(NOT_LED)
    assert error_of(broker, batch(0)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.publish(LED_AGAIN)
    assert error_of(broker, batch(1)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(broker, batch(0)) == ErrorCode.NONE


def test_a_batch_is_not_the_first_of_a_log_after_an_earlier_one_lacked_replicas(broker: Broker) -> None:
    broker.publish(SMALL_ISR)
    for sequence in (0, 1):
        assert error_of(broker, batch(sequence), acks=-1) == ErrorCode.NOT_ENOUGH_REPLICAS
    broker.publish(GROWN_ISR)
    assert error_of(broker, batch(1)) == ErrorCode.NOT_ENOUGH_REPLICAS


def test_the_lowest_of_several_refused_batches_must_come_first(broker: Broker) -> None:
    for sequence in (0, 1, 2):
        error_of(broker, batch(sequence))
    broker.publish(LED)
    assert error_of(broker, batch(1)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert error_of(broker, batch(0)) == ErrorCode.NONE


def test_another_producer_and_a_new_epoch_begin_with_any_sequence(broker: Broker) -> None:
    error_of(broker, batch(0))
    broker.publish(LED)
    assert error_of(broker, batch(7, producer_id=6)) == ErrorCode.NONE
    assert error_of(broker, batch(7, epoch=1)) == ErrorCode.NONE


def test_a_batch_that_is_too_large_is_not_waited_for(broker: Broker) -> None:
    broker.publish(image_of({"t": {0: registration()}}, configs={(2, "t"): {"max.message.bytes": "80"}}))
    large = batch_of(b"x" * 100, producer_id=5, producer_epoch=0, base_sequence=0)
    assert error_of(broker, large) == ErrorCode.MESSAGE_TOO_LARGE
    assert error_of(broker, batch(1)) == ErrorCode.NONE


def test_a_refused_batch_is_not_waited_for_longer_than_requests_in_flight_may_take(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_sequences, "REMEMBERED_S", -1.0)
    error_of(broker, batch(0))
    broker.publish(LED)
    assert error_of(broker, batch(1)) == ErrorCode.NONE


def test_the_number_of_remembered_batches_is_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_sequences, "MAX_ENTRIES", 2)
    for producer_id in (5, 6, 7):
        error_of(broker, batch(0, producer_id=producer_id))
    broker.publish(LED)
    assert error_of(broker, batch(1, producer_id=5)) == ErrorCode.NONE
    assert error_of(broker, batch(1, producer_id=7)) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_batch_that_was_in_flight_with_the_refused_one_is_not_the_first_of_a_log(broker: Broker) -> None:
    connection = Connection()
    for sequence in (0, 1, 2, 3):
        error_of(broker, batch(sequence), connection=connection)
    broker.publish(LED)
    error = error_of(broker, batch(4), connection=connection)
    assert error == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_batch_that_was_sent_after_the_response_to_the_refused_one_is_the_first_of_a_log(
    broker: Broker,
) -> None:
    connection = Connection()
    for sequence in (0, 1, 2, 3, 4):
        error_of(broker, batch(sequence), connection=connection)
    broker.publish(LED)
    assert error_of(broker, batch(100), connection=connection) == ErrorCode.NONE


def test_a_batch_on_another_connection_does_not_wait_for_the_refused_one(broker: Broker) -> None:
    error_of(broker, batch(0), connection=Connection())
    broker.publish(LED)
    assert error_of(broker, batch(100), connection=Connection()) == ErrorCode.NONE


def test_a_batch_does_not_wait_for_one_that_was_refused_long_before(broker: Broker) -> None:
    """The producer continues with its sequence in a new topic of the same name, which this broker leads."""
    connection = Connection()
    error_of(broker, batch(0), connection=connection)
    connection.requests += 100
    error_of(broker, batch(50), connection=connection)
    broker.publish(LED)
    assert error_of(broker, batch(50), connection=connection) == ErrorCode.NONE
    assert error_of(broker, batch(51), connection=connection) == ErrorCode.NONE


def test_a_later_batch_is_refused_for_the_same_reason_while_the_isr_is_too_small(broker: Broker) -> None:
    """librdkafka gets a new producer id after OUT_OF_ORDER_SEQUENCE_NUMBER, at each attempt."""
    broker.publish(SMALL_ISR)
    for sequence in (0, 1):
        assert error_of(broker, batch(sequence), acks=-1) == ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_later_batch_is_refused_for_the_same_reason_in_controlled_shutdown(broker: Broker) -> None:
    broker.publish(LED)
    broker.replicas.accepts_appends = False
    for sequence in (0, 1):
        assert error_of(broker, batch(sequence)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_name_that_no_topic_can_have_is_not_remembered() -> None:
    """A client may send 32 KiB as a name."""
    refused = refused_sequences.RefusedSequences(lambda: 0.0)
    for name in ("t" * 249, "t" * 250):
        refused.remember(name, 0, batch(0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    assert len(refused) == 1


def test_a_batch_that_arrives_late_behind_the_refused_one_is_not_the_first_of_a_log(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_sequences, "REMEMBERED_S", -1.0)
    connection = Connection()
    error_of(broker, batch(0), connection=connection)
    broker.publish(LED)
    assert error_of(broker, batch(1), connection=connection) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_batch_that_is_taken_for_one_in_flight_is_refused_at_most_four_times(broker: Broker) -> None:
    connection = Connection()
    error_of(broker, batch(0), connection=connection)
    broker.publish(LED)
    errors = [error_of(broker, batch(100), connection=connection) for _ in range(5)]
    assert errors == [ErrorCode.UNKNOWN_TOPIC_ID] * 4 + [ErrorCode.NONE]
