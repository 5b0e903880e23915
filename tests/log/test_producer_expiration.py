"""Producers of a broker's logs expire, also while the broker is down."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorate.log.config import LogConfig
from quorate.log.directories.periodic_jobs import expire_producers
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.scheduler import run_steps
from quorate.records.batch import build_batch

from .logs import NOW, TOPIC_ID, manager


def idempotent(log: PartitionLog, sequence: int, producer: int = 7) -> None:
    data = build_batch(
        [(b"k", b"v", [], NOW)], producer_id=producer, producer_epoch=0, base_sequence=sequence
    )
    log.append_as_leader(data, 0, NOW)


def known_producers(log: PartitionLog | None) -> list[int]:
    assert log is not None
    return [state.producer_id for state in log.active_producers()]


def test_producers_expire_after_the_configured_time(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d", producer_id_expiration_ms=1000)
    log = logs.get_or_create("t", 0, TOPIC_ID)
    idempotent(log, 0)
    run_steps(expire_producers(logs))
    assert known_producers(log) == [7]
    logs.now_ms = lambda: NOW + 1000
    run_steps(expire_producers(logs))
    assert known_producers(log) == []


def test_a_new_expiration_time_of_producers_reaches_existing_logs(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d", now_ms=NOW + 1000)
    log = logs.get_or_create("t", 0, TOPIC_ID)
    idempotent(log, 0)
    logs.reconfigure({}, LogConfig(producer_id_expiration_ms=1001))
    run_steps(expire_producers(logs))
    assert known_producers(log) == [7]
    logs.reconfigure({}, LogConfig(producer_id_expiration_ms=1000))
    run_steps(expire_producers(logs))
    assert known_producers(log) == []


@pytest.mark.parametrize(("expiration_ms", "known"), [(1000, []), (1001, [7]), (2 * 86_400_000, [7])])
def test_producers_that_expired_while_the_broker_was_down_are_not_loaded(
    tmp_path: Path, expiration_ms: int, known: list[int]
) -> None:
    logs = manager(tmp_path / "d")
    logs.load()
    idempotent(logs.get_or_create("t", 0, TOPIC_ID), 0)
    logs.close()
    again = manager(tmp_path / "d", now_ms=NOW + 1000, producer_id_expiration_ms=expiration_ms)
    again.load()
    assert known_producers(again.get("t", 0)) == known
