"""A node on a slow disk: work that waits for the disk does not block the event loop, which Raft, heartbeats
and clients share.

Each operation of the disk takes SLOW_MS. If the event loop waited for one, the response time of the probe
would show it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from quorate.net.channel import NodeChannel
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.list_offsets import ListOffsetsRequest
from quorate.protocol.messages.produce import ProduceRequest
from quorate.records.batch import build_batch
from tests.support.cluster import Node, free_ports, running, wait_for
from tests.support.ledger import QUIET
from tests.support.loop_probe import LoopProbe, probing
from tests.support.slow_disk import SlowDisk, drop_from_page_cache

pytestmark = pytest.mark.timeout(180)

SLOW_MS = 600
BOUND_S = 0.05
"""The longest pause of the event loop, far below what one operation of the disk costs it."""


@pytest.fixture
def disk(tmp_path: Path) -> SlowDisk:
    return SlowDisk(tmp_path)


@pytest.fixture
def node(tmp_path: Path, disk: SlowDisk) -> Iterator[Node]:
    node = Node(
        tmp_path / "node",
        extra={
            "replica.high.watermark.checkpoint.interval.ms": 100,
            "log.flush.offset.checkpoint.interval.ms": 100,
            "log.flush.start.offset.checkpoint.interval.ms": 100,
            "log.retention.check.interval.ms": 200,
            "log.segment.delete.delay.ms": 100,
        },
    )
    with running(node, env=disk.env):
        yield node


def watching(node: Node, port: int) -> AbstractContextManager[LoopProbe]:
    assert node.proc is not None
    return probing(port, node.proc.pid)


def create(node: Node, topic: str, partitions: int = 1, **config: object) -> None:
    new = NewTopic(topic, partitions, 1, config={k.replace("_", "."): str(v) for k, v in config.items()})
    admin = node.admin()
    admin.create_topics([new], operation_timeout=60, request_timeout=60)[topic].result()


def fill(node: Node, topic: str, partitions: int, count: int, size: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 5, "batch.size": 100_000, **QUIET})
    for i in range(count):
        while True:
            try:
                producer.produce(topic, bytes(size), partition=i % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def slow_fsyncs(node: Node, disk: SlowDisk) -> None:
    """From now on the metadata log is synced in a thread too, because its first slow fsync was measured in
    the event loop."""
    disk.set(fsync_ms=SLOW_MS)
    create(node, "first-slow-one")


def files(node: Node, pattern: str) -> list[Path]:
    return list(node.data.glob(pattern))


def test_deleting_a_topic_and_checkpoints(node: Node, disk: SlowDisk) -> None:
    create(node, "t", 20)
    fill(node, "t", 20, 200, 100)
    wait_for("20 logs", lambda: len(files(node, "t-*/*.log")) == 20)
    slow_fsyncs(node, disk)
    with watching(node, node.broker_port) as probe:
        admin = node.admin()
        admin.delete_topics(["t"], operation_timeout=60, request_timeout=60)["t"].result()
        wait_for("the files to be gone", lambda: not files(node, "t-*"), 60)
        fill(node, "first-slow-one", 1, 10, 100)
        checkpoint = node.data / "replication-offset-checkpoint"
        wait_for("the checkpoint", lambda: "first-slow-one 0 10" in checkpoint.read_text())
    assert probe.longest_s < BOUND_S, probe.slowest


def test_rolling_segments(node: Node, disk: SlowDisk) -> None:
    slow_fsyncs(node, disk)
    create(node, "t", 2, segment_bytes=1 << 20)
    with watching(node, node.broker_port) as probe:
        fill(node, "t", 2, 1500, 4000)
        wait_for("two rolls in each partition", lambda: len(files(node, "t-*/*.log")) >= 6)
    assert probe.longest_s < BOUND_S, probe.slowest


def test_the_first_appends_to_a_thousand_partitions_in_one_request(node: Node, disk: SlowDisk) -> None:
    create(node, "t", 1000)
    slow_fsyncs(node, disk)
    batch = build_batch([(None, b"value", [], time.time_ns() // 1_000_000)])
    topic = ProduceRequest.TopicProduceData(
        name="t",
        partition_data=[ProduceRequest.PartitionProduceData(index=i, records=batch) for i in range(1000)],
    )

    async def produce() -> None:
        channel = NodeChannel("127.0.0.1", node.broker_port, client_id="test")
        with contextlib.closing(channel):
            request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
            answer = await channel.call(request, 60, 12)
        assert {p.error_code for p in answer.responses[0].partition_responses} == {ErrorCode.NONE}

    with watching(node, node.broker_port) as probe:
        asyncio.run(produce())
    assert len(files(node, "t-*/*.log")) == 1000
    assert probe.longest_s < BOUND_S, probe.slowest


def test_reading_what_is_not_in_the_page_cache(node: Node, disk: SlowDisk) -> None:
    create(node, "t", segment_bytes=4 << 20)
    fill(node, "t", 1, 3000, 4000)
    drop_from_page_cache(node.data)
    disk.set(read_ms=SLOW_MS)
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            **QUIET,
        }
    )
    with watching(node, node.controller_port) as probe, contextlib.closing(consumer):
        consumer.subscribe(["t"])
        got = 0
        while got < 3000:
            messages = consumer.consume(500, 60)
            assert messages
            got += len(messages)
    assert got == 3000
    assert probe.longest_s < BOUND_S, probe.slowest


def test_searching_by_timestamp(node: Node, disk: SlowDisk) -> None:
    create(node, "t", 3, segment_bytes=1 << 20)
    fill(node, "t", 3, 3000, 4000)
    now_ms = time.time_ns() // 1_000_000
    wait_for("segments", lambda: len(files(node, "t-*/*.log")) >= 9)
    assert node.stop() == 0
    node.start(env=disk.env)
    drop_from_page_cache(node.data)
    disk.set(read_ms=SLOW_MS)
    make = ListOffsetsRequest
    partitions = [
        make.ListOffsetsPartition(partition_index=p, timestamp=timestamp)
        for p, timestamp in enumerate((0, now_ms - 1, -3))
    ]
    request = make(replica_id=-1, topics=[make.ListOffsetsTopic(name="t", partitions=partitions)])

    async def search() -> Any:
        with contextlib.closing(NodeChannel("127.0.0.1", node.broker_port, client_id="test")) as channel:
            return await channel.call(request, 60, 7)

    with watching(node, node.controller_port) as probe:
        found = asyncio.run(search()).topics[0].partitions
    assert [p.error_code for p in found] == [ErrorCode.NONE] * 3
    assert found[0].offset == 0 and found[2].offset > 0
    assert probe.longest_s < BOUND_S, probe.slowest


def test_retention(node: Node, disk: SlowDisk) -> None:
    create(node, "t", 4, segment_bytes=1 << 20, retention_bytes=-1)
    fill(node, "t", 4, 4000, 4000)
    wait_for("segments", lambda: len(files(node, "t-*/*.log")) >= 12)
    disk.set(change_ms=SLOW_MS)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
    resource.add_incremental_config(
        ConfigEntry("retention.bytes", str(1 << 20), incremental_operation=AlterConfigOpType.SET)
    )
    with watching(node, node.broker_port) as probe:
        admin = node.admin()
        admin.incremental_alter_configs([resource])[resource].result(60)
        wait_for("old segments to be gone", lambda: len(files(node, "t-*/*.log")) <= 8, 120)
        disk.set()
    assert probe.longest_s < BOUND_S, probe.slowest


def test_deleted_records_stay_deleted_after_a_kill(node: Node, disk: SlowDisk) -> None:
    """The files of deleted segments are renamed one after the other. The node is killed before the last."""
    create(node, "t", segment_bytes=1 << 20)
    create(node, "other")
    fill(node, "t", 1, 1500, 4000)
    fill(node, "other", 1, 10, 100)
    segments = sorted(path.name for path in files(node, "t-0/*.log"))
    assert len(segments) >= 5
    disk.set(change_ms=SLOW_MS)
    start = int(Path(segments[4]).stem)
    assert deleted(node, "t", start) == start
    wait_for("the first of the segments to go", lambda: len(files(node, "t-0/*.log")) < len(segments))
    assert deleted(node, "other", 5) == 5  # this writes the checkpoint of all log starts
    assert (node.data / "t-0" / segments[3]).exists()
    node.kill()
    disk.set()
    node.start(env=disk.env)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g", **QUIET})
    found = [consumer.get_watermark_offsets(TopicPartition(t, 0), timeout=30)[0] for t in ("t", "other")]
    consumer.close()
    assert found == [start, 5]


def deleted(node: Node, topic: str, offset: int) -> int:
    """Deletes the records before `offset`. Returns the low watermark."""
    admin = node.admin()
    futures = admin.delete_records([TopicPartition(topic, 0, offset)], request_timeout=60)
    return int(next(iter(futures.values())).result(60).low_watermark)


def opening(node: Node, disk: SlowDisk, read_ms: int) -> LoopProbe:
    """Starts the node again, with cold files. Returns the pauses of its controller while the broker opens its
    logs."""
    drop_from_page_cache(node.data)
    disk.set(read_ms=read_ms)
    node.start(env=disk.env, wait=False)
    log = node.base / "out.log"
    wait_for("the controller to serve", lambda: log.read_text().count("controller serves") == 2, 60)
    with watching(node, node.controller_port) as probe:
        node.wait_ready(120)
    return probe


def test_opening_a_hundred_logs(node: Node, disk: SlowDisk) -> None:
    create(node, "t", 100)
    fill(node, "t", 100, 1000, 1000)
    assert node.stop() == 0
    probe = opening(node, disk, read_ms=2 * int(BOUND_S * 1000))
    assert "Opened 100 logs" in (node.base / "out.log").read_text()
    assert probe.longest_s < BOUND_S, probe.slowest


def test_recovering_logs_after_a_kill(node: Node, disk: SlowDisk) -> None:
    create(node, "t", 4)
    fill(node, "t", 4, 4000, 4000)
    node.kill()
    probe = opening(node, disk, SLOW_MS)
    assert "was not closed cleanly" in (node.base / "out.log").read_text()
    assert probe.longest_s < BOUND_S, probe.slowest


def test_stopping(node: Node, disk: SlowDisk) -> None:
    """The controller of a combined node continues until its broker has closed all logs."""
    create(node, "t", 4)
    fill(node, "t", 4, 80, 100)
    slow_fsyncs(node, disk)
    assert node.proc is not None
    with watching(node, node.controller_port) as probe:
        node.proc.terminate()
        wait_for("the logs to be closed", (node.data / ".kafka_cleanshutdown").exists, 60)
    assert probe.answers > 100
    assert probe.longest_s < BOUND_S, probe.slowest
    assert node.stop() == 0


def test_loading_the_groups_of_a_broker_that_died(tmp_path: Path, disk: SlowDisk) -> None:
    (port,) = free_ports(1)
    quorum = {"static": True, "voters": {9: port}}
    extra = {
        "offsets.topic.replication.factor": 2,
        "offsets.topic.num.partitions": 1,
        "broker.session.timeout.ms": 3000,
    }
    controller = Node(tmp_path / "c", node_id=9, roles="controller", controller_port=port, **quorum)
    nodes = {
        i: Node(tmp_path / f"n{i}", node_id=i, roles="broker", extra=dict(extra), **quorum) for i in (1, 2)
    }
    with running(controller), running(nodes[1], env=disk.env), running(nodes[2], env=disk.env):
        admin = nodes[1].admin()
        admin.create_topics([NewTopic("t", 200, 2)])["t"].result(20)
        client = {"bootstrap.servers": f"{nodes[1].bootstrap},{nodes[2].bootstrap}", "group.id": "g", **QUIET}
        consumer = Consumer({**client, "enable.auto.commit": False})
        for number in range(200):
            offsets = [TopicPartition("t", p, number, metadata="m" * 100) for p in range(200)]
            consumer.commit(offsets=offsets, asynchronous=False)
        leader = (
            admin.list_topics("__consumer_offsets", timeout=10)
            .topics["__consumer_offsets"]
            .partitions[0]
            .leader
        )
        heir = nodes[3 - leader]
        last = max(heir.data.glob("__consumer_offsets-0/*.log"))
        size = (
            max(
                heir.data.glob("../../n*/data/__consumer_offsets-0/*.log"),
                key=lambda path: path.stat().st_size,
            )
            .stat()
            .st_size
        )
        wait_for("the heir to have all", lambda: last.stat().st_size == size)
        drop_from_page_cache(heir.data)
        disk.set(read_ms=SLOW_MS)
        with watching(heir, heir.broker_port) as probe:
            nodes[leader].kill()
            wait_for(
                "the heir to be the coordinator",
                lambda: "Loaded __consumer_offsets-0: 1 groups" in heir.log_tail(),
                60,
            )
            disk.set()
        assert probe.longest_s < BOUND_S, probe.slowest
        assert consumer.committed([TopicPartition("t", 0)], timeout=30)[0].offset == 199
        consumer.close()


def test_truncating_many_logs(tmp_path: Path, disk: SlowDisk) -> None:
    """A former leader returns and truncates each of its logs, because the other replicas do not have its
    last records. Only the checkpoints of its directory are written synchronously, for any number of logs."""
    (port,) = free_ports(1)
    quorum = {"static": True, "voters": {9: port}}
    extra = {"broker.session.timeout.ms": 6000, "broker.heartbeat.interval.ms": 500}
    controller = Node(tmp_path / "c", node_id=9, roles="controller", controller_port=port, **quorum)
    nodes = {
        i: Node(tmp_path / f"n{i}", node_id=i, roles="broker", extra=dict(extra), **quorum) for i in (1, 2)
    }
    with running(controller), running(nodes[1], env=disk.env), running(nodes[2]):
        admin = nodes[1].admin()
        admin.create_topics([NewTopic("t", 80, 2)])["t"].result(20)

        def led_by(node_id: int) -> list[int]:
            found = nodes[2].admin().list_topics("t", timeout=10).topics["t"].partitions.values()
            return [p.id for p in found if p.leader == node_id]

        mine = led_by(1)
        replicated = Producer({"bootstrap.servers": nodes[1].bootstrap, "acks": "all", **QUIET})
        for p in mine:
            replicated.produce("t", b"committed", partition=p)
        assert replicated.flush(30) == 0
        producer = Producer({"bootstrap.servers": nodes[1].bootstrap, "acks": 1, "linger.ms": 0, **QUIET})
        disk.set(fsync_ms=100)
        admin.create_topics([NewTopic("first-slow-one", 1, 2)])["first-slow-one"].result(30)
        leader, heir = nodes[1].proc, nodes[2].proc
        assert leader is not None and heir is not None
        heir.send_signal(signal.SIGSTOP)
        for p in mine:
            producer.produce("t", b"on the leader alone", partition=p)
        assert producer.flush(30) == 0
        leader.send_signal(signal.SIGSTOP)
        heir.send_signal(signal.SIGCONT)
        wait_for("another leader", lambda: not led_by(1), 60, 0.1)
        # The response to the Fetch that waited when the heir was frozen has the first of these records.
        alone = {f"t-{p}" for p in mine if b"on the leader alone" not in log_bytes(nodes[2], f"t-{p}")}
        leader.send_signal(signal.SIGCONT)
        with watching(nodes[1], nodes[1].broker_port) as probe:
            wait_for("all logs to be cut", lambda: truncated_to_1(nodes[1]) == alone, 60)
            disk.set()
        assert len(alone) > 20
        assert probe.longest_s < 2, probe.slowest


def log_bytes(node: Node, partition: str) -> bytes:
    return (node.data / partition / f"{0:020d}.log").read_bytes()


def truncated_to_1(node: Node) -> set[str]:
    """The partitions whose logs the node has truncated after their first record."""
    return set(re.findall(r"\[PartitionLog (\S+)\] Truncating to offset 1 ", node.log_tail(10_000)))


def test_partitions_that_all_roll_at_once_do_not_use_up_the_open_files(
    tmp_path: Path, disk: SlowDisk
) -> None:
    """Partitions that were created together roll by `segment.ms` within the same moment."""
    node, partitions = Node(tmp_path / "node"), 1500
    with running(node, env=disk.env, open_files=4096):
        create(node, "t", partitions, segment_ms=1000)
        now_ms = int(time.time() * 1000)
        producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 50, **QUIET})
        failed: list[object] = []
        for age_ms in (100_000, 0):
            for partition in range(partitions):
                producer.produce(
                    "t",
                    b"x",
                    partition=partition,
                    timestamp=now_ms - age_ms,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
            assert producer.flush(60) == 0 and not failed, failed[:3]
            disk.set(fsync_ms=SLOW_MS)
        assert node.proc is not None
        assert len(list(Path(f"/proc/{node.proc.pid}/fd").iterdir())) < 3600
        assert node.proc.poll() is None
        disk.set()
        node.kill()
        node.start(env=disk.env)
        consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "none", **QUIET})
        assert consumer.get_watermark_offsets(TopicPartition("t", partitions - 1), timeout=20) == (0, 2)
        consumer.close()


def test_a_roll_whose_sync_fails_takes_its_directory_offline_before_the_next_periodic_job(
    tmp_path: Path, disk: SlowDisk
) -> None:
    """Records were acknowledged for up to a minute whose disk had lost earlier ones already."""
    failing = tmp_path / "failing"
    node = Node(tmp_path / "node", extra={"log.dirs": f"{tmp_path / 'node' / 'data'},{failing}"})
    with running(node, env=disk.env):
        create(node, "t", 2, segment_bytes=1 << 20)
        producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0, **QUIET})
        refused: list[object] = []

        def put(partition: int) -> None:
            producer.produce(
                "t",
                bytes(400_000),
                partition=partition,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )

        for _ in range(2):
            put(0)
            put(1)
        assert producer.flush(30) == 0 and not refused
        (path,) = failing.glob("t-*")
        disk.fail_fsyncs(path)
        put(int(path.name[-1]))
        assert producer.flush(30) == 0
        wait_for(
            "the directory to be taken offline",
            lambda: f"Directory {failing} is offline" in node.log_tail(2000),
            15,  # the first periodic jobs run 30 s after the start
        )
