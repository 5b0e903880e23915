"""The chaos command for some seconds: faults take effect, clients are served, and a loss is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Message, TopicPartition

from tests.chaos.checker import check
from tests.chaos.clients import Reader
from tests.chaos.cluster import ChaosCluster
from tests.chaos.faults import Kind, Lane, schedule
from tests.chaos.history import Partition
from tests.chaos.run import KEPT, PARTITIONS, Load, Run, Settings, final_state
from tests.support.cluster import wait_for
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


PLANTED_BUG = """
import importlib.abc, importlib.util, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "quorate.broker.handlers.produce":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def planting(module):
            execute(module)
            handle = module.ProduceHandler.__call__

            def handle_as_acks_1(self, context, request):
                request.acks = 1
                return handle(self, context, request)

            module.ProduceHandler.__call__ = handle_as_acks_1

        spec.loader.exec_module = planting
        return spec

if "quorate.testing.node" in sys.orig_argv:
    sys.meta_path.insert(0, Finder())
"""
"""A sitecustomize module: brokers acknowledge acks=all before the followers have the records."""


def test_a_loss_by_a_bug_in_the_brokers_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(PLANTED_BUG)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    cluster = ChaosCluster(tmp_path / "nodes")
    load = Load(cluster.kafka.bootstrap_servers, Settings(rate=200))
    try:
        load.start()
        first = cluster.brokers[0]
        held = load.acknowledgements.at
        wait_for("records of all partitions", lambda: all(held[partition] for partition in PARTITIONS), 60)
        led = {PARTITIONS[i] for i in range(len(PARTITIONS)) if leader_of(cluster, PARTITIONS[i]) == first}
        assert led, "the leaders of five partitions are on three brokers"
        cluster.kafka.cut(first)
        wait_for(
            "other leaders",
            lambda: all(leader_of(cluster, partition) not in (first, -1) for partition in led),
            60,
        )
        assert any(f"Fencing broker {first} " in line for line in cluster.fencings())
        cluster.kafka.heal()
        wait_for("all brokers in every ISR", lambda: cluster.incomplete_brokers() is None, 60)
        load.stop(10)
        found = {violation.property for violation in check(load.history, final_state(cluster, load.history))}
        assert "lost" in found
    finally:
        load.abandon()
        cluster.kafka.close()


def test_a_reader_that_stops_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader loses the connection to a partition for ever, without an error."""
    take = Reader._take

    def take_less(self: Reader, partition: Partition, message: Message) -> None:
        if partition != PARTITIONS[1] or message.offset() < 30:  # type: ignore[operator]
            take(self, partition, message)

    monkeypatch.setattr(Reader, "_take", take_less)
    cluster = ChaosCluster(tmp_path)
    load = Load(cluster.kafka.bootstrap_servers, Settings(rate=200))
    try:
        load.start()
        acknowledged = [load.history.partitions[partition].acknowledged for partition in PARTITIONS]
        wait_for("records of all partitions", lambda: min(map(len, acknowledged)) >= 60, 60)
        load.stop(10)
        assert load.history.client_errors == []
        found = check(load.history, final_state(cluster, load.history))
        assert [str(violation).rpartition(" ")[0] for violation in found] == [
            "end: kept-1 was read by reader up to 30, but ends at"
        ]
    finally:
        load.abandon()
        cluster.kafka.close()


def leader_of(cluster: ChaosCluster, partition: tuple[str, int]) -> int:
    """The leader of a partition in the metadata of the last broker."""
    topic, number = partition
    topics = {found.name: found for found in cluster.metadata(cluster.brokers[-1]).topics}
    return {p.partition_index: p.leader_id for p in topics[topic].partitions}[number]


def test_a_seed_gives_the_same_faults_again() -> None:
    def first(seed: int, lane: Lane) -> list[object]:
        faults = schedule(seed, lane, tuple(Kind))
        return [next(faults) for _ in range(100)]

    assert first(1, Lane.BROKERS) == first(1, Lane.BROKERS)
    assert first(1, Lane.BROKERS) != first(2, Lane.BROKERS)
    assert {fault.kind for fault in first(1, Lane.CONTROLLERS)} == set(Kind)  # type: ignore[attr-defined]
