"""The console tools as processes against real nodes: no record is lost, and the reported results are true."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import re
import signal
import statistics
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic

from quorate.testing import ClusterFactory, KafkaCluster
from tests.support.cluster import BIN, wait_for
from tests.support.ledger import admin_client

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """A controller and broker, and a second broker."""
    with KafkaCluster(controllers=1, brokers=2, config={"group.min.session.timeout.ms": 500}) as started:
        yield started


@pytest.fixture
def node(kafka_cluster_factory: ClusterFactory) -> KafkaCluster:
    """A node for one test, which may freeze it."""
    return kafka_cluster_factory()


def make_topic(node: KafkaCluster, name: str, assignment: list[list[int]]) -> str:
    admin = admin_client(node.bootstrap_servers)
    admin.create_topics([NewTopic(name, len(assignment), replica_assignment=assignment)])[name].result(20)

    def led() -> bool:
        return all(p.leader >= 0 for p in admin.list_topics(name, timeout=5).topics[name].partitions.values())

    wait_for(f"leaders of {name}", led)
    return name


def values(node: KafkaCluster, topic: str) -> list[bytes]:
    """The values in the log of a topic, partition by partition."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap_servers, "group.id": "looks", "log_level": 0})
    found: list[bytes] = []
    try:
        for partition in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            at = 0
            while at < end:
                message = consumer.poll(10)
                assert message is not None and message.error() is None
                found.append(message.value())
                at = message.offset() + 1
    finally:
        consumer.close()
    return found


def committed(node: KafkaCluster, group: str, topic: str) -> dict[int, int]:
    """The committed offsets of a group, by partition."""
    admin = admin_client(node.bootstrap_servers)
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(10)
    return {tp.partition: tp.offset for tp in answer.topic_partitions if tp.topic == topic and tp.offset >= 0}


class Tool:
    """A running console tool. Its output goes to files, so that it never waits for a reader."""

    def __init__(self, base: Path, name: str, node: KafkaCluster, *args: object) -> None:
        self.out, self.err = (
            base / f"{name}-{time.monotonic_ns()}.out",
            base / f"{name}-{time.monotonic_ns()}.err",
        )
        with self.out.open("wb") as out, self.err.open("wb") as err:
            command = [str(BIN / name), "--bootstrap-server", node.bootstrap_servers, *map(str, args)]
            self.proc = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err)

    def write(self, text: str) -> None:
        assert self.proc.stdin is not None
        self.proc.stdin.write(text.encode())
        self.proc.stdin.flush()

    def has_read_all(self) -> bool:
        """Whether the tool has read everything that was written to the pipe."""
        assert self.proc.stdin is not None
        waiting = array.array("i", [0])
        fcntl.ioctl(self.proc.stdin.fileno(), termios.FIONREAD, waiting)
        return waiting[0] == 0

    def end(self, number: int | None = None, timeout_s: float = 30) -> int:
        """Ends the input, or sends a signal. Returns the exit status."""
        if number is None:
            assert self.proc.stdin is not None
            self.proc.stdin.close()
        else:
            self.proc.send_signal(number)
        return self.proc.wait(timeout_s)

    @property
    def lines(self) -> list[str]:
        return self.out.read_text().splitlines()

    @property
    def said(self) -> str:
        return self.err.read_text()


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[list[Tool]]:
    started: list[Tool] = []
    yield started
    for tool in started:
        with contextlib.suppress(ProcessLookupError):
            tool.proc.kill()
        tool.proc.communicate()


def start(tools: list[Tool], base: Path, name: str, node: KafkaCluster, *args: object) -> Tool:
    tools.append(Tool(base, f"kafka-console-{name}", node, *args))
    return tools[-1]


@contextlib.contextmanager
def frozen(pid: int | None) -> Iterator[None]:
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# -- the producer
# --------------------------------------------------------------------------------------------------


def test_every_record_that_is_not_reported_as_failed_is_in_the_log(
    node: KafkaCluster, tools: list[Tool], tmp_path: Path
) -> None:
    """A record that timed out may have been stored. The next one must not use its sequence number, because
    the leader would consider it a duplicate."""
    topic = make_topic(node, "claims", [[1]])
    producer = start(tools, tmp_path, "producer", node, "--topic", topic, "--request-timeout-ms", 300,
                     "--producer-property", "delivery.timeout.ms=1200")  # fmt: skip
    producer.write("warm\n")
    wait_for("the first record", lambda: values(node, topic) == [b"warm"])
    with frozen(node.pid(1)):
        producer.write("x" * 11 + "\n")
        wait_for("the report of the record that timed out", lambda: "value: 11 bytes" in producer.said)
    sizes = []
    while max(map(len, values(node, topic))) < 21:
        sizes.append(21 + len(sizes))
        producer.write("x" * sizes[-1] + "\n")
        wait_for("the line to be read", producer.has_read_all)
    assert producer.end() == 1
    failed = {int(size) for size in re.findall(r"value: (\d+) bytes", producer.said)}
    stored = {len(value) for value in values(node, topic)}
    assert failed >= {11}
    assert set(sizes) - failed <= stored, f"failed {failed}, stored {stored}\n{producer.said}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_producer_after_the_lines_that_it_has_read(
    cluster: KafkaCluster, tools: list[Tool], tmp_path: Path, number: signal.Signals
) -> None:
    topic = make_topic(cluster, f"signal-{number.name}", [[1], [2]])
    producer = start(tools, tmp_path, "producer", cluster, "--topic", topic, "--timeout", 20_000)
    producer.write("first\n")
    wait_for("the first line to be read", producer.has_read_all)
    lines = [f"line {i}" for i in range(500)]
    producer.write("".join(f"{line}\n" for line in lines))
    wait_for("the lines to be read", producer.has_read_all)
    assert producer.end(number) == 128 + number
    assert sorted(values(cluster, topic)) == sorted(line.encode() for line in ["first", *lines])
    assert producer.said == ""


def test_lines_before_an_invalid_one_are_sent(
    cluster: KafkaCluster, tools: list[Tool], tmp_path: Path
) -> None:
    topic = make_topic(cluster, "bad-line", [[1], [2]])
    producer = start(tools, tmp_path, "producer", cluster, "--topic", topic, "--timeout", 20_000,
                     "--property", "parse.key=true")  # fmt: skip
    producer.write("".join(f"{i}\tvalue {i}\n" for i in range(500)) + "no key\n")
    assert producer.proc.wait(30) == 1
    assert sorted(values(cluster, topic)) == sorted(b"value %d" % i for i in range(500))
    assert producer.said == "No key separator found on line number 501: 'no key'\n"


def test_the_exit_status_shows_records_that_an_interrupt_left_unsent(
    node: KafkaCluster, tools: list[Tool], tmp_path: Path
) -> None:
    topic = make_topic(node, "unsent", [[1]])
    producer = start(tools, tmp_path, "producer", node, "--topic", topic)
    producer.write("warm\n")
    wait_for("the first record", lambda: values(node, topic) == [b"warm"])
    node.kill(1)
    producer.write("x" * 11 + "\n" + "x" * 12 + "\n")
    wait_for("the lines to be read", producer.has_read_all)
    producer.proc.send_signal(signal.SIGINT)
    wait_for("word of what is waited for", lambda: "2 records" in producer.said)
    assert producer.end(signal.SIGINT) == 1
    assert re.findall(r"value: (\d+) bytes", producer.said) == ["11", "12"]


# -- the consumer
# --------------------------------------------------------------------------------------------------


def test_an_interrupt_commits_what_was_printed(
    cluster: KafkaCluster, tools: list[Tool], tmp_path: Path
) -> None:
    """Ctrl-C is sent while the records of one leader have been printed and another leader does not answer."""
    topic = make_topic(cluster, "printed", [[1], [2]])
    source = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "log_level": 0})
    printed, sent = 0, 0
    for round_number in range(6):
        consumer = start(tools, tmp_path, "consumer", cluster, "--topic", topic, "--group", "printed-group",
                         "--from-beginning")  # fmt: skip
        source.produce(topic, f"first of {round_number}", partition=0)
        sent += 1
        wait_for("the first record", lambda: consumer.lines)  # noqa: B023
        until = time.monotonic() + 0.05 * round_number
        while time.monotonic() < until or sent % 10:
            source.produce(topic, f"value {sent}", partition=0)
            sent += 1
            assert source.flush(10) == 0
        assert consumer.end(signal.SIGINT) == 0
        printed += len(consumer.lines)
        assert committed(cluster, "printed-group", topic) == {0: printed}
    consumer = start(
        tools,
        tmp_path,
        "consumer",
        cluster,
        "--topic",
        topic,
        "--group",
        "printed-group",
        "--timeout-ms",
        3000,
    )
    assert consumer.proc.wait(30) == 0
    assert printed + len(consumer.lines) == sent, "each record once"


def test_a_record_is_printed_at_once_beside_an_idle_leader(
    cluster: KafkaCluster, tools: list[Tool], tmp_path: Path
) -> None:
    topic = make_topic(cluster, "at-once", [[1], [2]])
    source = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "log_level": 0})
    consumer = start(tools, tmp_path, "consumer", cluster, "--topic", topic, "--from-beginning")
    took = []
    for i in range(11):
        source.produce(topic, f"{i}", partition=0)
        assert source.flush(10) == 0
        began = time.monotonic()
        wait_for("the record", lambda: len(consumer.lines) > i, every_s=0.001)  # noqa: B023
        took.append(time.monotonic() - began)
    assert statistics.median(took[1:]) < 0.2, took


def test_a_consumer_ends_when_its_group_does_not_answer(
    node: KafkaCluster, tools: list[Tool], tmp_path: Path
) -> None:
    topic = make_topic(node, "no-answer", [[1]])
    source = Producer({"bootstrap.servers": node.bootstrap_servers, "log_level": 0})
    source.produce(topic, "value")
    assert source.flush(10) == 0
    consumer = start(
        tools, tmp_path, "consumer", node, "--topic", topic, "--group", "no-answer-group", "--from-beginning"
    )
    wait_for("the record", lambda: consumer.lines == ["value"])
    with frozen(node.pid(1)):
        assert consumer.end(signal.SIGINT) == 1
    assert "The last offsets may not be committed" in consumer.said


@pytest.mark.parametrize("other", ["has left", "reads on"])
def test_a_consumer_that_was_frozen_rewinds_no_offset(
    cluster: KafkaCluster, tools: list[Tool], tmp_path: Path, other: str
) -> None:
    node = cluster
    topic = make_topic(node, f"frozen-{other.replace(' ', '-')}", [[1]])
    group = f"{topic}-group"
    source = Producer({"bootstrap.servers": node.bootstrap_servers, "linger.ms": 0, "log_level": 0})

    def send(count: int) -> None:
        for i in range(count):
            source.produce(topic, f"{i}")
        assert source.flush(10) == 0

    admin = admin_client(node.bootstrap_servers)

    def members() -> int:
        return len(admin.describe_consumer_groups([group])[group].result(10).members)

    args = ["--topic", topic, "--group", group, "--from-beginning"]
    for setting in ("session.timeout.ms=1500", "heartbeat.interval.ms=300", "auto.commit.interval.ms=2000"):
        args += ["--consumer-property", setting]
    consumer = start(tools, tmp_path, "consumer", node, *args)
    wait_for(
        "the first commit, which the next one follows after 2 s",
        lambda: send(1) or committed(node, group, topic),
    )
    before = len(consumer.lines)
    send(10)
    wait_for("the next lines", lambda: len(consumer.lines) >= before + 10)
    with frozen(consumer.proc.pid):
        end = len(values(node, topic)) + 90
        wait_for("the group to go on without it", lambda: members() == 0)
        second = start(tools, tmp_path, "consumer", node, *args)
        send(90)
        wait_for("the commit of the other", lambda: committed(node, group, topic) == {0: end})
        if other == "has left":
            assert second.end(signal.SIGINT) == 0
    seen = [end]

    def back() -> bool:
        seen.append(committed(node, group, topic)[0])
        return members() == (1 if other == "has left" else 2)

    wait_for("the frozen one to be back", back)
    send(10)
    wait_for(
        "the last records", lambda: seen.append(committed(node, group, topic)[0]) or seen[-1] == end + 10
    )
    assert seen == sorted(seen)
    assert consumer.end(signal.SIGINT) == 0
    assert committed(node, group, topic) == {0: end + 10}


@pytest.mark.parametrize("group", [True, False])
def test_added_partitions_and_new_topics_are_read(
    cluster: KafkaCluster, tools: list[Tool], tmp_path: Path, group: bool
) -> None:
    node = cluster
    name = f"grows-{'with' if group else 'without'}-group"
    topic = make_topic(node, name, [[1]])
    source = Producer({"bootstrap.servers": node.bootstrap_servers, "linger.ms": 0, "log_level": 0})
    options: list[object] = ["--from-beginning", "--consumer-property", "metadata.max.age.ms=300"]
    groups = [["--group", f"{name}-{i}"] if group else [] for i in range(2)]
    one = start(tools, tmp_path, "consumer", node, "--topic", topic, *options, *groups[0])
    many = start(tools, tmp_path, "consumer", node, "--include", f"{name}.*", *options, *groups[1])
    source.produce(topic, "first", partition=0)
    assert source.flush(10) == 0
    wait_for("the first record", lambda: one.lines == many.lines == ["first"])
    admin = admin_client(node.bootstrap_servers)
    admin.create_partitions([NewPartitions(topic, 3, [[2], [1]])])[topic].result(20)
    make_topic(node, f"{name}-2", [[2]])
    late = Producer({"bootstrap.servers": node.bootstrap_servers, "linger.ms": 0, "log_level": 0})
    late.produce(topic, "added 1", partition=1)
    late.produce(topic, "added 2", partition=2)
    late.produce(f"{name}-2", "new topic", partition=0)
    assert late.flush(10) == 0
    wait_for("the added partitions", lambda: sorted(one.lines) == ["added 1", "added 2", "first"], 20)
    wait_for("the new topic", lambda: sorted(many.lines) == ["added 1", "added 2", "first", "new topic"], 20)
    assert one.end(signal.SIGTERM) == many.end(signal.SIGTERM) == 0
    assert one.said == "Processed a total of 3 messages\n"
    assert many.said == "Processed a total of 4 messages\n"
