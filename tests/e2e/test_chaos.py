"""The chaos command for some seconds: faults take effect, clients are served, and a loss is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.chaos.checker import check
from tests.chaos.faults import Kind, Lane, schedule
from tests.chaos.run import KEPT, PARTITIONS, Run, Settings, final_state
from tests.support.ledger import admin_client

pytestmark = pytest.mark.timeout(240)


def test_clients_keep_what_was_acknowledged_and_a_loss_is_found(tmp_path: Path) -> None:
    said: list[str] = []
    run = Run(Settings(seed=5, minutes=0.3, rate=200, sample_every_s=5), tmp_path, said.append)
    try:
        run.run()
        assert run.violations == [], said
        record = run.result()
        assert record["result"] == "passed"
        assert record["faults"]["total"] >= 2  # type: ignore[index]
        assert len(record["samples"]) >= 2  # type: ignore[arg-type]
        history = run.load.history
        assert all(history.partitions[partition].acknowledged for partition in PARTITIONS)

        run.cluster.kafka.start()
        admin = admin_client(run.cluster.kafka.bootstrap_servers)
        for future in admin.delete_records([TopicPartition(KEPT, 0, 3)]).values():
            future.result(30)
        found = check(history, final_state(run.cluster, history))
        assert [violation.property for violation in found] == ["lost", "lost", "lost", "log start"]
    finally:
        run.close()


def test_a_seed_gives_the_same_faults_again() -> None:
    def first(seed: int, lane: Lane) -> list[object]:
        faults = schedule(seed, lane, tuple(Kind))
        return [next(faults) for _ in range(100)]

    assert first(1, Lane.BROKERS) == first(1, Lane.BROKERS)
    assert first(1, Lane.BROKERS) != first(2, Lane.BROKERS)
    assert {fault.kind for fault in first(1, Lane.CONTROLLERS)} == set(Kind)  # type: ignore[attr-defined]
