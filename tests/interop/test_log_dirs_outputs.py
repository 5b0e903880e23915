"""Our kafka-log-dirs and Apache Kafka's, of 4.1 and the newest in Maven, side by side on one node:
the same text. The node is ours or Apache Kafka's. One of its directories has failed, or a replica
moves to another directory."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from quorate.admin.sync import AdminClient
from quorate.admin.types import ConfigOp, NewTopic, TopicPartitionReplica
from quorate.protocol.config_resource import ConfigResourceType
from tests.support import java
from tests.support.cluster import BIN, Node, wait_for

pytestmark = [pytest.mark.java, pytest.mark.timeout(280)]

MAIN = "org.apache.kafka.tools.LogDirsCommand"
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
NAMES = ("first", "second", "failed")


KINDS = [("ours", "moving"), ("ours", "failed"), ("4.4.0", "moving"), ("4.1.1", "failed")]


@pytest.fixture(scope="module", params=KINDS, ids=" ".join)
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    release, state = request.param
    base = tmp_path_factory.mktemp(f"log-dirs-{release}") / "node"
    directories = [base / name for name in NAMES]
    node = Node(
        base,
        impl="quorate" if release == "ours" else "java",
        kafka=java.LATEST_VERSION if release == "ours" else release,
        extra={"log.dirs": ",".join(map(str, directories))},
    )
    node.format()
    if state == "failed":
        shutil.rmtree(directories[-1])
        directories[-1].touch()  # no directory: it is offline from the start
    try:
        node.start()
        prepare(node, moving=state == "moving")
        yield node
    finally:
        node.kill()


def prepare(node: Node, *, moving: bool) -> None:
    """Topics with records, and a move between two directories that does not end."""
    with AdminClient(node.bootstrap) as admin:
        admin.create_topics([NewTopic("orders", 2), NewTopic("payments", 1)])
    for topic in ("orders", "payments"):
        words = ["--bootstrap-server", node.bootstrap, "--topic", topic]
        lines = f"{'x' * 900}\n" * 10_000
        subprocess.run([str(BIN / "kafka-console-producer"), *words], input=lines, text=True, check=True)
    if not moving:
        return
    with AdminClient(node.bootstrap) as admin:
        broker = ConfigResourceType.BROKER, str(node.node_id)
        admin.incremental_alter_configs({broker: [(ConfigOp.SET, THROTTLE, "1")]})
        found = admin.describe_log_dirs([node.node_id])[node.node_id]
        [(tp, holder)] = [
            (tp, directory.path) for directory in found for tp in directory.replicas if tp.topic == "payments"
        ]
        target = next(path for name in NAMES if (path := str(node.base / name)) != holder)
        replica = TopicPartitionReplica(tp.topic, tp.partition, node.node_id)
        assert admin.alter_replica_log_dirs({replica: target}) == {replica: None}
        wait_for(
            "the future replica",
            lambda: [d for d in admin.describe_log_dirs([node.node_id])[node.node_id] if d.future_replicas],
        )


def both(node: Node, version: str, *words: str) -> list[tuple[int, str, str]]:
    """Status, output and the first line of the error of our tool and of Kafka's."""
    where = ["--bootstrap-server", node.bootstrap]
    found = []
    for command in (
        [str(BIN / "kafka-log-dirs"), *where, *words],
        java.command(MAIN, *where, *words, version=version),
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]  # no lines of a log
        error = errors[0] if errors else ""
        found.append((done.returncode, settled(done.stdout), error))
    return found


def settled(text: str) -> str:
    """The text without sizes and lags.

    Lists that Java prints in the order of a hash table are sorted, the keys of objects are left as
    they are.
    """
    lines = text.splitlines()
    if not lines or not lines[-1].startswith("{"):
        return text
    document = json.loads(lines[-1])
    for broker in document["brokers"]:
        for directory in broker["logDirs"]:
            for replica in directory["partitions"]:
                assert replica["size"] >= 0
                replica["size"] = replica["offsetLag"] = 0
            directory["partitions"].sort(key=lambda replica: (replica["partition"], replica["isFuture"]))
        broker["logDirs"].sort(key=lambda directory: directory["logDir"])
    return "\n".join([*lines[:-1], json.dumps(document, separators=(",", ":"))])


@pytest.mark.parametrize("version", java.VERSIONS)
def test_the_same_description(node: Node, version: str) -> None:
    mine, theirs = both(node, version, "--describe")
    assert mine == theirs
    has_failed = "org.apache.kafka.common.errors.KafkaStorageException" in mine[1]
    assert has_failed != ('"isFuture":true' in mine[1])


@pytest.mark.parametrize(
    "words",
    [
        ["--describe", "--topic-list", "payments,unknown"],
        ["--describe", "--topic-list", "unknown", "--broker-list", "1"],
        ["--describe", "--broker-list", ",1,,"],
        ["--describe", "--broker-list", "1,7"],
    ],
    ids=" ".join,
)
def test_the_same_text(node: Node, words: list[str]) -> None:
    mine, theirs = both(node, java.LATEST_VERSION, *words)
    assert mine == theirs
