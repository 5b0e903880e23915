"""`kill -9` under load: every acknowledged change survives, and the next start succeeds. The kill comes at a
random moment of the load, sometimes of a clean stop, and again at random moments of the following starts.
Small segments and frequent metadata snapshots make it likely that a kill interrupts a roll or a snapshot.

    python -m tests.e2e.test_kill --rounds 50     # the long run; the tests do a few rounds
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.support.cluster import Node
from tests.support.ledger import QUIET, read_partition

PARTITIONS = 3


@dataclass
class Load:
    """Threads that produce, create and delete topics, alter a config and commit offsets. Records all
    responses."""

    node: Node
    produced: dict[int, dict[int, bytes]] = field(default_factory=lambda: {p: {} for p in range(PARTITIONS)})
    created: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    committed: int = -1
    attempted: int = -1
    retention: int = 0
    retention_attempted: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    round: int = 0

    def start(self, round_: int) -> None:
        self.round = round_
        self._stop.clear()
        self._threads = [
            threading.Thread(target=f, daemon=True)
            for f in (self._produce, self._create, self._delete, self._commit, self._configure)
        ]
        for t in self._threads:
            t.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        """Ends the threads. Called after the restart of the node, because a commit in flight ends only when
        a coordinator answers."""
        for t in self._threads:
            t.join(30)
            assert not t.is_alive(), "a load thread hangs"

    def _produce(self) -> None:
        def delivered(err, msg) -> None:  # type: ignore[no-untyped-def]
            if err is None:
                self.produced[msg.partition()][msg.offset()] = msg.value()

        p = Producer(
            {
                "bootstrap.servers": self.node.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 3000,
                **QUIET,
            }
        )
        i = 0
        while not self._stop.is_set():
            for _ in range(20):
                p.produce(
                    "load", b"%d-%d-" % (self.round, i) * 8, partition=i % PARTITIONS, on_delivery=delivered
                )
                i += 1
            p.poll(0.002)
        p.purge()
        p.poll(0)

    def _create(self) -> None:
        admin = self.node.admin()
        i = 0
        while not self._stop.is_set():
            name = f"t-{self.round}-{i}"
            i += 1
            try:
                for f in admin.create_topics(
                    [NewTopic(name, 1, 1)], operation_timeout=1, request_timeout=1
                ).values():
                    f.result()
                self.created.add(name)
            except KafkaException:
                pass

    def _delete(self) -> None:
        """Creates topics with one record each, so that files exist, and deletes them."""
        admin = self.node.admin()
        p = Producer({"bootstrap.servers": self.node.bootstrap, "message.timeout.ms": 1000, **QUIET})
        i = 0
        while not self._stop.is_set():
            name = f"d-{self.round}-{i}"
            i += 1
            try:
                admin.create_topics([NewTopic(name, 2, 1)], operation_timeout=1, request_timeout=1)[
                    name
                ].result()
                p.produce(name, b"x" * 100, partition=i % 2)
                p.flush(1)
                admin.delete_topics([name], operation_timeout=1, request_timeout=1)[name].result()
                self.deleted.add(name)
            except KafkaException:
                pass
        p.purge()

    def _configure(self) -> None:
        admin = self.node.admin()
        while not self._stop.is_set():
            value = self.retention_attempted = self.retention_attempted + 1
            entry = ConfigEntry(
                "retention.ms", str(10**9 + value), incremental_operation=AlterConfigOpType.SET
            )
            try:
                for f in admin.incremental_alter_configs(
                    [ConfigResource(ResourceType.TOPIC, "load", incremental_configs=[entry])],
                    request_timeout=1,
                ).values():
                    f.result()
                self.retention = value
            except KafkaException:
                pass

    def _commit(self) -> None:
        c = Consumer(
            {
                "bootstrap.servers": self.node.bootstrap,
                "group.id": "committer",
                "enable.auto.commit": False,
                **QUIET,
            }
        )
        while not self._stop.is_set():
            self.attempted += 1
            try:
                for tp in c.commit(offsets=[TopicPartition("load", 0, self.attempted)], asynchronous=False):
                    if tp.error is None:
                        self.committed = self.attempted
            except KafkaException:
                self._stop.wait(0.02)
        c.close()


def check(load: Load) -> None:
    node = load.node
    admin = node.admin()
    present = set(admin.list_topics(timeout=20).topics)
    assert load.created <= present, f"topics lost: {sorted(load.created - present)[:5]}"
    assert not load.deleted & present, f"deleted topics are back: {sorted(load.deleted & present)[:5]}"
    for partition, held in load.produced.items():
        there = read_partition(node.bootstrap, "load", partition, "read_uncommitted")
        for offset, value in held.items():
            assert offset < len(there), (
                f"load-{partition}: acknowledged offset {offset} is beyond the end {len(there)}"
            )
            assert there[offset] == value, f"load-{partition}: offset {offset} holds another record"
        assert len(set(there)) == len(there), f"load-{partition}: an idempotent record is there twice"
    found = next(iter(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "load")]).values())).result()
    value = found["retention.ms"].value
    if load.retention:
        assert load.retention <= int(value) - 10**9 <= load.retention_attempted
    if load.committed >= 0:
        c = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "committer", **QUIET})
        offset = c.committed([TopicPartition("load", 0)], timeout=20)[0].offset
        c.close()
        assert load.committed <= offset <= load.attempted, (
            f"committed offset {load.committed} came back as {offset}"
        )


def campaign(base: Path, rounds: int, seed: int, report: bool = False) -> dict[str, object]:
    """Runs rounds of load, kill, restart and check. Returns the figures of all rounds."""
    rng = random.Random(seed)
    node = Node(
        base / "node",
        extra={
            "auto.create.topics.enable": "false",  # or producers bring deleted topics back
            "log.segment.bytes": 1 << 20,
            "log.retention.check.interval.ms": 200,
            "log.segment.delete.delay.ms": 300,
            "metadata.log.max.record.bytes.between.snapshots": 30_000,
            "internal.metadata.log.segment.bytes": 50_000,
        },
    )
    node.format()
    load = Load(node)
    starts = []
    stops_cut = starts_cut = 0
    try:
        node.start()
        admin = node.admin()
        topic = NewTopic("load", PARTITIONS, 1, config={"segment.ms": "200"})
        for f in admin.create_topics([topic], operation_timeout=10).values():
            f.result()
        for r in range(rounds):
            load.start(r)
            time.sleep(rng.uniform(0.05, 1.5))  # the moment of the kill is the random input of this test
            assert node.proc is not None
            if rng.random() < 0.25:
                node.proc.terminate()
                time.sleep(rng.uniform(0, 0.25))
                stops_cut += node.proc.poll() is None
            node.kill()
            load.stop()
            while rng.random() < 0.4:
                node.start(wait=False)
                time.sleep(rng.uniform(0.05, 0.6))
                starts_cut += 1
                assert node.proc.poll() is None, "a start failed"
                node.kill()
            t = time.perf_counter()
            node.start()
            starts.append(time.perf_counter() - t)
            load.join()
            check(load)
            if report:
                print(
                    f"round {r + 1}/{rounds}: {sum(map(len, load.produced.values()))} records, "
                    f"{len(load.created)} topics, restart {starts[-1]:.2f} s",
                    file=sys.stderr,
                )
        assert node.stop() == 0
    except BaseException:
        print(f"seed {seed}\n{node.log_tail(60)}", file=sys.stderr)
        raise
    finally:
        node.kill()
    return {
        "rounds": rounds,
        "seed": seed,
        "records": sum(map(len, load.produced.values())),
        "topics": len(load.created),
        "topics_deleted": len(load.deleted),
        "kills_during_start": starts_cut,
        "kills_during_stop": stops_cut,
        "commits": load.committed + 1,
        "config_changes": load.retention,
        "restart_median_s": round(sorted(starts)[len(starts) // 2], 3),
        "restart_max_s": round(max(starts), 3),
    }


@pytest.mark.timeout(180)
def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path) -> None:
    figures = campaign(tmp_path, rounds=4, seed=20_240_901)
    assert figures["records"] and figures["topics"] and figures["commits"] and figures["config_changes"]


if __name__ == "__main__":
    args = argparse.ArgumentParser(description="kill -9 under load, many times")
    args.add_argument("--rounds", type=int, default=50)
    args.add_argument("--seed", type=int, default=1)
    ns = args.parse_args()
    with tempfile.TemporaryDirectory() as d:
        print(json.dumps(campaign(Path(d), ns.rounds, ns.seed, report=True)))
