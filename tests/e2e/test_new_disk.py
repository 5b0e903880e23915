"""A broker whose disk was replaced copies its replicas, reports its new directory to the controller, and
leads again."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import NewTopic

from tests.support.cluster import BIN, Node, free_ports, running, wait_for
from tests.support.ledger import Ledger, read_partition

pytestmark = pytest.mark.timeout(120)


def partition(node: Node, topic: str = "t"):  # type: ignore[no-untyped-def]
    return node.admin().list_topics(topic, timeout=5).topics[topic].partitions[0]


def create(node: Node, topic: str, replicas: list[int]) -> None:
    admin = node.admin()
    asked = admin.create_topics([NewTopic(topic, 1, replica_assignment=[replicas])], operation_timeout=20)
    next(iter(asked.values())).result(30)


def elect(node: Node, kind: ElectionType) -> None:
    admin = node.admin()
    for error in admin.elect_leaders(kind, None).result(20).values():
        if error is not None:
            raise KafkaException(error)


def replace_disk(node: Node) -> None:
    shutil.rmtree(node.data)
    node.format()


def test_a_broker_with_a_new_disk_leads_again(tmp_path: Path) -> None:
    controller = Node(tmp_path / "c", node_id=1, roles="controller")
    first, second = (
        Node(tmp_path / f"b{i}", node_id=i, roles="broker", voters=controller.voters) for i in (101, 102)
    )
    with running(controller), running(first), running(second):
        ledger = Ledger()
        create(first, "t", [102, 101])
        create(first, "alone", [102])
        ledger.partitions["t"] = 1
        ledger.produce(second.bootstrap, "t", 50, "x")
        wait_for("both to be in sync", lambda: sorted(partition(first).isrs) == [101, 102])
        assert second.stop() == 0
        assert partition(first).leader == 101
        replace_disk(second)
        second.start()
        # Nobody else has a replica: it begins anew, as in Apache Kafka.
        wait_for("its only replica to be led", lambda: partition(first, "alone").leader == 102)
        wait_for("it to be in sync again", lambda: sorted(partition(first).isrs) == [101, 102])
        elect(first, ElectionType.PREFERRED)
        wait_for("the preferred leader", lambda: partition(first).leader == 102)
        first.kill()
        wait_for("the ISR without the dead broker", lambda: list(partition(second).isrs) == [102])
        assert partition(second).leader == 102
        assert read_partition(second.bootstrap, "t", 0) == ledger.records["t", 0]


def test_a_broker_with_a_new_disk_takes_over_when_the_leader_dies(tmp_path: Path) -> None:
    controller = Node(tmp_path / "c", node_id=1, roles="controller")
    first, second = (
        Node(tmp_path / f"b{i}", node_id=i, roles="broker", voters=controller.voters) for i in (101, 102)
    )
    with running(controller), running(first), running(second):
        ledger = Ledger()
        create(first, "t", [101, 102])
        ledger.partitions["t"] = 1
        ledger.produce(first.bootstrap, "t", 50, "x")
        second.kill()
        replace_disk(second)
        second.start()
        wait_for("it to be in sync again", lambda: sorted(partition(first).isrs) == [101, 102])
        first.kill()
        wait_for("the other replica to lead", lambda: partition(second).leader == 102)
        assert read_partition(second.bootstrap, "t", 0) == ledger.records["t", 0]


def test_an_empty_disk_does_not_destroy_the_records_of_the_other_replica(tmp_path: Path) -> None:
    """The only in-sync replica loses its disk while the other replica is down. That other replica may lead
    only by an unclean election."""
    controller = Node(tmp_path / "c", node_id=1, roles="controller")
    first, second = (
        Node(tmp_path / f"b{i}", node_id=i, roles="broker", voters=controller.voters) for i in (101, 102)
    )
    with running(controller), running(first), running(second):
        ledger = Ledger()
        create(first, "t", [102, 101])
        ledger.partitions["t"] = 1
        ledger.produce(second.bootstrap, "t", 50, "x")
        wait_for("both to be in sync", lambda: sorted(partition(first).isrs) == [101, 102])
        assert first.stop() == 0
        assert second.stop() == 0
        replace_disk(second)
        second.start()
        first.start()
        assert partition(first).leader == -1
        elect(first, ElectionType.UNCLEAN)
        wait_for("both to be in sync", lambda: sorted(partition(first).isrs) == [101, 102])
        elect(first, ElectionType.PREFERRED)
        wait_for("the preferred leader", lambda: partition(first).leader == 102)
        assert read_partition(second.bootstrap, "t", 0) == ledger.records["t", 0]


def test_a_combined_node_with_a_new_disk_leads_again(tmp_path: Path) -> None:
    """The documented procedure for a voter of a static quorum: its directory is formatted as the first
    time."""
    ports = free_ports(3)
    voters = dict(zip((1, 2, 3), ports, strict=True))
    nodes = [
        Node(tmp_path / f"n{i}", node_id=i, static=True, voters=voters, controller_port=voters[i])
        for i in voters
    ]
    with contextlib.ExitStack() as stack:
        for node in nodes:
            node.format()
            node.start(wait=False)
            stack.callback(node.kill)
        for node in nodes:
            node.wait_ready()
        first, _, third = nodes
        ledger = Ledger()
        create(first, "t", [3, 1])
        ledger.partitions["t"] = 1
        ledger.produce(first.bootstrap, "t", 50, "x")
        assert third.stop() == 0
        replace_disk(third)
        third.start()
        wait_for("it to be in sync again", lambda: sorted(partition(first).isrs) == [1, 3])
        elect(first, ElectionType.PREFERRED)
        wait_for("the preferred leader", lambda: partition(first).leader == 3)
        assert read_partition(third.bootstrap, "t", 0) == ledger.records["t", 0]


def test_no_directory_is_assigned_below_the_metadata_version_of_directories(tmp_path: Path) -> None:
    """The controller would refuse every assignment. After an upgrade the broker registers its directories."""
    directories = [tmp_path / "n" / name for name in ("data", "more")]
    node = Node(tmp_path / "n", static=True, extra={"log.dirs": ",".join(map(str, directories))})
    with running(node, "--release-version", "3.6"):
        ledger = Ledger()
        for topic in ("old", "new"):
            ledger.create(node.admin(), topic)
        ledger.produce(node.bootstrap, "old", 5, "x")
        assert node.stop() == 0
        assert "DirectoryAssignments" not in node.log_tail(1000)
        node.start()
        subprocess.run(
            [
                str(BIN / "kafka-features"),
                "--bootstrap-server",
                node.bootstrap,
                "upgrade",
                "--release-version",
                "3.9",
            ],
            check=True,
            timeout=60,
        )
        ledger.produce(node.bootstrap, "new", 5, "x")
        for topic in ("old", "new"):
            assert read_partition(node.bootstrap, topic, 0) == ledger.records[topic, 0]
        assert node.stop() == 0
        assert "DirectoryAssignments" not in node.log_tail(1000)
