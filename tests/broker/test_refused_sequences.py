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


def error_of(broker: Broker, records: bytes, *, version: int | None = None, acks: int = 1) -> int:
    answer: Any = broker.ask(produce("t", (0, records), acks=acks), version)
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("version", [12, 13])
def test_a_batch_is_not_the_first_of_a_log_after_an_earlier_one_came_too_soon(
    broker: Broker, version: int
) -> None:
    assert error_of(broker, batch(0), version=version) in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
    broker.publish(LED)
    assert error_of(broker, batch(1), version=version) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert error_of(broker, batch(0), version=version) == ErrorCode.NONE
    assert error_of(broker, batch(1), version=version) == ErrorCode.NONE


def test_a_batch_is_not_the_first_of_a_log_after_an_earlier_one_came_before_the_leadership(
    broker: Broker,
) -> None:
    broker.publish(NOT_LED)
    assert error_of(broker, batch(0)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.publish(LED_AGAIN)
    assert error_of(broker, batch(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert error_of(broker, batch(0)) == ErrorCode.NONE


def test_a_batch_is_not_the_first_of_a_log_after_an_earlier_one_lacked_replicas(broker: Broker) -> None:
    broker.publish(SMALL_ISR)
    for sequence in (0, 1):
        assert error_of(broker, batch(sequence), acks=-1) == ErrorCode.NOT_ENOUGH_REPLICAS
    broker.publish(GROWN_ISR)
    assert error_of(broker, batch(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_lowest_of_several_refused_batches_must_come_first(broker: Broker) -> None:
    for sequence in (0, 1, 2):
        error_of(broker, batch(sequence))
    broker.publish(LED)
    assert error_of(broker, batch(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
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


def test_a_refused_batch_is_not_waited_for_longer_than_a_request_may_take(
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
    assert error_of(broker, batch(1, producer_id=7)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


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
        refused.note(name, 0, batch(0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert len(refused) == 1
