"""A replica moves between the two log directories of a broker under load: the throttle is held, and nothing
that was acknowledged is lost, whatever stops the broker meanwhile. KIP-113, KIP-858."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from quorate.admin.sync import AdminClient
from quorate.admin.types import ReplicaLogDirInfo, TopicPartitionReplica
from tests.support.cluster import BIN, Node, wait_for
from tests.support.ledger import QUIET, read_partition

pytestmark = pytest.mark.timeout(240)

TOPIC = "moved"
REPLICA = TopicPartitionReplica(TOPIC, 0, 1)
VALUE_BYTES = 10_000
LOAD_BYTES = 100  # one after another, so that the load stays far below the throttle
BATCH_BYTES = 100_000
AHEAD = 300_000  # the size of one copy, which has at least one batch
WINDOW_S = 1.0  # of the throttle's rate (`alter.log.dirs.replication.quota.window.size.seconds`)


def two_directories(tmp_path: Path, **options: str) -> Node:
    directories = f"{tmp_path / 'first'},{tmp_path / 'second'}"
    return Node(
        tmp_path / "node",
        extra={"log.dirs": directories, "metadata.log.dir": tmp_path / "metadata"},
        **options,
    )


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = two_directories(tmp_path)
    node.format()
    try:
        node.start()
        yield node
    except BaseException:
        print(node.log_tail(80))
        raise
    finally:
        node.kill()


def fill(node: Node, count: int) -> list[bytes]:
    """Creates the topic. Returns its records."""
    admin = node.admin()
    for future in admin.create_topics([NewTopic(TOPIC, 1, 1)], operation_timeout=20).values():
        future.result(30)
    producer = Producer(
        {"bootstrap.servers": node.bootstrap, "acks": "all", "batch.size": BATCH_BYTES, **QUIET}
    )
    values = [b"%06d" % n + bytes(VALUE_BYTES) for n in range(count)]
    for value in values:
        producer.produce(TOPIC, value, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    return values


def directories(node: Node) -> ReplicaLogDirInfo:
    with AdminClient(node.bootstrap) as admin:
        return admin.describe_replica_log_dirs([REPLICA])[REPLICA]


def other_directory(node: Node) -> Path:
    """The directory without the replica."""
    current = directories(node).current_path
    (other,) = {*str(node.extra["log.dirs"]).split(",")} - {current}
    return Path(other)


def reassign(node: Node, target: Path, action: str, *options: object) -> str:
    """Runs kafka-reassign-partitions."""
    plan = node.base / "plan.json"
    entry = {"topic": TOPIC, "partition": 0, "replicas": [1], "log_dirs": [str(target)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    command = [BIN / "kafka-reassign-partitions", "--bootstrap-server", node.bootstrap]
    command += [action, "--reassignment-json-file", plan, *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    return done.stdout


def copied(target: Path) -> int:
    """The size of the copy so far."""
    size = 0
    for path in target.glob(f"{TOPIC}-0*/*.log"):
        with contextlib.suppress(FileNotFoundError):  # the copy took the replica's place and its name
            size += path.stat().st_size
    return size


def has_moved(node: Node, target: Path) -> bool:
    return directories(node) == ReplicaLogDirInfo(str(target), 0)


class Load:
    """A thread that writes one record after another. `values` are the acknowledged ones."""

    def __init__(self, node: Node) -> None:
        self.values: list[bytes] = []
        self._node = node
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._node.bootstrap, "acks": "all", "linger.ms": 0, **QUIET}
        )
        number = 0
        while not self._stopping.is_set():
            value = b"load %06d" % number + bytes(LOAD_BYTES)
            number += 1
            producer.produce(
                TOPIC,
                value,
                partition=0,
                on_delivery=lambda error, message: error or self.values.append(message.value()),
            )
            assert producer.flush(30) == 0


def test_a_replica_moves_under_load_at_the_rate_of_its_throttle(node: Node) -> None:
    before = fill(node, 500)
    target, rate = other_directory(node), 1_500_000
    began = time.monotonic()
    with Load(node) as load:
        shown = reassign(node, target, "--execute", "--replica-alter-log-dirs-throttle", rate)
        assert f"The replica-alter-dir throttle limit was set to {rate} B/s" in shown
        assert f"Successfully started moving log directory to {target}" in shown
        assert "is still in progress" in reassign(node, target, "--verify")
        moving = directories(node)
        assert moving.future_path == str(target) and moving.future_lag > 0
        while not has_moved(node, target):
            # At any time no more is copied than the limit allows. One copy may be ahead of it. The
            # first window of the rate counts as a whole one from its start, as in Kafka.
            assert copied(target) <= max(time.monotonic() - began, WINDOW_S) * rate + AHEAD
        assert time.monotonic() - began >= (500 * VALUE_BYTES - AHEAD) / rate
    assert "completed successfully" in reassign(node, target, "--verify")
    assert len(load.values) > 20
    assert read_partition(node.bootstrap, TOPIC, 0) == before + load.values
    node.stop()
    node.start()
    assert has_moved(node, target)
    assert read_partition(node.bootstrap, TOPIC, 0) == before + load.values


def test_a_move_continues_after_a_crash(node: Node) -> None:
    before = fill(node, 400)
    target = other_directory(node)
    reassign(node, target, "--execute", "--replica-alter-log-dirs-throttle", 100_000)
    wait_for("the first bytes", lambda: copied(target) > 0)
    node.kill()
    node.start()
    assert directories(node).future_path == str(target)
    reassign(node, target, "--execute", "--additional", "--replica-alter-log-dirs-throttle", 1 << 40)
    wait_for("the move", lambda: has_moved(node, target))
    assert read_partition(node.bootstrap, TOPIC, 0) == before


def test_records_deleted_during_a_move_stay_deleted_after_a_crash(node: Node) -> None:
    """The throttle would let the copy come to the deleted offset after half a minute."""
    before = fill(node, 300)
    target = other_directory(node)
    reassign(node, target, "--execute", "--replica-alter-log-dirs-throttle", 100_000)
    wait_for("the first bytes", lambda: copied(target) > 0)
    admin = node.admin()
    (deletion,) = admin.delete_records([TopicPartition(TOPIC, 0, 255)]).values()
    assert deletion.result(15).low_watermark == 255
    reassign(node, target, "--execute", "--additional", "--replica-alter-log-dirs-throttle", 1 << 40)
    wait_for("the move", lambda: has_moved(node, target))
    node.kill()
    node.start()
    assert has_moved(node, target)
    assert read_partition(node.bootstrap, TOPIC, 0) == before[255:]


def test_a_cancelled_move_leaves_nothing_behind(node: Node) -> None:
    before = fill(node, 300)
    target = other_directory(node)
    reassign(node, target, "--execute", "--replica-alter-log-dirs-throttle", 100_000)
    wait_for("the first bytes", lambda: copied(target) > 0)
    assert "Successfully started moving log directory to" in reassign(node, target, "--cancel")
    wait_for("the end of the copy", lambda: not list(target.glob(f"{TOPIC}-0*-future")))
    assert other_directory(node) == target and directories(node).future_path is None
    assert read_partition(node.bootstrap, TOPIC, 0) == before
