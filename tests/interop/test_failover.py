"""Brokers of Apache Kafka find the next active controller without waiting for a timeout when an active
controller of ours dies."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.e2e.test_failover import PATIENT, SOON_S, Creator
from tests.support.mixed import MixedQuorum

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]


def test_a_java_broker_finds_the_next_active_controller_without_waiting_for_a_timeout(tmp_path: Path) -> None:
    quorum = MixedQuorum(tmp_path, "qqq", brokers_of="j", extra=dict(PATIENT))
    quorum.format()
    with quorum.killed_at_the_end():
        quorum.start(90)
        with Creator(quorum.broker).at_work() as creator:
            quorum.leader().kill()
            creator.goes_on()
        assert creator.longest_wait_s < SOON_S
        assert {_code(e) for e in creator.errors} <= {
            KafkaError.TOPIC_ALREADY_EXISTS
        }  # Kafka's brokers do not name a request


def _code(error: Exception) -> int:
    assert isinstance(error, KafkaException)
    return error.args[0].code()
