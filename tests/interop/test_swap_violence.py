"""Each implementation is killed under load, and the other continues with its directory. Both never run at
the same time."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.e2e.test_kill import PARTITIONS, Load, check
from tests.support import java
from tests.support.cluster import Node, free_ports, wait_for
from tests.support.ledger import QUIET, Ledger, read_partition

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

HERE = Path(__file__).parent
BUSY = {  # many segments, indexes, snapshots and deletions within seconds
    "metadata.log.max.record.bytes.between.snapshots": 15_000,
    "internal.metadata.log.segment.bytes": 150_000,
    "metadata.max.retention.bytes": 300_000,
    "log.index.interval.bytes": 256,
    "log.retention.check.interval.ms": 500,
    "log.segment.delete.delay.ms": 500,
    "auto.create.topics.enable": "false",
}


@pytest.fixture(autouse=True)
def _kafka() -> None:
    java.require_java()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "node", extra=dict(BUSY), release="4.1")
    yield node
    node.kill()


class Faithful(threading.Thread):
    """One idempotent producer for all processes of a node: every record exists once, in order, under either
    implementation."""

    def __init__(self, node: Node) -> None:
        super().__init__(daemon=True)
        self.node, self.sent, self.acknowledged, self.errors = node, 0, {}, []  # type: ignore[var-annotated]
        self.enough = threading.Event()

    def run(self) -> None:
        def delivered(error, message) -> None:  # type: ignore[no-untyped-def]
            if error:
                self.errors.append(error)
            else:
                self.acknowledged[message.offset()] = message.value()

        conf = {
            "bootstrap.servers": self.node.bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": 0,
            **QUIET,
        }
        p = Producer(conf)
        while not self.enough.is_set():
            for _ in range(5):
                p.produce("ever", b"%d" % self.sent, on_delivery=delivered)
                self.sent += 1
            p.poll(0.01)
            while len(p) > 1000 and not self.enough.is_set():
                p.poll(0.05)
        p.flush(30)

    def verify(self) -> None:
        self.enough.set()
        self.join(40)
        assert not self.is_alive() and not self.errors, self.errors[:3]
        there = read_partition(self.node.bootstrap, "ever", 0)
        assert there == [b"%d" % i for i in range(self.sent)]
        assert all(there[offset] == value for offset, value in self.acknowledged.items())


def settled(load: Load) -> None:
    """Waits until all acknowledged records can be read. Kafka answers before all of them are visible, and
    becomes the leader of its partitions one after the other."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return check(load)
        except (AssertionError, KafkaException) as e:
            if time.monotonic() > deadline or not any(
                word in str(e) for word in ("topics lost", "oordinator")
            ):
                raise
            time.sleep(0.3)


@pytest.mark.parametrize("static", [False, True], ids=["kraft.version 1", "kraft.version 0"])
def test_after_a_kill_under_load_the_other_implementation_continues(tmp_path: Path, static: bool) -> None:
    node = Node(
        tmp_path / "node",
        extra=dict(BUSY),
        release="4.1",
        static=static,
        impl="java" if static else "quorate",
    )
    node.format()
    load, faithful, ledger = Load(node), Faithful(node), Ledger()
    try:
        for life in range(3):
            node.start(timeout_s=90)
            if life == 0:
                ledger.create(node.admin(), "load", PARTITIONS, **{"segment.ms": "300"})
                ledger.create(node.admin(), "ever", 1, **{"segment.ms": "500"})
                wait_for(
                    "the topics", lambda: {"load", "ever"} <= set(node.admin().list_topics(timeout=5).topics)
                )
                faithful.start()
            else:
                load.join()
                settled(load)
            if life < 2:
                load.start(life)
                enough, commits = len(faithful.acknowledged) + 200, load.committed + 20
                wait_for(
                    "work",
                    lambda n=enough, c=commits: len(faithful.acknowledged) > n and load.committed > c,
                    30,
                )
                time.sleep(0.5)  # somewhere in the midst of it
                node.kill()
                load.stop()
                node.impl = "java" if node.impl == "quorate" else "quorate"
        faithful.verify()
        assert node.stop() in (0, 143)
    except BaseException:
        print("\n".join(line for line in node.log_tail(3000).splitlines() if " INFO " not in line)[-6000:])
        raise
    finally:
        load.stop()
        faithful.enough.set()
        node.kill()


def test_the_lock_prevents_a_second_node(tmp_path: Path) -> None:
    """With a separate metadata directory. Otherwise Kafka's Raft writes to the directory before it requests
    the lock."""
    metadata = {"metadata.log.dir": tmp_path / "metadata"}
    node = Node(tmp_path / "node", extra=dict(BUSY) | metadata, release="4.1")
    node.format()
    ledger = Ledger()
    second = Node(tmp_path / "second", extra={"log.dirs": node.data} | metadata)
    for first, other in (("java", "quorate"), ("quorate", "java")):
        node.impl, second.impl = first, other
        ledger.patience_s = 10
        node.start()
        try:
            ledger.create(node.admin(), f"before-{first}")
            second.start(wait=False)
            assert second.proc is not None and second.proc.wait(60) == 1
            assert ".lock" in second.log_tail(400)
            ledger.create(node.admin(), f"after-{first}")
            ledger.produce(node.bootstrap, f"after-{first}", 10, "x")
            ledger.verify(node.admin(), node.bootstrap)
            assert node.stop() in (0, 143)
        except BaseException:
            print(
                "\n".join(line for line in node.log_tail(3000).splitlines() if " INFO " not in line)[-6000:]
            )
            raise
        finally:
            second.kill()
            node.kill()
    try:
        node.start()
        ledger.verify(node.admin(), node.bootstrap)
    finally:
        node.kill()


def everything(mode: str, node: Node, sasl_port: int) -> str:
    """The descriptions of everything except topics by Kafka's admin client; "write" first creates one of
    each."""
    done = subprocess.run(
        [
            *(
                "java",
                "-Xmx256m",
                "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            ),
            *(
                "-cp",
                f"{java.require_java()}/*",
                str(HERE / "Everything.java"),
                mode,
                node.bootstrap,
                f"127.0.0.1:{sasl_port}",
            ),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_data_of_unsupported_features_is_kept(node: Node) -> None:
    """ACLs, quotas, SCRAM, a delegation token, client metrics, group configs, KIP-848 groups,
    transactions (one left open)."""
    sasl_port = free_ports(1)[0]
    plain = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
    own = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS;User:alice",
        "delegation.token.secret.key": "secret",
        "listeners": f"PLAINTEXT://127.0.0.1:{node.broker_port},SASL://127.0.0.1:{sasl_port},"
        f"CONTROLLER://127.0.0.1:{node.controller_port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": plain,
    }

    def become(impl: str) -> None:
        node.impl, node.extra = impl, BUSY | {"metadata.log.max.record.bytes.between.snapshots": 3000}
        if impl == "java":
            node.extra |= own
        node.write_properties()

    become("java")
    node.format()
    try:
        node.start()
        everything("write", node, sasl_port)
        open_one = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "transactional.id": "open",
                "transaction.timeout.ms": 900_000,
                **QUIET,
            }
        )
        open_one.init_transactions(20)
        open_one.begin_transaction()
        for i in range(10):
            open_one.produce("entities", b"open %d" % i, partition=0)
        open_one.flush(20)
        told = everything("read", node, sasl_port)
        held = {
            i: read_partition(node.bootstrap, "entities", 0, i)
            for i in ("read_committed", "read_uncommitted")
        }
        assert len(held["read_uncommitted"]) > len(held["read_committed"]) + 10
        assert all(
            told.count(word)
            for word in ("acl ", "quota ", "scram ", "token ", "CLIENT_METRICS", "Consumer", "txn ")
        )
        node.kill()

        become("quorate")
        snapshots = set(node.data.glob("__cluster_metadata-0/*.checkpoint"))
        node.start()
        for isolation, values in held.items():
            assert read_partition(node.bootstrap, "entities", 0, isolation) == values
        ledger = Ledger()
        for i in range(15):
            ledger.create(node.admin(), f"ours-{i}")
        wait_for(
            "a snapshot of ours",
            lambda: len(set(node.data.glob("__cluster_metadata-0/*.checkpoint")) - snapshots) >= 2,
            10,
        )
        node.kill()

        become("java")
        node.start()
        assert everything("read", node, sasl_port).splitlines() == told.splitlines()
        assert read_partition(node.bootstrap, "entities", 0) == held["read_committed"]
    except BaseException:
        print("\n".join(line for line in node.log_tail(3000).splitlines() if " INFO " not in line)[-6000:])
        raise
